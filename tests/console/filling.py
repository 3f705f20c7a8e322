"""Many rows of every model, as fast as bulk inserts go; what the lists are counted on."""

import datetime as dt
from itertools import count
from typing import Any

from django.db import connection, transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from compute.models import (
    AgentState,
    AvailabilityState,
    Claim,
    FlaggedReport,
    GpuPrice,
    GuestState,
    NodeOffer,
    Occupancy,
    OrgGpuPrice,
    ResourceSize,
    Run,
    SshKey,
    UsageSession,
    UsageUnit,
    VmTemplate,
    Workload,
    WorkloadSshKey,
)
from nodes.models import (
    AgentEpoch,
    Fabric,
    FabricAddress,
    Gpu,
    GpuModel,
    GpuUnit,
    Hold,
    HoldAudience,
    HoldUnit,
    InventoryReport,
    InventoryState,
    Location,
    Node,
    NodeCredential,
    NodeHeartbeat,
    NodeIncident,
    ProviderApplication,
    TopologyGeneration,
)
from openrelay.api.models import IdempotencyKey
from openrelay.audit.models import AuditEvent
from openrelay.core import clock
from openrelay.core.ids import new_id
from openrelay.identity.models import ApiKey, Membership, Organization, Role, SessionToken, User
from reservations.models import Announcement, Reservation, ReservationManager

_numbers = count(1)


