"""Attach SSH keys to workloads, detach them, and delete keys.

Detaching or deleting a key first locks the organization's row. Two concurrent requests run one after the
other, so no live workload loses its last key.
"""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from compute.domain import states
from compute.models import SshKey, Workload, WorkloadSshKey
from compute.services.access.ssh_keys import blocked_names
from compute.services.lifecycle.workload_lock import find
from openrelay.audit.services.record import record
from openrelay.core.errors import Conflict, Invalid, NotFound
from openrelay.identity.caller import Caller
from openrelay.identity.models import Organization
from openrelay.identity.services.callers import reread

_NO_KEY = "There is no such SSH key in your organization."


def attached_keys(workload: Workload) -> list[tuple[SshKey, bool]]:
    """List every key of the workload's organization, newest first, and whether it is attached."""
    opening = set(WorkloadSshKey.objects.filter(workload=workload).values_list("ssh_key_id", flat=True))
    keys = SshKey.objects.of(workload.organization_id).order_by("-created_at", "-id")
    return [(key, key.pk in opening) for key in keys]


def attach(*, caller: Caller, workload_id: UUID, ssh_key_id: UUID | None) -> None:
    """Attach a key of the organization to the workload. Idempotent.

    Raises NotFound for a workload or key of another organization, Invalid for a terminated workload.
    """
    with transaction.atomic():
        caller, at = reread(caller)
        caller.require("compute.operate")
        workload = find(caller, workload_id)
        if workload.status == states.TERMINATED:
            raise Invalid(f"{workload.name} is terminated. Its SSH keys cannot be changed.")
        key = _locked_key(caller, ssh_key_id)
        made = WorkloadSshKey.objects.filter(workload=workload, ssh_key=key).exists()
        if made:
            return
        WorkloadSshKey.objects.bulk_create(
            [WorkloadSshKey(workload=workload, ssh_key=key)], ignore_conflicts=True
        )
        _note(caller, workload, key, "vm.ssh_key_attached", at)


def detach(*, caller: Caller, workload_id: UUID, ssh_key_id: UUID | None) -> None:
    """Detach a key of the organization from the workload. Idempotent.

    Raises NotFound for a workload or key of another organization, Invalid for the workload's only key.
    """
    with transaction.atomic():
        caller, at = reread(caller)
        caller.require("compute.operate")
        workload = find(caller, workload_id)
        _lock_organization(caller)
        key = SshKey.objects.of(caller.organization_id).filter(pk=ssh_key_id).first()
        if key is None:
            raise NotFound(_NO_KEY)
        opening = set(WorkloadSshKey.objects.filter(workload=workload).values_list("ssh_key_id", flat=True))
        if key.pk not in opening:
            return
        if len(opening) == 1:
            raise Invalid(f"{key.name} is the only key that opens {workload.name}. Attach another one first.")
        WorkloadSshKey.objects.filter(workload=workload, ssh_key=key).delete()
        _note(caller, workload, key, "vm.ssh_key_detached", at)


def delete_key(*, caller: Caller, ssh_key_id: UUID | None) -> None:
    """Delete a key of the organization, and detach it from every workload.

    Raises NotFound for a key of another organization; Conflict KEY_IN_USE with `blockingVms`, the names of
    the live workloads that have no other key.
    """
    with transaction.atomic():
        caller, at = reread(caller)
        caller.require("sshkey.write")
        _lock_organization(caller)
        key = _locked_key(caller, ssh_key_id, to_delete=True)
        if names := blocked_names([key]).get(key.pk):
            raise Conflict(
                f"{key.name} is the only key of {', '.join(names[:5])}. Attach another one there first.",
                code="KEY_IN_USE",
                blockingVms=names,
            )
        rows = WorkloadSshKey.objects.filter(ssh_key=key).exclude(workload__status=states.TERMINATED)
        opened = list(rows.order_by("workload_id").values_list("workload_id", flat=True))
        WorkloadSshKey.objects.filter(ssh_key=key).delete()
        key_id = key.pk
        key.delete()
        record(
            caller.actor,
            "ssh_key.deleted",
            target_type="ssh_key",
            target_id=key_id,
            org_id=caller.organization_id,
            before={
                "name": key.name,
                "fingerprint": key.fingerprint,
                "vmIds": [str(pk) for pk in opened],
            },
            at=at,
        )


def _lock_organization(caller: Caller) -> None:
    """Lock the organization's row, so that concurrent removals of its keys run one after the other.

    Locks on the keys would not be enough. Two transactions that each delete one of a workload's two keys lock
    no common row, and each would still see the other key attached.
    """
    list(Organization.objects.select_for_update(no_key=True).filter(pk=caller.organization_id).values("pk"))


def _locked_key(caller: Caller, ssh_key_id: UUID | None, *, to_delete: bool = False) -> SshKey:
    rows = SshKey.objects.of(caller.organization_id).select_for_update(no_key=not to_delete)
    key: SshKey | None = rows.filter(pk=ssh_key_id).first()
    if key is None:
        raise NotFound(_NO_KEY)
    return key


def _note(caller: Caller, workload: Workload, key: SshKey, event: str, at: datetime) -> None:
    record(
        caller.actor,
        event,
        target_type="vm",
        target_id=workload.pk,
        org_id=workload.organization_id,
        after={"sshKeyId": str(key.pk), "name": key.name},
        at=at,
    )
