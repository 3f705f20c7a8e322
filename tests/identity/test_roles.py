"""An organization's own roles, by the published client, and what they do to whoever holds them."""

import json
import threading
from types import ModuleType
from typing import Any

import httpx
import pytest
from django.db import IntegrityError, connection, connections, transaction
from django.test import Client

from openrelay.audit.actor import SYSTEM
from openrelay.audit.models import AuditEvent
from openrelay.core.errors import Conflict, Forbidden, Invalid
from openrelay.core.ids import new_id
from openrelay.identity.models import Membership, Role
from openrelay.identity.services.callers import authenticate, forget_keys
from openrelay.identity.services.memberships import change_role
from openrelay.identity.services.roles import delete_role
from tests.identity.factories import Person, bearer, make_key, make_org, make_person, sign_in
from tests.identity.test_access_over_http import call, models
from tests.support.web import Server

pytestmark = pytest.mark.django_db

HERE = ["127.0.0.0/8"]
ELSEWHERE = ["192.0.2.0/24"]


def make(sdk: ModuleType, person: Person, **fields: Any) -> Any:
    body = {"name": "Night shift", "permissions": ["compute.operate", "audit.read"], **fields}
    return call(sdk, "roles.create_role", person.token, body=models(sdk).CreateRoleRequest.from_dict(body))


def edit(sdk: ModuleType, person: Person, role_id: str, **fields: Any) -> Any:
    body = models(sdk).UpdateRoleRequest.from_dict(fields)
    return call(sdk, "roles.update_role", person.token, role_id, body=body)


def give(person: Person, role: str) -> None:
    change_role(actor=SYSTEM, user_id=person.user.id, organization_id=person.organization.id, role=role)


def holder(owner: Person, role: str) -> Person:
    """A new member of the owner's organization with that role."""
    return make_person(owner.organization, role=role)


def check(sdk: ModuleType, asker: Person, kind: str, principal: Any, action: str, **fields: Any) -> Any:
    body = {"principalType": kind, "principalId": str(principal), "action": action, **fields}
    return call(sdk, "access.check_access", asker.token, body=models(sdk).AccessCheckRequest.from_dict(body))


def test_a_role_from_making_to_deleting(sdk: ModuleType) -> None:
    owner = make_person()
    made = make(
        sdk,
        owner,
        description="Restarts",
        ipRanges=["::ffff:127.0.0.0/104", "127.0.0.0/8"],
        models=["m"],
        endpoints=["e"],
    )
    assert (made.builtin, made.name, made.description, made.member_count) == (
        False, "Night shift", "Restarts", 0,
    )  # fmt: skip
    assert made.permissions == ["audit.read", "compute.operate"]
    assert (made.ip_ranges, made.models, made.endpoints) == (HERE, ["m"], ["e"])
    assert made.created_by == made.updated_by == str(owner.user.id)
    assert made.created_at == made.updated_at
    assert 'Action::"compute.operate"' in made.cedar
    assert "isInRange" in made.cedar
    assert set(made.additional_properties) == set()

    changed = edit(sdk, owner, made.id, name="Day shift", ipRanges=[], description="")
    assert (changed.name, changed.permissions, changed.models) == ("Day shift", made.permissions, ["m"])
    assert {"ipRanges", "description"} & changed.to_dict().keys() == set()
    assert changed.updated_at > made.updated_at
    assert call(sdk, "roles.get_role", owner.token, made.id).to_dict() == changed.to_dict()
    # What is so already leaves no trace.
    assert edit(sdk, owner, made.id, name="Day shift").updated_at == changed.updated_at

    listed = call(sdk, "roles.list_roles", owner.token)
    assert [role.id for role in listed] == ["owner", "admin", "member", "billing", "viewer", made.id]
    assert [role.member_count for role in listed] == [1, 0, 0, 0, 0, 0]
    assert [role.builtin for role in listed] == [True] * 5 + [False]

    call(sdk, "roles.delete_role", owner.token, made.id)
    assert call(sdk, "roles.get_role", owner.token, made.id).code == "NOT_FOUND"
    events = AuditEvent.objects.filter(target_type="role").order_by("created_at", "id")
    assert [(event.event, event.target_id) for event in events] == [
        ("role.created", made.id), ("role.updated", made.id), ("role.deleted", made.id),
    ]  # fmt: skip
    assert events[1].before["name"] == "Night shift"
    assert events[1].after["name"] == "Day shift"
    assert events[1].actor == f"user:{owner.user.id}"


