"""Validate, store and find SSH keys of an organization."""

import base64
import binascii
import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef
from psycopg.errors import ForeignKeyViolation

from compute.domain import states
from compute.models import SshKey, WorkloadSshKey
from openrelay.audit.services.record import record
from openrelay.core.errors import Conflict, Invalid
from openrelay.core.ids import parse_id
from openrelay.core.rows import Reading, array
from openrelay.identity.caller import Caller
from openrelay.identity.services.callers import reread

# Key types, and how many strings follow the type inside the key.
_TYPES = {
    "ssh-ed25519": 1,
    "ssh-rsa": 2,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "sk-ssh-ed25519@openssh.com": 2,
    "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}
_RSA_LEAST_BITS = 2048
_COMMENT_AT_MOST = 200


def create_key(*, caller: Caller, name: str, public_key: str) -> SshKey:
    """Add a public key to the caller's organization, in its canonical form: type, base64, comment.

    Raises Invalid INVALID_KEY for text that is not one line with a public key, for a key with options, and
    for RSA keys under 2048 bits; Conflict KEY_EXISTS when the organization already has the key.
    """
    canonical, fingerprint = canonical_form(public_key)
    with transaction.atomic():
        caller, at = reread(caller)
        caller.require("sshkey.write")
        key = SshKey(
            organization_id=caller.organization_id,
            name=name,
            public_key=canonical,
            fingerprint=fingerprint,
            created_by=caller.principal,
            created_at=at,
        )
        SshKey.objects.bulk_create([key], ignore_conflicts=True)
        stored: SshKey | None = (
            SshKey.objects.of(caller.organization_id).filter(fingerprint=fingerprint).first()
        )
        if stored is None or stored.pk != key.pk:
            raise Conflict(
                f"Your organization already has this key, as {stored.name if stored else name}. Use it.",
                code="KEY_EXISTS",
            )
        record(
            caller.actor,
            "ssh_key.created",
            target_type="ssh_key",
            target_id=key.pk,
            org_id=caller.organization_id,
            after={"name": name, "fingerprint": fingerprint},
            at=at,
        )
    return key


def keys_query(organization_id: UUID, ids: Sequence[str]) -> Reading:
    """Query which of those ids are keys of the organization; `require_known_keys` checks the result."""
    known = [pk for pk in map(parse_id, ids) if pk is not None]
    return Reading(
        "ARRAY(SELECT id FROM compute_sshkey WHERE organization_id = %s::uuid AND id = ANY(%s::uuid[]))",
        (organization_id, array(known)),
    )


def require_known_keys(ids: Sequence[str], found: Collection[UUID]) -> tuple[UUID, ...]:
    """Check that `keys_query` found every id, and return the keys' ids, each once.

    Raises Invalid (VALIDATION_ERROR) with the ids that are not keys of the organization.
    """
    unknown = [text for text in ids if parse_id(text) not in found]
    if unknown:
        raise Invalid(
            f"sshKeyIds names {', '.join(unknown[:5])}: not a key of your organization. "
            "GET /v1/orgs/{orgId}/ssh-keys lists those that are."
        )
    return tuple(sorted(found))


@contextmanager
def refuse_deleted_keys() -> Iterator[None]:
    """Wrap a transaction that attaches keys which were read before it.

    PostgreSQL checks the foreign key at commit. Raises Invalid (VALIDATION_ERROR) when another transaction
    deleted a key first.
    """
    try:
        yield
    except IntegrityError as error:
        cause = error.__cause__
        if not isinstance(cause, ForeignKeyViolation) or "ssh_key_id" not in str(cause.diag.constraint_name):
            raise
        raise Invalid(
            "sshKeyIds names a key that was deleted just now. List your keys and ask again."
        ) from error


def blocked_names(keys: Sequence[SshKey]) -> dict[UUID, list[str]]:
    """For each of the keys, find the names of the live workloads that have no other key. One query."""
    other = WorkloadSshKey.objects.filter(workload=OuterRef("workload")).exclude(pk=OuterRef("pk"))
    only = (
        WorkloadSshKey.objects.filter(~Exists(other), ssh_key__in=keys)
        .exclude(workload__status=states.TERMINATED)
        .order_by("workload__name")
        .values_list("ssh_key_id", "workload__name")
    )
    names: dict[UUID, list[str]] = {}
    for key_id, name in only:
        names.setdefault(key_id, []).append(name)
    return names


def canonical_form(text: str) -> tuple[str, str]:
    """Return the key in its stored form and its fingerprint (`SHA256:…`). Raises Invalid INVALID_KEY."""
    line = text.strip()
    if "\n" in line or "\r" in line:
        raise _invalid("it has more than one line; send one key at a time")
    kind, _, rest = line.partition(" ")
    if kind not in _TYPES:
        if any(word in _TYPES for word in line.split()):
            raise _invalid("options before the key are not taken; send the key alone")
        raise _invalid(f"it does not begin with a key type that is taken: {', '.join(_TYPES)}")
    blob_text, _, comment = rest.strip().partition(" ")
    try:
        blob = base64.b64decode(blob_text, validate=True)
        parts = list(_strings(blob))
    except (binascii.Error, ValueError):
        raise _invalid("what follows the type is not the base64 of a key") from None
    if len(parts) != 1 + _TYPES[kind] or parts[0] != kind.encode():
        raise _invalid(f"what follows {kind} is not a key of that type")
    _check(kind, parts)
    comment = " ".join(comment.split())[:_COMMENT_AT_MOST]
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    # Encode again: base64 has more than one spelling of the same bytes.
    return f"{kind} {base64.b64encode(blob).decode()} {comment}".rstrip(), f"SHA256:{digest}"


def _check(kind: str, parts: list[bytes]) -> None:
    if kind == "ssh-rsa":
        bits = int.from_bytes(parts[2], "big").bit_length()
        if bits < _RSA_LEAST_BITS:
            raise _invalid(f"an RSA key needs {_RSA_LEAST_BITS} bits or more, and this one has {bits}")
    elif kind.endswith("ed25519") or kind.startswith("sk-ssh-ed25519"):
        if len(parts[1]) != 32:
            raise _invalid("an Ed25519 key has 32 bytes")
    else:
        curve = kind.removeprefix("sk-").removeprefix("ecdsa-sha2-").split("@")[0]
        size = {"nistp256": 65, "nistp384": 97, "nistp521": 133}[curve]
        if parts[1] != curve.encode() or len(parts[2]) != size or parts[2][:1] != b"\x04":
            raise _invalid(f"it is not a point of {curve}")


def _strings(blob: bytes) -> Iterator[bytes]:
    """Split a key into its length-prefixed strings. Raises ValueError when a length is wrong."""
    while blob:
        size = int.from_bytes(blob[:4], "big")
        if len(blob) < 4 + size:
            raise ValueError("cut short")
        yield blob[4 : 4 + size]
        blob = blob[4 + size :]


def _invalid(why: str) -> Invalid:
    return Invalid(f"publicKey is not an SSH public key that can be used: {why}.", code="INVALID_KEY")
