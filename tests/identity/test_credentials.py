"""Keys and sessions: what lives, what is dead, and what either may do."""

import datetime as dt
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from openrelay.audit.actor import SYSTEM, Actor
from openrelay.audit.models import AuditEvent
from openrelay.core.errors import Forbidden, Unauthenticated
from openrelay.identity import secrets
from openrelay.identity.caller import Caller
from openrelay.identity.models import ApiKey, SessionToken
from openrelay.identity.services import callers
from openrelay.identity.services.callers import authenticate, forget_keys, reread
from openrelay.identity.services.keys import Restrictions, create_key, revoke_key
from openrelay.identity.services.memberships import add_member, change_role, remove_member
from openrelay.identity.services.sessions import mint_session, revoke_session
from tests import factories
from tests.identity.factories import bearer, make_key, make_org, make_person, make_user, sign_in
from tests.support.travel import Clock

pytestmark = pytest.mark.django_db


def caller_of(secret: str, *, ip: str = "127.0.0.1", remembered: bool = False) -> Caller:
    if not remembered:
        forget_keys()
    return authenticate(secret, source_ip=ip, request_id="r")


def test_secrets_have_32_random_bytes_in_base62_and_only_their_digest_is_stored() -> None:
    key, secret = make_key()
    digits = secret.removeprefix("or_")
    assert digits.isalnum()
    assert digits.isascii()
    assert len(digits) == 43
    assert key.sha256 == secrets.digest(secret)
    assert key.prefix == secret[:11]
    assert secret not in str(ApiKey.objects.filter(pk=key.pk).values())
    assert len({secrets.make("or_")[0] for _ in range(100)}) == 100


def test_a_key_acts_in_its_organization_with_its_ceiling_only() -> None:
    org = make_org()
    _, secret = make_key(org, "compute.operate")
    caller = caller_of(secret)
    assert caller.organization_id == org.id
    assert caller.actions == {"compute.read", "compute.operate", "self.read"}
    assert not caller.is_operator


def test_an_ordinary_organization_cannot_hold_the_platforms_actions() -> None:
    _, secret = make_key(make_org(), "reservation.manage")
    assert caller_of(secret).actions == {"reservation.read", "reservation.capacity", "self.read"}
    _, secret = make_key(make_org(is_platform_ops=True), "reservation.manage")
    caller = caller_of(secret)
    assert caller.operates("reservation.manage")


def test_no_key_holds_what_takes_a_person() -> None:
    _, secret = make_key(make_org(), "apikey.write", "role.manage")
    assert caller_of(secret).actions == {"apikey.read", "apikey.revoke", "role.read", "self.read"}


def test_a_revoked_and_an_expired_key_are_401_with_their_codes(client: Client, clock: Clock) -> None:
    person = make_person()
    key, secret = make_key(person.organization)
    revoke_key(caller=caller_of(person.token), key_id=key.id)
    response = client.get("/v1/whoami", **bearer(secret))
    assert (response.status_code, response.json()["code"]) == (401, "REVOKED_API_KEY")
    clock.freeze()
    _, secret = make_key(expires_in_seconds=60)
    clock.advance(59)
    assert client.post("/v1/whoami", **bearer(secret)).status_code == 405
    clock.advance(1)
    forget_keys()  # its memory goes by elapsed time, which a moved clock does not show
    response = client.post("/v1/whoami", **bearer(secret))
    assert (response.status_code, response.json()["code"]) == (401, "EXPIRED_API_KEY")


def test_a_session_lives_twelve_hours_to_the_microsecond(clock: Clock) -> None:
    at = clock.freeze()
    person = make_person()
    clock.freeze(at + dt.timedelta(hours=12, microseconds=-1))
    assert caller_of(person.token).user_id == person.user.id
    clock.freeze(at + dt.timedelta(hours=12))
    with pytest.raises(Unauthenticated) as refused:
        caller_of(person.token)
    assert refused.value.code == "UNAUTHORIZED"


def test_a_revoked_session_is_dead_and_revoking_twice_is_one_event() -> None:
    person = make_person()
    session = SessionToken.objects.get(user=person.user)
    revoke_session(actor=SYSTEM, session_id=session.id)
    revoke_session(actor=SYSTEM, session_id=session.id)
    with pytest.raises(Unauthenticated):
        caller_of(person.token)
    assert AuditEvent.objects.filter(event="session.revoked").count() == 1


def test_an_inactive_persons_session_is_dead() -> None:
    person = make_person()
    person.user.is_active = False
    person.user.save()
    with pytest.raises(Unauthenticated):
        caller_of(person.token)


def test_a_person_acts_in_any_of_their_organizations_and_no_other() -> None:
    person = make_person()
    other = make_org(is_platform_ops=True)
    caller = caller_of(person.token)
    for foreign in (other.id, str(other.id), "nonsense", ""):
        with pytest.raises(Forbidden):
            caller.in_org(foreign)
    add_member(actor=SYSTEM, user_id=person.user.id, organization_id=other.id, role="viewer")
    caller = caller_of(person.token)
    assert not caller.is_operator
    there = caller.in_org(str(other.id))
    assert there.is_operator
    assert there.role == "viewer"
    assert not there.may("compute.create")
    assert there.in_org(person.organization.id).may("compute.create")


