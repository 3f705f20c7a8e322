"""Identity's operations, driven by the published client."""

import importlib
import json
from types import ModuleType
from typing import Any

import pytest
from django.test import Client

from openrelay.audit.actor import SYSTEM
from openrelay.audit.models import AuditEvent
from openrelay.core.ids import new_id
from openrelay.identity.models import ApiKey
from openrelay.identity.permissions import PERMISSIONS
from openrelay.identity.services.memberships import add_member, change_role, remove_member
from tests import factories
from tests.identity.factories import Person, bearer, make_key, make_org, make_person, sdk_client
from tests.support.travel import Clock

pytestmark = pytest.mark.django_db


def call(sdk: ModuleType, operation: str, secret: str, *args: Any, **kwargs: Any) -> Any:
    """What the client makes of one operation ("account.whoami")."""
    module = importlib.import_module(f"{sdk.__name__}.api.{operation}")
    answer = module.sync_detailed(*args, client=sdk_client(sdk, secret), **kwargs)
    assert answer.parsed is not None or answer.status_code == 204, answer.content
    return answer.parsed


def models(sdk: ModuleType) -> Any:
    return importlib.import_module(f"{sdk.__name__}.models")


def create(sdk: ModuleType, person: Person, **fields: Any) -> Any:
    body = models(sdk).CreateApiKeyRequest.from_dict({"name": "ci", **fields})
    return call(sdk, "api_keys.create_org_api_key", person.token, str(person.organization.id), body=body)


def test_whoami_of_a_session(sdk: ModuleType) -> None:
    person = make_person(role="admin")
    me = call(sdk, "account.whoami", person.token)
    assert me.principal_type == "user"
    assert me.organization_id == str(person.organization.id)
    assert me.organization_name == person.organization.name
    assert (me.user_id, me.email) == (str(person.user.id), person.user.email)
    assert (me.role, me.role_name) == ("admin", "Admin")
    assert "compute.create" in me.permissions
    assert "reservation.manage" not in me.permissions
    assert [org.organization_id for org in me.available_orgs] == [str(person.organization.id)]
    assert me.available_orgs[0].role_name == "Admin"
    assert set(me.additional_properties) == set()
    assert "platformAdmin" not in me.to_dict()


def test_whoami_of_an_operator(sdk: ModuleType) -> None:
    me = call(sdk, "account.whoami", make_person(make_org(is_platform_ops=True)).token)
    assert "reservation.manage" in me.permissions
    assert me.platform_admin is True


def test_whoami_of_a_key(sdk: ModuleType, clock: Clock) -> None:
    person = make_person()
    made = create(
        sdk,
        person,
        permissions=["compute.write", "audit.read"],
        expiresInSeconds=3 * 86400 - 60,
        restrictions={"ipRanges": ["127.0.0.0/8"], "models": ["m"], "endpoints": ["e"]},
        budget={"limitNanoUsd": 5_000_000_000, "period": "daily"},
    )
    me = call(sdk, "account.whoami", made.key)
    assert me.principal_type == "api_key"
    assert me.key_kind == "org"
    assert (me.key.id, me.key.name, me.key.prefix) == (made.id, "ci", made.key[:11])
    assert me.key.expires_in_days == 2
    assert me.key.expires_at.isoformat().replace("+00:00", "Z") == made.expires_at
    assert (me.key.budget.limit_nano_usd, me.key.budget.spent_nano_usd) == (5_000_000_000, 0)
    assert me.key.budget.period_ends_at.hour == 0
    assert me.permissions == [
        "audit.read", "compute.create", "compute.delete", "compute.operate", "compute.read", "self.read",
    ]  # fmt: skip
    assert me.restrictions.permissions == ["audit.read", "compute.write"]
    assert me.restrictions.ip_ranges == ["127.0.0.0/8"]
    assert (me.restrictions.models, me.restrictions.endpoints) == (["m"], ["e"])
    assert me.scopes == []


def test_me_takes_a_session(sdk: ModuleType) -> None:
    person = make_person()
    me = call(sdk, "account.get_me", person.token)
    assert (me.user.id, me.user.email, me.user.full_name) == (
        str(person.user.id),
        person.user.email,
        "Ada Example",
    )
    assert me.user.default_organization_id == str(person.organization.id)
    assert [org.name for org in me.organizations] == [person.organization.name]
    _, secret = make_key(person.organization)
    refused = call(sdk, "account.get_me", secret)
    assert (refused.code, refused.permission, refused.denied_by) == ("FORBIDDEN", "self.read", "platform")