def test_members_and_organization(sdk: ModuleType) -> None:
    owner = make_person(make_org(is_provider=True, billing_email="pay@example.com"))
    role = make(sdk, owner)
    other = holder(owner, role.id)
    org = owner.organization
    first, second = call(sdk, "organizations.list_org_members", owner.token, str(org.id))
    assert (first.user_id, first.role, first.role_name) == (str(owner.user.id), "owner", "Owner")
    assert (second.user_id, second.role, second.role_name) == (str(other.user.id), role.id, "Night shift")
    assert (second.email, second.full_name, second.status) == (other.user.email, "Ada Example", "active")
    assert second.joined_at == second.invited_at
    shown = call(sdk, "organizations.get_org", owner.token, str(org.id))
    assert (shown.id, shown.name, shown.slug, shown.short_id) == (
        str(org.id),
        org.name,
        org.slug,
        org.short_id,
    )
    assert (shown.billing_email, shown.plan, shown.account_status, shown.is_provider) == (
        "pay@example.com", "standard", "active", True,
    )  # fmt: skip
    # The holder's role gives neither.
    for operation in ("organizations.get_org", "organizations.list_org_members"):
        assert call(sdk, operation, other.token, str(org.id)).code == "FORBIDDEN"
    assert call(sdk, "organizations.get_org", owner.token, str(new_id())).code == "FORBIDDEN"


def test_a_role_in_use_stays(sdk: ModuleType) -> None:
    owner = make_person()
    role = make(sdk, owner)
    other = holder(owner, role.id)
    assert call(sdk, "roles.get_role", owner.token, role.id).member_count == 1
    refused = call(sdk, "roles.delete_role", owner.token, role.id)
    assert (refused.code, refused.members) == ("ROLE_IN_USE", [str(other.user.id)])
    assert "1 person has it" in refused.error
    give(other, "viewer")
    call(sdk, "roles.delete_role", owner.token, role.id)
    assert not Role.objects.exists()


def test_built_in_roles_are_shown_and_stay(sdk: ModuleType) -> None:
    owner = make_person()
    viewer = call(sdk, "roles.get_role", owner.token, "viewer")
    assert (viewer.builtin, viewer.name, viewer.member_count) == (True, "Viewer", 0)
    assert "compute.read" in viewer.permissions
    for refused in (
        edit(sdk, owner, "viewer", name="Watcher"),
        call(sdk, "roles.delete_role", owner.token, "viewer"),
    ):
        assert (refused.code, refused.denied_by) == ("FORBIDDEN", "platform")
    assert "built-in" in make(sdk, owner, name="viewer").error
    assert "built-in" in make(sdk, owner, name=" OWNER ").error


