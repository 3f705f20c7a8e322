"""The demo fleet: a small cloud to try everything on, made by the services that make a real one."""

import base64
import json
import os
import secrets as random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compute.models import SshKey
from compute.services.access.ssh_keys import create_key
from nodes.models import Node, NodeCredential
from nodes.services.enrolment import issue_credential
from openrelay.api.parser import parse_object
from openrelay.audit.services.record import OPERATOR
from openrelay.identity import secrets
from openrelay.identity.caller import Caller
from openrelay.identity.models import ApiKey, Organization, User
from openrelay.identity.permissions import AREAS, PLATFORM_ACTIONS
from openrelay.identity.services.callers import authenticate
from openrelay.identity.services.keys import create_server_key
from openrelay.identity.services.memberships import add_member
from openrelay.identity.services.organizations import create_organization
from openrelay.identity.services.sessions import mint_session
from openrelay.identity.services.users import create_user, set_password
from reservations.services.fleet_loading import load

FLEET = Path(__file__).resolve().parent.parent.parent / "openrelay" / "demo" / "fleet.json"


@dataclass(frozen=True, slots=True)
class Party:
    """One organization of the demo, and what it has: a person, a session, an SSH key."""

    actor: str
    slug: str
    name: str
    person: bool = False
    ssh_key: bool = False


PARTIES = (
    Party("operator", "openrelay-ops", "OpenRelay Operations", person=True),
    Party("provider", "northwind-compute", "Northwind Compute", person=True),
    Party("managing", "capacity-desk", "Capacity Desk"),
    Party("tenant", "helios-labs", "Helios Labs", person=True, ssh_key=True),
    Party("buyer", "thrifty-ml", "Thrifty ML", ssh_key=True),
    Party("outsider", "elsewhere", "Elsewhere Inc."),
)


def seed(home: Path, base_url: str) -> dict[str, Any]:
    """Make the demo where it is missing, and write `demo.json` and `agents.json` into `home`, mode 0600.

    Repeatable: what stands stays, keys that still work are kept, sessions are new (they live 12 hours). Nodes
    that exist are left as their agents report them. Returns what `demo.json` holds.
    """
    before = _read(home / "demo.json")
    orgs = {party.actor: _organization(party) for party in PARTIES}
    fleet = parse_object(FLEET.read_bytes())
    loaded = load(fleet, actor=OPERATOR, update=False)

    keys = {party.actor: _key(party, orgs[party.actor], before) for party in PARTIES}
    people = {party.actor: _person(party, orgs[party.actor], before) for party in PARTIES if party.person}
    sessions = {
        actor: mint_session(actor=OPERATOR, user_id=user.pk, organization_id=orgs[actor].pk)[1]
        for actor, (user, _) in people.items()
    }
    ssh_keys = {party.actor: str(_ssh_key(keys[party.actor]).pk) for party in PARTIES if party.ssh_key}
    operator, password = people["operator"]
    demo = {
        "baseUrl": base_url,
        "console": {"url": f"{base_url}/console/", "email": operator.email, "password": password},
        "orgs": {**{actor: str(org.pk) for actor, org in orgs.items()}, "platform": str(orgs["operator"].pk)},
        "keys": keys,
        "sessions": sessions,
        "sshKeys": ssh_keys,
        "nodes": {
            "vm": [str(node.pk) for node in loaded.nodes if node.runtime == Node.Runtime.QEMU],
            "pod": [str(node.pk) for node in loaded.nodes if node.runtime == Node.Runtime.RUNC],
        },
    }
    _write(home / "agents.json", _agents(home, fleet, loaded.nodes, base_url))
    _write(home / "demo.json", demo)
    return demo


def _organization(party: Party) -> Organization:
    found: Organization | None = Organization.objects.filter(slug=party.slug).first()
    if found is None and party.actor == "operator":
        found = Organization.objects.filter(is_platform_ops=True).first()
    return found or create_organization(
        actor=OPERATOR,
        name=party.name,
        slug=party.slug,
        is_platform_ops=party.actor == "operator",
        is_provider=party.actor == "provider",
    )


def _key(party: Party, org: Organization, before: dict[str, Any]) -> str:
    """The secret of the party's key: the one it had, while that still works."""
    had: str = before.get("keys", {}).get(party.actor, "")
    alive = ApiKey.objects.filter(sha256=secrets.digest(had), organization=org, revoked_at=None)
    if had and alive.exists():
        return had
    permissions = [
        f"{area.id}.{level.name}"
        for area in AREAS
        for level in area.levels
        if org.is_platform_ops or not PLATFORM_ACTIONS.intersection(level.adds)
    ]
    _, secret = create_server_key(
        actor=OPERATOR, organization_id=org.pk, name=f"demo {party.actor}", permissions=permissions
    )
    return secret


def _person(party: Party, org: Organization, before: dict[str, Any]) -> tuple[User, str]:
    """The party's person, and the password they sign in with, kept while it works."""
    email = f"{party.actor}@demo.openrelay.example"
    console = before.get("console", {})
    had: str = console.get("password", "") if console.get("email") == email else ""
    user: User | None = User.objects.filter(email=email).first()
    if user is None:
        password = had or random.token_urlsafe(12)
        user = create_user(actor=OPERATOR, email=email, password=password, full_name=f"Demo {party.actor}")
        add_member(actor=OPERATOR, user_id=user.pk, organization_id=org.pk, role="owner")
        return user, password
    if had and user.check_password(had):
        return user, had
    password = random.token_urlsafe(12)
    set_password(actor=OPERATOR, user_id=user.pk, password=password)
    return user, password


def _ssh_key(api_key: str) -> SshKey:
    """The organization's SSH key. Nobody has its private half: the demo's guests are simulated."""
    caller: Caller = authenticate(api_key, source_ip="", request_id="")
    found: SshKey | None = SshKey.objects.of(caller.organization_id).first()
    if found is not None:
        return found
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (b"ssh-ed25519", os.urandom(32)))
    line = f"ssh-ed25519 {base64.b64encode(blob).decode()} demo"
    return create_key(caller=caller, name="demo", public_key=line)


def _agents(home: Path, fleet: dict[str, Any], nodes: list[Node], base_url: str) -> list[dict[str, Any]]:
    """What the simulated agents need: one entry a node, with the credential it had while that still works."""
    had = {entry["nodeId"]: entry for entry in _read(home / "agents.json", [])}
    entries = []
    for entry, node in zip(fleet["nodes"], nodes, strict=True):
        earlier = had.get(str(node.pk), {})
        credential = earlier.get("credential", "")
        live = NodeCredential.objects.filter(digest=secrets.digest(credential), node=node, revoked_at=None)
        if not (credential and live.exists()):
            credential = issue_credential(actor=OPERATOR, node=node)
        entries.append(
            {
                "nodeId": str(node.pk),
                "hostname": node.hostname,
                "baseUrl": base_url,
                "credential": credential,
                # An inventory that was edited here is what the machine has now.
                "inventory": earlier.get("inventory", entry["inventory"]),
            }
        )
    return entries


def _read(path: Path, default: Any = None) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {} if default is None else default


def _write(path: Path, content: Any) -> None:
    """Write `content` as JSON for its owner alone, in one step: a reader never sees half a file."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
    draft.replace(path)