def test_a_created_key_shows_its_secret_once_and_its_digest_never(sdk: ModuleType) -> None:
    person = make_person()
    made = create(sdk, person, note="the build", permissions=["compute.read"])
    assert made.key.startswith("or_")
    assert (made.kind, made.organization_id) == ("org", str(person.organization.id))
    assert made.permissions == ["compute.read"]
    listed = call(sdk, "api_keys.list_org_api_keys", person.token, str(person.organization.id))
    assert [key.id for key in listed] == [made.id]
    assert (listed[0].note, listed[0].created_by) == ("the build", str(person.user.id))
    assert listed[0].key_prefix == made.key_prefix
    assert made.key not in str(listed)
    event = AuditEvent.objects.get(event="apikey.created")
    assert made.key not in str(event.after)
    assert event.target_id == made.id


@pytest.mark.parametrize(
    ("fields", "holds"),
    [
        ({"template": "compute_automation"}, ["catalog.read", "compute.write", "sshkey.write", "usage.read"]),
        ({"template": "nonsense", "permissions": ["audit.read"]}, ["audit.read"]),
        ({"restrictions": {"permissions": ["audit.read"]}}, ["audit.read"]),
        ({"scopes": ["inference"]}, ["catalog.read", "usage.read"]),
        (
            {"permissions": ["reservation.capacity", "audit.read", "audit.read"]},
            ["audit.read", "reservation.capacity"],
        ),
        ({"permissions": ["audit.read"], "expiresInSeconds": 0}, ["audit.read"]),
        ({"permissions": ["audit.read"], "expiresInSeconds": -5}, ["audit.read"]),
        ({}, sorted(p for p in PERMISSIONS if not p.startswith("reservation."))),
    ],
)
def test_where_a_keys_ceiling_comes_from(sdk: ModuleType, fields: dict[str, Any], holds: list[str]) -> None:
    made = create(sdk, make_person(), **fields)
    assert made.permissions == holds
    assert made.to_dict().get("expiresAt") is None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"kind": "personal"}, "personal"),
        ({"serviceAccountId": "x"}, "serviceAccountId"),
        ({"ephemeral": True}, "ephemeral"),
        ({"template": "nonsense"}, "template must be one of"),
        ({"permissions": ["compute.everything"]}, "compute.everything"),
        ({"permissions": []}, "permissions must not be empty"),
        ({"scopes": ["vms:read"]}, "clusters:read"),
        ({"scopes": ["nonsense"]}, "nonsense"),
        ({"restrictions": {"ipRanges": ["10.0.0.0/33"]}}, "ipRanges[0]"),
        (
            {"restrictions": {"ipRanges": ["10.0.0.0/8", "127.0.0.1/24"]}},
            "ipRanges[1] '127.0.0.1/24' has host bits. Write 127.0.0.0/24 for the range, or 127.0.0.1/32",
        ),
        ({"restrictions": {"ipRanges": ["10.0.0.0/8"] * 21}}, "at most 20"),
        ({"budget": {}}, "budget.limitNanoUsd is required"),
        ({"budget": {"limitNanoUsd": 0}}, "budget.limitNanoUsd must be at least 1"),
        ({"expiresInSeconds": 10**12}, "expiresInSeconds must be at most"),
        ({"permissions": ["audit.read"], "restrictions": {"permissions": ["self.read"]}}, "differ"),
    ],
)
def test_what_a_new_key_cannot_have(client: Client, fields: dict[str, Any], says: str) -> None:
    person = make_person()
    path = f"/v1/orgs/{person.organization.id}/api-keys/create"
    response = client.post(
        path, json.dumps({"name": "k", **fields}), "application/json", **bearer(person.token)
    )
    assert (response.status_code, response.json()["code"]) == (400, "VALIDATION_ERROR")
    assert says in response.json()["error"]
    assert ApiKey.objects.count() == 0


def test_no_key_exceeds_its_maker(sdk: ModuleType) -> None:
    person = make_person()
    refused = create(sdk, person, permissions=["reservation.manage"])
    assert (refused.code, refused.permission, refused.denied_by) == (
        "ESCALATION_REFUSED", "reservation.manage", "platform",
    )  # fmt: skip
    operator = make_person(make_org(is_platform_ops=True))
    assert create(sdk, operator, permissions=["reservation.manage"]).permissions == ["reservation.manage"]
    assert ApiKey.objects.filter(organization=person.organization).count() == 0


def test_a_member_makes_no_keys(sdk: ModuleType) -> None:
    refused = create(sdk, make_person(role="member"), permissions=["compute.read"])
    assert (refused.code, refused.permission, refused.denied_by) == ("FORBIDDEN", "apikey.create", "role")