def test_an_invited_person_is_no_member_yet() -> None:
    person = make_person()
    person.organization.memberships.update(joined_at=None)
    with pytest.raises(Unauthenticated):
        caller_of(person.token)


def test_addresses_outside_a_keys_ranges_are_refused() -> None:
    person = make_person()
    _, secret = create_key(
        caller=caller_of(person.token),
        name="k",
        restrictions=Restrictions(ip_ranges=["203.0.113.0/24", "2001:DB8:0::/32", "::ffff:198.51.100.0/120"]),
    )
    for ip in ("203.0.113.200", "2001:db8::1", "::ffff:203.0.113.9", "198.51.100.7", "::ffff:198.51.100.7"):
        assert caller_of(secret, ip=ip).key_id
    for ip in ("203.0.114.1", "2001:db9::1", "", "nonsense"):
        with pytest.raises(Forbidden) as refused:
            caller_of(secret, ip=ip)
        assert refused.value.extra["deniedBy"] == "key"


@pytest.mark.parametrize(
    ("trusted", "forwarded", "seen"),
    [
        (0, "198.51.100.1", "127.0.0.1"),
        (1, "198.51.100.1", "198.51.100.1"),
        (1, "203.0.113.9, 198.51.100.1", "198.51.100.1"),
        (2, "203.0.113.9, 198.51.100.1, 10.0.0.1", "198.51.100.1"),
        # With an entry too few, somebody came around a proxy of ours: nobody knows from where.
        (2, "198.51.100.1", ""),
        (1, "", ""),
        (1, "198.51.100.1, ", ""),
        # How a server that listens for both protocols sees a caller by the older.
        (1, "::ffff:198.51.100.1", "198.51.100.1"),
        # How some proxies write an address.
        (1, "198.51.100.1:50123", "198.51.100.1"),
        (1, "[2001:DB8:0::1]:50123", "2001:db8::1"),
        (1, "[2001:db8::1]", "2001:db8::1"),
        (1, "[::ffff:198.51.100.1]:443", "198.51.100.1"),
        # A text that could be read in two ways is not an address.
        (1, "198.51.100.1:", ""),
        (1, "198.51.100.1:123456", ""),
        (1, "[198.51.100.1", ""),
        (1, "[2001:db8::1]:", ""),
        (1, "2001:db8::1:50123:x", ""),
        (1, "fe80::1%eth0", ""),
        (1, "010.0.0.1", ""),
        (1, 'for="198.51.100.1"', ""),
        (1, "unknown", ""),
    ],
)
def test_only_our_own_proxies_are_believed(
    client: Client, settings: object, trusted: int, forwarded: str, seen: str
) -> None:
    settings.TRUSTED_PROXIES = trusted  # type: ignore[attr-defined]
    person = make_person()
    path = f"/v1/orgs/{person.organization.id}/api-keys/create"
    headers = {"HTTP_X_FORWARDED_FOR": forwarded} if forwarded else {}
    client.post(path, {"name": "k"}, "application/json", **headers, **bearer(person.token))
    assert AuditEvent.objects.get(event="apikey.created", actor=f"user:{person.user.id}").source_ip == seen


@pytest.mark.parametrize("forwarded", ["", "unknown", "203.0.113.9:", "[203.0.113.9", "203.0.113.9,"])
def test_an_unknown_address_passes_no_restriction(client: Client, settings: Any, forwarded: str) -> None:
    settings.TRUSTED_PROXIES = 1
    person = make_person()
    _, secret = create_key(
        caller=caller_of(person.token),
        name="k",
        # Of everywhere, so that only an address that is not known lies outside.
        restrictions=Restrictions(ip_ranges=["0.0.0.0/0", "::/0"]),
    )
    headers = {"HTTP_X_FORWARDED_FOR": forwarded} if forwarded else {}
    assert client.get("/v1/whoami", **headers, **bearer(secret)).status_code == 403
    headers = {"HTTP_X_FORWARDED_FOR": "203.0.113.9:50123"}
    assert client.get("/v1/whoami", **headers, **bearer(secret)).status_code == 200


def test_a_key_follows_its_makers_role_and_ends_with_their_membership() -> None:
    person = make_person()
    factories.user(person.organization)
    _, secret = create_key(
        caller=caller_of(person.token), name="k", permissions=["compute.write", "audit.read"]
    )
    assert caller_of(secret).may("compute.create")
    where = {"user_id": person.user.id, "organization_id": person.organization.id}
    change_role(actor=SYSTEM, role="viewer", **where)
    caller = caller_of(secret)
    assert caller.actions == {"compute.read", "audit.read", "self.read"}
    assert caller.denied_by("compute.create") == "role"
    assert caller.denied_by("webhook.read") == "key"
    remove_member(actor=SYSTEM, **where)
    assert caller_of(secret).actions == frozenset()