def test_only_operators_roles_manage_reservations(sdk: ModuleType) -> None:
    refused = make(sdk, make_person(), permissions=["reservation.manage"])
    assert (refused.code, refused.permission, refused.denied_by) == (
        "ESCALATION_REFUSED", "reservation.manage", "platform",
    )  # fmt: skip
    operator = make_person(make_org(is_platform_ops=True))
    role = make(sdk, operator, permissions=["reservation.manage"])
    me = call(sdk, "account.whoami", holder(operator, role.id).token)
    assert "reservation.manage" in me.permissions
    assert me.platform_admin is True
    assert "reservation.manage" in call(sdk, "roles.get_role", operator.token, "owner").permissions


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name must be at most 100"),
        ({"name": None}, "name"),
        ({"permissions": []}, "permissions must not be empty"),
        ({"permissions": ["compute.everything"]}, "compute.everything"),
        ({"permissions": "compute.read"}, "permissions must be a list"),
        ({"ipRanges": ["nowhere"]}, "ipRanges[0]"),
        ({"ipRanges": ["10.0.0.0/8"] * 21}, "at most 20"),
        ({"colour": "blue"}, "colour"),
    ],
)
def test_what_a_role_cannot_be(client: Client, fields: dict[str, Any], says: str) -> None:
    person = make_person()
    body = json.dumps({"name": "r", "permissions": ["compute.read"], **fields})
    answer = client.post("/v1/roles", body, "application/json", **bearer(person.token))
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
    assert says in answer.json()["error"]
    assert not Role.objects.exists()


def test_a_name_is_taken_once_in_an_organization_whatever_its_case(sdk: ModuleType) -> None:
    owner = make_person()
    make(sdk, owner)
    other = make(sdk, owner, name="Other")
    assert make(sdk, owner, name="night SHIFT").code == "INVALID_STATE"
    assert edit(sdk, owner, other.id, name="NIGHT shift").code == "INVALID_STATE"
    assert make(sdk, make_person()).name == "Night shift"
    assert Role.objects.count() == 3


def test_a_change_of_nothing_is_refused(sdk: ModuleType) -> None:
    owner = make_person()
    assert edit(sdk, owner, make(sdk, owner).id).code == "VALIDATION_ERROR"


def test_changing_roles_takes_a_session_and_the_action(sdk: ModuleType) -> None:
    owner = make_person()
    role = make(sdk, owner)
    _, key = make_key(owner.organization)
    viewer = holder(owner, "viewer")
    for secret, denied_by in ((key, "platform"), (viewer.token, "role")):
        body = models(sdk).CreateRoleRequest(name="r", permissions=["compute.read"])
        change = models(sdk).UpdateRoleRequest(name="r")
        for refused in (
            call(sdk, "roles.create_role", secret, body=body),
            call(sdk, "roles.update_role", secret, role.id, body=change),
            call(sdk, "roles.delete_role", secret, role.id),
        ):
            assert (refused.code, refused.permission, refused.denied_by) == (
                "FORBIDDEN", "role.manage", denied_by,
            )  # fmt: skip
        assert call(sdk, "roles.get_role", secret, role.id).name == "Night shift"
    assert Role.objects.count() == 1


def test_anothers_role_is_not_there(sdk: ModuleType) -> None:
    owner, other = make_person(), make_person()
    theirs = make(sdk, other)
    for role_id in (theirs.id, str(new_id()), "x"):
        for refused in (
            call(sdk, "roles.get_role", owner.token, role_id),
            edit(sdk, owner, role_id, name="Mine"),
            call(sdk, "roles.delete_role", owner.token, role_id),
        ):
            assert (refused.code, refused.error) == (
                "NOT_FOUND", "There is no such thing here, or it is not yours to see.",
            )  # fmt: skip
    with pytest.raises(Invalid, match="role must be one of"):
        give(owner, theirs.id)