def test_a_key_makes_and_edits_no_keys_but_revokes(
    sdk: ModuleType, django_capture_on_commit_callbacks: Any
) -> None:
    person = make_person()
    made = create(sdk, person)
    org = str(person.organization.id)
    body = models(sdk).CreateApiKeyRequest(name="k")
    refused = call(sdk, "api_keys.create_org_api_key", made.key, org, body=body)
    assert (refused.code, refused.permission, refused.denied_by) == ("FORBIDDEN", "apikey.create", "platform")
    edit = models(sdk).UpdateApiKeyRequest.from_dict({"budget": {"limitNanoUsd": 1}})
    refused = call(sdk, "api_keys.update_org_api_key", made.key, org, made.id, body=edit)
    assert (refused.code, refused.permission, refused.denied_by) == ("FORBIDDEN", "apikey.update", "platform")
    with django_capture_on_commit_callbacks(execute=True):
        call(sdk, "api_keys.revoke_org_api_key", made.key, org, made.id)
    assert call(sdk, "account.whoami", made.key).code == "REVOKED_API_KEY"
    assert call(sdk, "api_keys.list_org_api_keys", person.token, org)[0].revoked_at


def test_revoking_again_changes_nothing(client: Client) -> None:
    person = make_person()
    key, _ = make_key(person.organization)
    path = f"/v1/orgs/{person.organization.id}/api-keys/{key.id}"
    for _ in range(2):
        assert client.delete(path, **bearer(person.token)).status_code == 204
    assert AuditEvent.objects.filter(event="apikey.revoked").count() == 1


def test_editing_touches_the_budget_only(sdk: ModuleType) -> None:
    person = make_person()
    made = create(sdk, person)

    def edit(**body: Any) -> Any:
        parsed = models(sdk).UpdateApiKeyRequest.from_dict(body)
        return call(
            sdk,
            "api_keys.update_org_api_key",
            person.token,
            str(person.organization.id),
            made.id,
            body=parsed,
        )

    assert "limitNanoUsd is required" in edit(budget={"period": "daily"}).error
    assert edit(budget={"limitNanoUsd": 7}).budget.period == "lifetime"
    changed = edit(budget={"period": "monthly"})
    assert (changed.budget.limit_nano_usd, changed.budget.period) == (7, "monthly")
    assert changed.budget.period_ends_at.day == 1
    assert edit(budget={"limitNanoUsd": 0}).to_dict().get("budget") is None
    for refused in (edit(), edit(name="x"), edit(note="x"), edit(restrictions={}), edit(budget={})):
        assert refused.code == "VALIDATION_ERROR"
    assert AuditEvent.objects.filter(event="apikey.updated").count() == 3


def test_anothers_key_is_not_there(sdk: ModuleType) -> None:
    person, other = make_person(), make_person()
    theirs, _ = make_key(other.organization)
    org = str(person.organization.id)
    for key_id in (str(theirs.id), str(new_id())):
        refused = call(sdk, "api_keys.revoke_org_api_key", person.token, org, key_id)
        assert refused.code == "NOT_FOUND"
    refused = call(
        sdk, "api_keys.revoke_org_api_key", person.token, str(other.organization.id), str(theirs.id)
    )
    assert refused.code == "FORBIDDEN"
    theirs.refresh_from_db()
    assert theirs.revoked_at is None
    assert AuditEvent.objects.filter(event="request.refused", organization=person.organization).count() == 3


def test_the_catalog_holds_together(sdk: ModuleType) -> None:
    person = make_person()
    catalog = call(sdk, "access.get_permission_catalog", person.token)
    listed = {level.id: level for area in catalog.areas for level in area.levels}
    assert set(listed) == set(PERMISSIONS)
    assert listed["compute.write"].actions == [
        "compute.read", "compute.operate", "compute.create", "compute.delete",
    ]  # fmt: skip
    assert listed["role.manage"].session_only
    assert not listed["apikey.write"].session_only
    roles = {role.id: role for role in catalog.roles}
    assert set(roles) == {"owner", "admin", "member", "billing", "viewer"}
    assert roles["owner"].all_ is True
    for role in roles.values():
        assert set(role.grants) <= set(listed)
        assert "reservation.manage" not in role.grants
    for template in catalog.templates:
        assert set(template.permissions) <= set(listed)
    assert catalog.session_only_actions == ["apikey.create", "apikey.update", "org.delete", "role.manage"]
    add_member(
        actor=SYSTEM, user_id=make_person().user.id, organization_id=person.organization.id, role="inference"
    )
    catalog = call(sdk, "access.get_permission_catalog", person.token)
    assert "inference" in {role.id for role in catalog.roles}