def remember_for(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr("openrelay.identity.services.callers.REMEMBER_SECONDS", seconds)


def test_a_read_may_be_served_from_memory_for_a_second_and_a_change_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert callers.REMEMBER_SECONDS == 1
    remember_for(monkeypatch, 600)  # a busy machine may take longer than the second
    forget_keys()
    key, secret = make_key()
    caller_of(secret, remembered=True)
    ApiKey.objects.filter(pk=key.pk).update(revoked_at=key.created_at)
    assert caller_of(secret, remembered=True).key_id == key.id
    with pytest.raises(Unauthenticated):
        caller_of(secret)
    remember_for(monkeypatch, 0)
    with pytest.raises(Unauthenticated):
        caller_of(secret, remembered=True)


def test_what_changes_a_makers_place_shows_in_their_keys_at_once(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    remember_for(monkeypatch, 600)
    person = make_person()
    factories.user(person.organization)
    with django_capture_on_commit_callbacks(execute=True):
        _, secret = create_key(caller=caller_of(person.token), name="k", permissions=["compute.write"])
    where = {"user_id": person.user.id, "organization_id": person.organization.id}
    changes: list[tuple[Callable[..., object], dict[str, str], bool]] = [
        (change_role, {"role": "viewer"}, False),
        (change_role, {"role": "member"}, True),
        (remove_member, {}, False),
        (add_member, {"role": "admin"}, True),
    ]
    assert caller_of(secret).may("compute.create")
    for change, how, allowed in changes:
        with django_capture_on_commit_callbacks(execute=True):
            change(actor=SYSTEM, **where, **how)
        assert caller_of(secret, remembered=True).may("compute.create") is allowed, change


def test_a_remembered_key_still_expires_in_time(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    forget_keys()
    remember_for(monkeypatch, 600)
    clock.freeze()
    _, secret = make_key(expires_in_seconds=30)
    clock.advance(29.5)
    caller_of(secret, remembered=True)
    time.sleep(0.6)
    with pytest.raises(Unauthenticated) as refused:
        caller_of(secret, remembered=True)
    assert refused.value.code == "EXPIRED_API_KEY"


def test_last_use_is_written_once_a_minute(clock: Clock, django_assert_num_queries: object) -> None:
    key, secret = make_key()
    at = clock.freeze()
    caller_of(secret)
    with django_assert_num_queries(1):  # type: ignore[operator]
        caller_of(secret)
    key.refresh_from_db()
    assert key.last_used_at == at
    clock.advance(60)
    with django_assert_num_queries(2):  # type: ignore[operator]
        caller_of(secret)
    key.refresh_from_db()
    assert key.last_used_at == at + dt.timedelta(seconds=60)


def test_reread_sees_what_changed_in_one_query(clock: Clock, django_assert_num_queries: object) -> None:
    person = make_person()
    factories.user(person.organization)
    _, secret = make_key(person.organization)
    by_key, by_session = caller_of(secret), caller_of(person.token)
    at = clock.freeze()
    for caller in (by_key, by_session):
        with django_assert_num_queries(1):  # type: ignore[operator]
            again, now = reread(caller)
        assert again == caller
        assert now == at
    change_role(actor=SYSTEM, user_id=person.user.id, organization_id=person.organization.id, role="billing")
    again, _ = reread(by_session)
    assert not again.may("compute.create")
    ApiKey.objects.update(revoked_at=at)
    with pytest.raises(Unauthenticated) as refused:
        reread(by_key)
    assert refused.value.code == "REVOKED_API_KEY"
    ApiKey.objects.all().delete()
    with pytest.raises(Unauthenticated):
        reread(by_key)


def test_reread_keeps_the_organization_that_the_path_named() -> None:
    person = make_person()
    other = make_org()
    add_member(actor=SYSTEM, user_id=person.user.id, organization_id=other.id, role="viewer")
    there = caller_of(person.token).in_org(other.id)
    again, _ = reread(there)
    assert again == there
    remove_member(actor=SYSTEM, user_id=person.user.id, organization_id=other.id)
    with pytest.raises(Forbidden):
        reread(there)


def test_a_session_takes_membership() -> None:
    user, org = make_user(), make_org()
    with pytest.raises(Exception, match="not a member"):
        mint_session(actor=SYSTEM, user_id=user.id, organization_id=org.id)
    add_member(actor=SYSTEM, user_id=user.id, organization_id=org.id, role="viewer")
    assert sign_in(user, org).startswith("ors_")


def test_an_event_says_from_where_and_in_which_request(client: Client) -> None:
    person = make_person()
    path = f"/v1/orgs/{person.organization.id}/api-keys/create"
    client.post(path, {"name": "k"}, "application/json", HTTP_X_REQUEST_ID="req-1", **bearer(person.token))
    event = AuditEvent.objects.get(event="apikey.created")
    assert Actor(event.actor, event.source_ip, event.request_id) == Actor(
        f"user:{person.user.id}", "127.0.0.1", "req-1"
    )