def test_the_database_keeps_a_membership_to_its_own_organizations_roles(sdk: ModuleType) -> None:
    owner, other = make_person(), make_person()
    theirs = make(sdk, other)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    with pytest.raises(IntegrityError), transaction.atomic():
        Membership.objects.filter(user=owner.user).update(role="", custom_role=theirs.id)
    for columns in ({"role": ""}, {"custom_role": theirs.id}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Membership.objects.filter(user=other.user).update(**columns)


# What a role does


def test_a_holder_may_do_what_the_role_says_and_no_more(sdk: ModuleType) -> None:
    owner = make_person()
    role = make(sdk, owner)
    person = holder(owner, role.id)
    me = call(sdk, "account.whoami", person.token)
    assert (me.role, me.role_name) == (role.id, "Night shift")
    assert me.permissions == ["audit.read", "compute.operate", "compute.read", "self.read"]
    assert (me.available_orgs[0].role, me.available_orgs[0].role_name) == (role.id, "Night shift")
    assert me.available_orgs[0].permissions == me.permissions
    assert call(sdk, "account.get_me", person.token).organizations[0].role_name == "Night shift"
    assert call(sdk, "audit_events.list_audit_events", person.token).items
    refused = call(sdk, "roles.list_roles", person.token)
    assert (refused.code, refused.permission, refused.denied_by) == ("FORBIDDEN", "role.read", "role")
    # A change of the role counts at once.
    edit(sdk, owner, role.id, permissions=["role.read"])
    assert call(sdk, "roles.list_roles", person.token)[-1].id == role.id
    assert call(sdk, "audit_events.list_audit_events", person.token).code == "FORBIDDEN"


def test_effective_access_and_checks_speak_of_the_role(sdk: ModuleType) -> None:
    owner = make_person()
    role = make(sdk, owner, ipRanges=HERE, models=["m", "n"], endpoints=["e"])
    person = holder(owner, role.id)
    found = call(
        sdk, "access.get_effective_access", owner.token,
        principal_type="member", principal_id=str(person.user.id),
    )  # fmt: skip
    assert (found.role_id, found.role_name, found.active) == (role.id, "Night shift", True)
    assert found.permissions == ["compute.read", "compute.operate", "audit.read", "self.read"]
    assert (found.all_models, found.models) == (False, ["m", "n"])
    assert found.restrictions.to_dict() == {"ipRanges": HERE, "endpoints": ["e"], "models": ["m", "n"]}
    assert call(sdk, "account.whoami", person.token).restrictions.ip_ranges == HERE

    def judged(action: str, **fields: Any) -> Any:
        return check(sdk, owner, "member", person.user.id, action, **fields)

    allowed = judged("compute.operate", model="m", endpointId="e")
    assert (allowed.allow, allowed.policies[0].id, allowed.policies[0].source) == (
        True,
        role.id,
        "custom_role",
    )
    for refused in (
        judged("compute.create"),
        judged("compute.operate", sourceIp="203.0.113.9"),
        judged("compute.operate", model="other"),
        judged("compute.operate", endpointId="other"),
    ):
        assert (refused.allow, refused.denied_by) == (False, "role")
        assert refused.policies[0].source == "custom_role"
    assert judged("reservation.manage").denied_by == "platform"


def test_a_role_serves_from_its_addresses_alone(sdk: ModuleType, client: Client) -> None:
    owner = make_person()
    role = make(sdk, owner, ipRanges=ELSEWHERE)
    person = holder(owner, role.id)
    refused = call(sdk, "account.whoami", person.token)
    assert (refused.code, refused.denied_by) == ("FORBIDDEN", "role")
    assert "may not be used from this address" in refused.error
    # Another organization of the same person knows nothing of it, unless it is entered from here.
    other = make_person()
    Membership.objects.create(
        user=person.user, organization=other.organization, role="viewer",
        invited_at=person.user.created_at, joined_at=person.user.created_at,
    )  # fmt: skip
    there = sign_in(person.user, other.organization)
    assert call(sdk, "account.whoami", there).role == "viewer"
    path = "/v1/orgs/{}/vms"
    assert client.get(path.format(other.organization.id), **bearer(there)).status_code == 200
    entered = client.get(path.format(owner.organization.id), **bearer(there))
    assert (entered.status_code, entered.json()["deniedBy"]) == (403, "role")
    edit(sdk, owner, role.id, ipRanges=HERE)
    assert call(sdk, "account.whoami", person.token).role == role.id


def test_a_key_stays_within_its_makers_role_of_now(sdk: ModuleType) -> None:
    owner = make_person()
    role = make(sdk, owner, permissions=["apikey.write", "compute.write", "audit.read"], models=["m"])
    person = holder(owner, role.id)
    org = str(person.organization.id)

    def key(**fields: Any) -> Any:
        body = models(sdk).CreateApiKeyRequest.from_dict({"name": "k", **fields})
        return call(sdk, "api_keys.create_org_api_key", person.token, org, body=body)

    refused = key(permissions=["provider.read"])
    assert (refused.code, refused.permission, refused.denied_by) == (
        "ESCALATION_REFUSED", "provider.read", "role",
    )  # fmt: skip
    made = key(permissions=["compute.write"], restrictions={"models": ["m", "n"]})
    assert "compute.create" in call(sdk, "account.whoami", made.key).permissions
    found = call(
        sdk, "access.get_effective_access", owner.token, principal_type="api_key", principal_id=made.id
    )
    assert (found.role_id, found.role_name, found.models) == (role.id, "Night shift", ["m"])

    edit(sdk, owner, role.id, permissions=["compute.read"])
    decision = check(sdk, owner, "api_key", made.id, "compute.create")
    assert (decision.allow, decision.denied_by, decision.policies[0].source) == (False, "role", "custom_role")
    edit(sdk, owner, role.id, ipRanges=ELSEWHERE)
    forget_keys()  # a change that commits does so itself
    with pytest.raises(Forbidden, match="may not be used from this address"):
        authenticate(made.key, source_ip="127.0.0.1", request_id="")
    assert authenticate(made.key, source_ip="192.0.2.7", request_id="").may("compute.read")


# A caller cannot grant permissions that the caller does not have


def test_nobody_gives_what_they_do_not_hold(sdk: ModuleType) -> None:
    owner = make_person()
    strong = make(sdk, owner, name="Strong")
    limited = make(sdk, owner, name="Limited", permissions=["role.manage", "compute.read", "audit.read"])
    person = holder(owner, limited.id)
    for refused in (
        make(sdk, person, permissions=["compute.write"]),
        edit(sdk, person, limited.id, permissions=["role.manage", "compute.write"]),
        # Nor may they widen where a stronger role than theirs may be used.
        edit(sdk, person, strong.id, ipRanges=[]),
    ):
        assert refused.code == "ESCALATION_REFUSED"
        assert refused.denied_by == "role"
    assert refused.permission == "compute.operate"
    assert make(sdk, person, permissions=["compute.read"]).permissions == ["compute.read"]
    # Taking away is not giving.
    assert edit(sdk, person, strong.id, permissions=["audit.read"]).permissions == ["audit.read"]


def test_a_role_stays_within_the_conditions_of_its_makers_role(sdk: ModuleType) -> None:
    owner = make_person()
    conditions = {"ipRanges": ["127.0.0.0/8", "2001:db8::/32"], "models": ["m", "n"], "endpoints": ["e"]}
    limited = make(sdk, owner, permissions=["role.manage"], **conditions)
    person = holder(owner, limited.id)
    within = {"ipRanges": ["127.0.0.0/16", "2001:db8::/48"], "models": ["n"], "endpoints": ["e"]}
    assert make(sdk, person, name="Within", permissions=["role.read"], **within).models == ["n"]
    for wider in (
        {**within, "ipRanges": []},
        {**within, "ipRanges": ["126.0.0.0/7"]},
        {**within, "ipRanges": ["127.0.0.0/16", "10.0.0.0/8"]},
        {**within, "models": []},
        {**within, "models": ["n", "x"]},
        {**within, "endpoints": ["f"]},
    ):
        refused = make(sdk, person, name="Wider", permissions=["role.read"], **wider)
        assert (refused.code, refused.permission) == ("ESCALATION_REFUSED", "role.manage")
    assert edit(sdk, person, limited.id, models=[]).code == "ESCALATION_REFUSED"


def test_a_role_that_names_a_lost_permission_says_so_and_gives_the_rest(sdk: ModuleType) -> None:
    owner = make_person()
    role = make(sdk, owner)
    Role.objects.filter(pk=role.id).update(permissions=["compute.read", "gone.write"])
    shown = edit(sdk, owner, role.id, description="still")
    assert "gone.write" in shown.stale
    assert call(sdk, "account.whoami", holder(owner, role.id).token).permissions == [
        "compute.read", "self.read",
    ]  # fmt: skip
    assert "gone.write" in edit(sdk, owner, role.id, permissions=["audit.read", "gone.write"]).error
    assert edit(sdk, owner, role.id, permissions=["audit.read"]).to_dict().get("stale") is None


@pytest.mark.django_db(transaction=True)
def test_a_role_is_given_or_deleted_never_both(sdk: ModuleType) -> None:
    owner = make_person()
    caller = authenticate(owner.token, source_ip="127.0.0.1", request_id="")
    people = [holder(owner, "viewer") for _ in range(4)]
    for person in people:
        role = make(sdk, owner, name=f"Role of {person.user.email}"[:100])
        outcomes: dict[str, object] = {}
        barrier = threading.Barrier(2)

        def attempt(name: str, act: Any, outcomes: Any = outcomes, barrier: Any = barrier) -> None:
            barrier.wait(60)
            try:
                act()
                outcomes[name] = True
            except (Conflict, Invalid) as refusal:
                outcomes[name] = refusal.code
            finally:
                connections.close_all()

        threads = [
            threading.Thread(target=attempt, args=("give", lambda p=person, r=role: give(p, r.id))),
            threading.Thread(
                target=attempt, args=("delete", lambda r=role: delete_role(caller=caller, role_id=r.id))
            ),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert outcomes in (
            {"give": True, "delete": "ROLE_IN_USE"},
            {"give": "VALIDATION_ERROR", "delete": True},
        )
        held = Membership.objects.get(user=person.user).role_id
        assert (held == role.id) == Role.objects.filter(pk=role.id).exists() == (outcomes["give"] is True)


def test_by_the_client_over_the_wire(server: Server, sdk: ModuleType) -> None:
    owner = make_person()
    viewer = make_person(owner.organization, role="viewer")

    def over(operation: str, token: str, *args: Any, **kwargs: Any) -> Any:
        client = sdk.AuthenticatedClient(base_url=server.url, token=token, raise_on_unexpected_status=True)
        with client:
            module = __import__(f"{sdk.__name__}.api.{operation}", fromlist=["x"])
            return module.sync_detailed(*args, client=client, **kwargs).parsed

    body = models(sdk).CreateRoleRequest(name="Wire", permissions=["audit.read"], ip_ranges=HERE)
    role = over("roles.create_role", owner.token, body=body)
    assert role.permissions == ["audit.read"]
    give(viewer, role.id)
    assert over("account.whoami", viewer.token).role_name == "Wire"
    assert over("roles.list_roles", viewer.token).code == "FORBIDDEN"
    assert over("audit_events.list_audit_events", viewer.token).items
    members = over("organizations.list_org_members", owner.token, str(owner.organization.id))
    assert [member.role_name for member in members] == ["Owner", "Wire"]
    assert over("organizations.get_org", owner.token, str(owner.organization.id)).plan == "standard"
    change = models(sdk).UpdateRoleRequest(ip_ranges=ELSEWHERE)
    assert over("roles.update_role", owner.token, role.id, body=change).ip_ranges == ELSEWHERE
    assert over("account.whoami", viewer.token).denied_by == "role"
    assert over("roles.delete_role", owner.token, role.id).code == "ROLE_IN_USE"
    give(viewer, "viewer")
    assert over("roles.get_role", viewer.token, role.id).member_count == 0
    deleted = httpx.delete(
        f"{server.url}/v1/roles/{role.id}", headers={"Authorization": f"Bearer {owner.token}"}
    )
    assert (deleted.status_code, deleted.content) == (204, b"")