def test_effective_access_of_oneself_and_of_others(sdk: ModuleType) -> None:
    person = make_person()
    factories.user(person.organization)
    viewer = make_person(person.organization, role="viewer")
    made = create(sdk, person, permissions=["compute.read", "webhook.read"], restrictions={"models": ["m"]})
    mine = call(sdk, "access.get_effective_access", person.token)
    assert (mine.principal_type, mine.principal_id) == ("member", str(person.user.id))
    assert (mine.role_id, mine.role_name, mine.active, mine.all_models) == ("owner", "Owner", True, True)
    keys = call(
        sdk, "access.get_effective_access", viewer.token, principal_type="api_key", principal_id=made.id
    )
    assert keys.actions == ["compute.read", "self.read", "webhook.read"]
    assert (keys.all_models, keys.models, keys.key_kind) == (False, ["m"], "org")
    assert call(sdk, "access.get_effective_access", made.key).principal_id == made.id
    refused = call(
        sdk,
        "access.get_effective_access",
        made.key,
        principal_type="member",
        principal_id=str(person.user.id),
    )
    assert (refused.code, refused.permission, refused.denied_by) == ("FORBIDDEN", "policy.read", "key")
    stranger = make_person()
    for principal in (str(stranger.user.id), str(new_id())):
        refused = call(
            sdk,
            "access.get_effective_access",
            person.token,
            principal_type="member",
            principal_id=principal,
        )
        assert refused.code == "NOT_FOUND"
    remove_member(actor=SYSTEM, user_id=person.user.id, organization_id=person.organization.id)
    keys = call(
        sdk, "access.get_effective_access", viewer.token, principal_type="api_key", principal_id=made.id
    )
    assert (keys.active, keys.actions) == (False, [])


def test_a_check_says_what_decides(sdk: ModuleType) -> None:
    person = make_person()
    factories.user(person.organization)
    made = create(
        sdk,
        person,
        permissions=["compute.write", "apikey.write"],
        restrictions={"ipRanges": ["203.0.113.0/24"]},
    )

    def check(action: str, kind: str = "api_key", who: str = made.id, ip: str = "203.0.113.5") -> Any:
        body = models(sdk).AccessCheckRequest.from_dict(
            {"action": action, "principalType": kind, "principalId": who, "sourceIp": ip}
        )
        decision = call(sdk, "access.check_access", person.token, body=body)
        return (
            decision.allow,
            decision.to_dict().get("deniedBy"),
            [p.source for p in decision.policies],
        )

    assert check("compute.create") == (True, None, ["builtin_role", "key_restriction"])
    assert check("compute.create", ip="198.51.100.1") == (False, "key", ["key_restriction"])
    assert check("audit.read") == (False, "key", ["key_restriction"])
    assert check("apikey.create") == (False, "platform", ["platform"])
    assert check("reservation.manage") == (False, "platform", ["platform"])
    assert check("reservation.manage", "member", str(person.user.id)) == (False, "platform", ["platform"])
    assert check("audit.read", "member", str(person.user.id)) == (True, None, ["builtin_role"])
    change_role(actor=SYSTEM, user_id=person.user.id, organization_id=person.organization.id, role="viewer")
    assert check("compute.create") == (False, "role", ["builtin_role"])
    assert check("compute.create", "member", str(person.user.id)) == (False, "role", ["builtin_role"])


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"action": "nonsense"}, 400, "action"),
        ({"sourceIp": "nonsense"}, 400, "sourceIp"),
        ({"principalId": "nonsense"}, 400, "principalId must be an id"),
        ({"principalType": "robot"}, 400, "principalType must be one of"),
        ({"principalId": str(new_id())}, 404, ""),
    ],
)
def test_a_check_of_nonsense(client: Client, body: dict[str, str], status: int, says: str) -> None:
    person = make_person()
    whole = {"action": "audit.read", "principalType": "member", "principalId": str(person.user.id), **body}
    response = client.post("/v1/authz/check", json.dumps(whole), "application/json", **bearer(person.token))
    assert response.status_code == status
    assert says in response.json()["error"]


def test_lists_take_the_same_queries_for_few_and_many(client: Client, django_assert_num_queries: Any) -> None:
    person = make_person()
    path = f"/v1/orgs/{person.organization.id}/api-keys"
    for count in (1, 30):
        for _ in range(count):
            make_key(person.organization)
        with django_assert_num_queries(3):
            assert client.get(path, **bearer(person.token)).status_code == 200