@transaction.atomic
def fill(rows: int) -> None:
    """Add `rows` rows of every model, each on its own node and in its own organization.

    Every reservation among them needs review.
    """
    at = clock.read()
    marks = [f"f{next(_numbers)}" for _ in range(rows)]

    def make(model: Any, build: Any) -> list[Any]:
        return model.objects.bulk_create([model(**build(number, mark)) for number, mark in enumerate(marks)])

    orgs = make(Organization, lambda _n, m: {"name": f"Org {m}", "slug": m, "short_id": m, "created_at": at})
    people = make(User, lambda _n, m: {"email": f"{m}@example.com", "password": "!", "created_at": at})
    make(
        Membership,
        lambda n, _m: {
            "user": people[n],
            "organization": orgs[n],
            "role": "owner",
            "invited_at": at,
            "joined_at": at,
        },
    )
    make(
        Role,
        lambda n, m: {
            "organization": orgs[n],
            "name": m,
            "permissions": ["compute.read"],
            "created_by": people[n],
            "created_at": at,
            "updated_by": people[n],
            "updated_at": at,
        },
    )
    make(
        ApiKey,
        lambda n, m: {
            "organization": orgs[n],
            "created_by": people[n],
            "name": m,
            "sha256": m,
            "prefix": m,
            "created_at": at,
        },
    )
    make(
        SessionToken,
        lambda n, m: {
            "user": people[n],
            "organization": orgs[n],
            "sha256": m,
            "created_at": at,
            "expires_at": at + dt.timedelta(hours=1),
        },
    )
    make(IdempotencyKey, lambda n, m: {"organization": orgs[n], "key": m, "answer": {}, "created_at": at})
    make(
        AuditEvent,
        lambda n, m: {
            "created_at": at,
            "actor": "system",
            "organization": orgs[n],
            "event": "node.filled",
            "target_type": "node",
            "target_id": m,
        },
    )
    locations = make(
        Location, lambda _n, m: {"slug": m, "name": m, "city": "Oslo", "country": "NO", "region": "north"}
    )
    fabrics = make(Fabric, lambda _n, m: {"slug": m, "name": m, "created_at": at})
    make(FabricAddress, lambda n, _m: {"fabric": fabrics[n], "address": "10.40.0.1"})
    make(
        ProviderApplication,
        lambda n, m: {"organization": orgs[n], "note": m, "submitted_by": "user:x", "submitted_at": at},
    )
    models = make(GpuModel, lambda _n, m: {"slug": m, "name": m, "manufacturer": "acme", "vram_gb": 80})
    make(
        GpuPrice,
        lambda n, _m: {"gpu_model": models[n], "tier": "spot", "cents_per_gpu_hour": 90, "updated_at": at},
    )
    nodes = make(
        Node,
        lambda n, m: {
            "organization": orgs[n],
            "location": locations[n],
            "hostname": m,
            "topology_gen": 2,
        },
    )
    make(NodeHeartbeat, lambda n, _m: {"node": nodes[n], "seen_at": at})
    make(AgentEpoch, lambda n, m: {"node": nodes[n], "epoch": m, "began_at": at})
    make(
        NodeIncident,
        lambda n, m: {
            "node": nodes[n],
            "kind": NodeIncident.Kind.TWO_HOSTS,
            "detail": m,
            "began_at": at,
            "last_at": at,
        },
    )
    make(InventoryState, lambda n, m: {"node": nodes[n], "epoch": m, "last_report_at": at})
    make(NodeCredential, lambda n, m: {"node": nodes[n], "digest": m, "prefix": m})
    reports = make(
        InventoryReport,
        lambda n, _m: {
            "node": nodes[n],
            "sequence": 1,
            "received_at": at,
            "flagged": "it is partial",
            "content": {},
        },
    )
    make(
        TopologyGeneration,
        lambda n, _m: {
            "node": nodes[n],
            "number": 2,
            "at": at,
            "report": reports[n],
            "cause": "0000:10:00.0 is new",
            "units": [],
        },
    )
    units = make(
        GpuUnit,
        lambda n, _m: {
            "node": nodes[n],
            "address": "0000:10:00.0",
            "alloc_class": "vfio-group",
            "gpu_model": models[n],
            "gpu_count": 1,
        },
    )
    make(Gpu, lambda n, _m: {"unit": units[n], "address": "0000:10:00.0"})
    term = DateTimeTZRange(at, None)
    holds = make(Hold, lambda n, _m: {"node": nodes[n], "term": term, "topology_gen": 1})
    make(HoldAudience, lambda n, _m: {"hold": holds[n], "organization": orgs[n]})
    make(
        HoldUnit,
        lambda n, _m: {
            "hold": holds[n],
            "node": nodes[n],
            "unit": units[n],
            "term": term,
            "pinned_class": "vfio-group",
            "pinned_model": models[n],
            "pinned_gpu_count": 1,
        },
    )
    reservations = make(
        Reservation,
        lambda n, m: {
            "hold": holds[n],
            "starts_at": at,
            "contract_ref": m,
            "created_by": "system",
            "created_at": at,
            "updated_at": at,
            "pinned_at": at,
        },
    )
    make(ReservationManager, lambda n, _m: {"reservation": reservations[n], "organization": orgs[n]})
    make(
        Announcement,
        lambda n, _m: {
            "reservation": reservations[n],
            "event": Announcement.Event.NEEDS_REVIEW,
            "key": 2,
            "occurred_at": at,
            "announced_at": at,
        },
    )
    workloads = make(
        Workload,
        lambda n, m: {
            "organization": orgs[n],
            "name": m,
            "status": "running",
            "node": nodes[n],
            "gpu_model": models[n],
            "gpu_count": 1,
            "disk_size_gb": 100,
            "created_by": "system",
            "created_at": at,
            "updated_at": at,
        },
    )
    runs = make(
        Run, lambda n, _m: {"workload": workloads[n], "node": nodes[n], "number": 1, "created_at": at}
    )
    make(
        Claim,
        lambda n, _m: {
            "unit": units[n],
            "workload": workloads[n],
            "run": runs[n],
            "node": nodes[n],
            "created_at": at,
        },
    )
    make(GuestState, lambda n, m: {"run": runs[n], "console": m, "said_at": at})
    make(Occupancy, lambda n, _m: {"run": runs[n], "unit": units[n], "node": nodes[n], "opened_at": at})
    keys = make(
        SshKey,
        lambda n, m: {
            "organization": orgs[n],
            "name": m,
            "public_key": "ssh-ed25519 AAAA",
            "fingerprint": m,
            "created_by": "system",
            "created_at": at,
        },
    )
    make(WorkloadSshKey, lambda n, _m: {"workload": workloads[n], "ssh_key": keys[n]})
    make(AgentState, lambda n, _m: {"node": nodes[n], "flag": "it is partial", "flagged_at": at})
    make(
        FlaggedReport,
        lambda n, _m: {
            "node": nodes[n],
            "sequence": 1,
            "received_at": at,
            "flag": "it is partial",
            "content": {},
        },
    )
    make(
        OrgGpuPrice,
        lambda n, _m: {
            "organization": orgs[n],
            "gpu_model": models[n],
            "tier": "spot",
            "cents_per_gpu_hour": 80,
            "updated_at": at,
        },
    )
    make(ResourceSize, lambda _n, m: {"slug": m, "vcpu": 2, "ram_mb": 4096, "cents_per_hour": 4})
    make(VmTemplate, lambda _n, m: {"slug": m, "name": m, "filename": f"{m}.qcow2", "os_type": "debian"})
    sessions = make(
        UsageSession,
        lambda n, _m: {
            "workload": workloads[n],
            "run": runs[n],
            "organization": orgs[n],
            "node": nodes[n],
            "node_owner": orgs[n],
            "tier": "community",
            "gpu_model": models[n],
            "gpu_count": 1,
            "cents_per_hour": 200,
            "started_at": at,
        },
    )
    make(
        UsageUnit, lambda n, _m: {"session": sessions[n], "unit": units[n], "gpu_count": 1, "hold": holds[n]}
    )
    make(
        NodeOffer,
        lambda n, _m: {
            "node_id": nodes[n].pk,
            "gpu_model_id": models[n].pk,
            "online": True,
            "shape": "[]",
        },
    )
    AvailabilityState.objects.get_or_create(
        defaults={
            "version": new_id(),
            "snapshot": "1:1:",
            "surveyed_at": at,
            "checked_at": at,
            "offers": "{}",
        }
    )
    # As autovacuum would: the plans for ten rows are none for a thousand.
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
