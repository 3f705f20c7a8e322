"""Makers of what tests start from. Everything is written as the services write it, or by them."""

import datetime as dt
import itertools
from collections.abc import Sequence
from typing import Any

from compute.models import GpuPrice, SshKey
from nodes.models import GpuModel, GpuUnit, Node, NodeCredential, NodeHeartbeat
from nodes.services.inventory import InventoryResult, apply_inventory
from openrelay.audit.actor import Actor
from openrelay.core import clock
from openrelay.core.clock import Now
from openrelay.identity import secrets
from openrelay.identity.caller import Caller
from openrelay.identity.models import ApiKey, Membership, Organization, Role, SessionToken, User
from openrelay.identity.permissions import AREAS
from openrelay.identity.services.callers import authenticate

_numbers = itertools.count(1)
EVERYTHING = tuple(f"{area.id}.{area.levels[-1].name}" for area in AREAS)


def organization(name: str = "", **fields: Any) -> Organization:
    """An organization with a name of its own."""
    number = next(_numbers)
    name = name or f"Org {number}"
    return Organization.objects.create(
        name=name, slug=f"org-{number}", short_id=f"o{number}", created_at=clock.read(), **fields
    )


def platform() -> Organization:
    """The platform ops organization, made once."""
    found = Organization.objects.filter(is_platform_ops=True).first()
    return found or organization("Platform", is_platform_ops=True)


def api_key(org: Organization, permissions: Sequence[str] = EVERYTHING, **fields: Any) -> str:
    """The secret of a new key of `org`; made at the server, so limited by its ceiling alone."""
    secret, digest = secrets.make(secrets.API_KEY)
    ApiKey.objects.create(
        organization=org,
        name="test",
        sha256=digest,
        prefix=secret[:10],
        permissions=list(permissions),
        created_at=clock.read(),
        **fields,
    )
    return secret


def caller(org: Organization, permissions: Sequence[str] = EVERYTHING) -> Caller:
    """A caller with a new key of `org`."""
    return authenticate(api_key(org, permissions), source_ip="127.0.0.1", request_id="test")


def operator() -> Caller:
    """A caller of the platform ops organization with everything."""
    return caller(platform())


def user(org: Organization, role: str = "owner", **fields: Any) -> User:
    """A person who is a member of `org`."""
    number = next(_numbers)
    person = User(
        email=fields.pop("email", f"person{number}@example.com"),
        full_name="A Person",
        created_at=clock.read(),
        **fields,
    )
    person.set_password("correct horse battery")
    person.save()
    Membership.objects.create(user=person, organization=org, role=role, invited_at=Now(), joined_at=Now())
    return person


def role(org: Organization, maker: User, **fields: Any) -> Role:
    """A role of `org`'s own, made by `maker`."""
    at = clock.read()
    values = {"name": f"Role {next(_numbers)}", "permissions": ["compute.operate"], **fields}
    return Role.objects.create(
        organization=org, created_by=maker, created_at=at, updated_by=maker, updated_at=at, **values
    )


def session(person: User, org: Organization) -> str:
    """A session token of a person acting in `org`."""
    secret, digest = secrets.make(secrets.SESSION)
    at = clock.read()
    SessionToken.objects.create(
        sha256=digest,
        user=person,
        organization=org,
        created_at=at,
        expires_at=at + dt.timedelta(hours=12),
    )
    return secret


def gpu_model(slug: str = "nvidia-h100-sxm5-80gb", **fields: Any) -> GpuModel:
    """A GPU model with prices at every tier, made once."""
    values = {
        "name": "NVIDIA H100 SXM5 80 GB",
        "manufacturer": "NVIDIA",
        "vram_gb": 80,
        "form_factor": "SXM5",
        **fields,
    }
    model, new = GpuModel.objects.get_or_create(slug=slug, defaults=values)
    if new:
        for tier, cents in (("community", 200), ("verified", 250), ("spot", 90)):
            GpuPrice.objects.create(
                gpu_model=model, tier=tier, cents_per_gpu_hour=cents, updated_at=clock.read()
            )
    return model


def address(number: int) -> str:
    """The PCI address of the node's unit `number`, from 0."""
    return f"0000:{0x10 + number:02x}:00.0"


def unit_report(
    number: int, *, gpus: int = 1, model: str = "nvidia-h100-sxm5-80gb", **fields: Any
) -> dict[str, Any]:
    """What an agent says of one healthy unit."""
    bus = 0x10 + number
    return {
        "address": address(number),
        "allocClass": "vfio-group",
        "sellable": True,
        "gpus": [
            {"address": f"0000:{bus:02x}:00.{function}", "model": model, "healthy": True}
            for function in range(gpus)
        ],
        **fields,
    }


def report(units: int | list[dict[str, Any]], *, sequence: int, **fields: Any) -> dict[str, Any]:
    """An inventory of `units`, validated."""
    listed = [unit_report(number) for number in range(units)] if isinstance(units, int) else units
    return {
        "sequence": sequence,
        "complete": True,
        "runtime": "qemu",
        "host": {
            "cpuCores": 128,
            "ramMb": 1024 * 1024,
            "diskTotalGb": 16000,
            "diskFreeGb": 16000,
            "tdx": False,
        },
        "units": listed,
        **fields,
    }


def inventory(node: Node, units: int | list[dict[str, Any]], **fields: Any) -> InventoryResult:
    """Have the node report `units` next."""
    node.refresh_from_db()
    sequence = fields.pop("sequence", node.inventory_sequence + 1)
    taken = apply_inventory(
        node.pk, report(units, sequence=sequence, **fields), actor=Actor(f"node:{node.pk}")
    )
    node.refresh_from_db()
    return taken


def node(owner: Organization, units: int | list[dict[str, Any]] = 8, **fields: Any) -> Node:
    """An online VM node of `owner` that reported `units`."""
    gpu_model()
    made = Node.objects.create(organization=owner, hostname=f"node-{next(_numbers)}", **fields)
    NodeHeartbeat.objects.create(node=made, seen_at=Now())
    inventory(made, units)
    return made


def online(*nodes: Node) -> None:
    """Let the nodes be heard from now, after the clock was moved."""
    NodeHeartbeat.objects.filter(node__in=nodes).update(seen_at=Now())


def credential(made: Node) -> str:
    """The secret of a new credential of the node's agent."""
    secret, digest = secrets.make(secrets.NODE_CREDENTIAL)
    NodeCredential.objects.create(node=made, digest=digest, prefix=secret[:10])
    return secret


def units(made: Node) -> list[str]:
    """The addresses of the node's present units."""
    return list(
        GpuUnit.objects.present().filter(node=made).order_by("address").values_list("address", flat=True)
    )


def ssh_key(org: Organization) -> SshKey:
    """An SSH key of `org`."""
    number = next(_numbers)
    return SshKey.objects.create(
        organization=org,
        name=f"key-{number}",
        public_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1yNLxDGnQ1uSVnUXuIcVwVCUwrjnKoNcxuFHM0dA4n",
        fingerprint=f"SHA256:{number}",
        created_by="operator",
        created_at=clock.read(),
    )
