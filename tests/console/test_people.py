"""What operators decide about people: roles, memberships, sessions. And who may not."""

from typing import Any
from uuid import UUID

import pytest
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from playwright.sync_api import expect

from openrelay.audit.models import AuditEvent
from openrelay.core.errors import Forbidden, Invalid, NotFound, Unauthenticated
from openrelay.identity.models import Membership, SessionToken, User
from openrelay.identity.permissions import BUILTIN_ROLES
from openrelay.identity.services.callers import authenticate, console_caller, forget_keys
from openrelay.identity.services.memberships import change_role_as_operator, remove_member_as_operator
from openrelay.identity.services.sessions import revoke_session_as_operator
from tests import factories
from tests.console import world as worlds
from tests.console.conftest import Screen
from tests.console.test_review_screen import accessible
from tests.console.world import World
from tests.identity.factories import bearer


def member(world: World, role: str = "owner") -> Membership:
    """A further member of the tenant."""
    person = factories.user(world.tenant, role, email="leaving@example.com")
    return person.memberships.get()


def page(name: str, thing: Model) -> str:
    return reverse(f"admin:identity_{name}", args=[thing.pk])


def send(client: Client, name: str, thing: Model, **fields: str) -> Any:
    return client.post(page(name, thing), {"reason": "They asked for it", **fields})


def signed_in(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def test_a_removed_members_sessions_and_keys_may_do_nothing_at_once(
    console: Client, world: World, client: Client
) -> None:
    place = member(world)
    token = factories.session(place.user, world.tenant)
    key = factories.api_key(world.tenant, created_by=place.user)
    colleagues = factories.api_key(world.tenant, created_by=world.outsider)
    path = f"/v1/orgs/{world.tenant.pk}/vms"
    assert [client.get(path, **bearer(secret)).status_code for secret in (token, key)] == [200, 200]
    told = console.get(page("membership_remove", place)).content.decode()
    assert "1 API key that they made there is refused whatever is asked" in told
    assert "1 of their sessions there ends" in told
    assert "Nobody else" not in told
    assert "console closes" not in told
    answer = send(console, "membership_remove", place)
    assert answer.status_code == 302
    forget_keys()  # what a committed change does by itself
    assert client.get(path, **bearer(token)).status_code == 401
    assert client.get(path, **bearer(key)).status_code == 403
    assert client.post("/v1/pods", {}, "application/json", **bearer(key)).status_code == 403
    assert client.get(path, **bearer(colleagues)).status_code == 200
    event = AuditEvent.objects.get(event="member.removed")
    assert (event.actor, event.organization_id, event.reason, event.source_ip) == (
        f"user:{world.operator.pk}",
        world.tenant.pk,
        "They asked for it",
        "127.0.0.1",
    )
    assert (event.target_id, event.before) == (str(place.user_id), {"role": "owner"})
    assert send(console, "membership_remove", place)["Location"] == reverse(
        "admin:identity_membership_changelist"
    )
    assert AuditEvent.objects.filter(event="member.removed").count() == 1


def test_who_leaves_the_platform_loses_the_console_and_it_says_so(console: Client, world: World) -> None:
    colleague = factories.user(world.platform, "admin")
    theirs = signed_in(colleague)
    place = colleague.memberships.get()
    assert theirs.get(reverse("admin:index")).status_code == 200
    assert "This console closes for them" in console.get(page("membership_remove", place)).content.decode()
    assert send(console, "membership_remove", place).status_code == 302
    assert theirs.get(reverse("admin:index")).status_code == 302


def test_the_last_owner_stays_and_the_page_warns(console: Client, world: World) -> None:
    place = world.outsider.memberships.get()
    for name in ("membership_remove", "membership_role"):
        assert (
            "Nobody else in Acme Research is owner or admin"
            in console.get(page(name, place)).content.decode()
        )
    for decision, fields in (("membership_remove", {}), ("membership_role", {"role": "viewer"})):
        answer = send(console, decision, place, **fields)
        assert answer.status_code == 409
        assert "last owner" in answer.content.decode()
    factories.user(world.tenant)
    assert send(console, "membership_remove", place).status_code == 302


def test_a_changed_role_counts_at_once_for_the_person_and_their_keys(
    console: Client, world: World, client: Client
) -> None:
    place = member(world)
    key = factories.api_key(world.tenant, created_by=place.user)
    role = factories.role(world.tenant, world.outsider, name="Night shift", permissions=["compute.read"])
    foreign = factories.role(world.other, world.outsider, name="Theirs")
    told = console.get(page("membership_role", place)).content.decode()
    assert "Night shift (made by the organization)" in told
    assert "Theirs" not in told
    assert send(console, "membership_role", place, role=str(foreign.pk)).status_code == 400
    assert send(console, "membership_role", place, role="owner").status_code == 400
    assert send(console, "membership_role", place, role=str(role.pk)).status_code == 302
    forget_keys()
    caller = authenticate(key, source_ip="127.0.0.1", request_id="")
    assert caller.actions == {"compute.read", "self.read"}
    event = AuditEvent.objects.get(event="member.role_changed")
    assert (event.before, event.after) == ({"role": "owner"}, {"role": str(role.pk)})
    assert event.reason == "They asked for it"
    assert send(console, "membership_role", place, role="viewer").status_code == 302
    place.refresh_from_db()
    assert (place.role, place.custom_role_id) == ("viewer", None)


def test_a_memberships_history_is_what_was_done_to_the_member(console: Client, world: World) -> None:
    place = member(world)
    assert send(console, "membership_role", place, role="viewer").status_code == 302
    for url in (page("membership_history", place), page("user_history", place.user)):
        answer = console.get(url, follow=True)
        assert [event.event for event in answer.context["cl"].result_list] == ["member.role_changed"]
    for odd in ("x", str(UUID(int=5))):
        answer = console.get(reverse("admin:identity_membership_history", args=[odd]), follow=True)
        assert answer.status_code == 200


def test_a_session_is_ended_once(console: Client, world: World, client: Client) -> None:
    token = factories.session(world.outsider, world.tenant)
    other = factories.session(world.outsider, world.tenant)
    session = SessionToken.objects.order_by("created_at").first()
    assert session is not None
    answer = send(console, "sessiontoken_end", session)
    assert (answer.status_code, answer["Location"]) == (302, page("sessiontoken_change", session))
    assert client.get("/v1/whoami", **bearer(token)).status_code == 401
    assert client.get("/v1/whoami", **bearer(other)).status_code == 200
    event = AuditEvent.objects.get(event="session.revoked")
    assert (event.reason, event.actor) == ("They asked for it", f"user:{world.operator.pk}")
    again = send(console, "sessiontoken_end", session)
    assert (again.status_code, "over already" in again.content.decode()) == (200, True)
    assert AuditEvent.objects.filter(event="session.revoked").count() == 1


DECISIONS = [
    ("membership_remove", {}),
    ("membership_role", {"role": "viewer"}),
    ("sessiontoken_end", {}),
]


def things(world: World, name: str) -> Any:
    """What the decision is about, and how it is now."""
    place = member(world)
    factories.session(place.user, world.tenant)
    model = SessionToken if name.startswith("session") else Membership
    rows = model.objects.filter(user=place.user)
    return rows.get(), rows.values()


@pytest.mark.parametrize(("name", "fields"), DECISIONS)
def test_a_reason_is_asked_for(console: Client, world: World, name: str, fields: dict[str, str]) -> None:
    thing, rows = things(world, name)
    before = list(rows.all())
    for reason in ("", "  ", "x" * 501, "a\0b"):
        assert send(console, name, thing, **fields, reason=reason).status_code == 400
    assert console.put(page(name, thing)).status_code == 405
    assert list(rows.all()) == before


@pytest.mark.parametrize(("name", "fields"), DECISIONS)
def test_who_may_not_is_refused_and_it_is_noted(world: World, name: str, fields: dict[str, str]) -> None:
    thing, rows = things(world, name)
    before = list(rows.all())
    answer = send(signed_in(world.viewer), name, thing, **fields)
    assert answer.status_code == 403
    assert "member.manage" in answer.content.decode()
    event = AuditEvent.objects.get(event="request.refused")
    assert (event.actor, event.after["permission"]) == (f"user:{world.viewer.pk}", "member.manage")
    assert send(signed_in(world.outsider), name, thing, **fields)["Location"].startswith("/console/login/")
    forged = Client(enforce_csrf_checks=True)
    forged.force_login(world.operator)
    assert send(forged, name, thing, **fields).status_code == 403
    assert list(rows.all()) == before


@pytest.mark.parametrize(("name", "fields"), DECISIONS)
def test_what_is_not_there_leads_back_to_the_list(console: Client, name: str, fields: dict[str, str]) -> None:
    for answer in (
        console.get(reverse(f"admin:identity_{name}", args=[UUID(int=5)])),
        console.post(reverse(f"admin:identity_{name}", args=[UUID(int=5)]), {"reason": "x", **fields}),
    ):
        assert answer.status_code == 302
        assert answer["Location"] == reverse(f"admin:identity_{name.partition('_')[0]}_changelist")


def narrow(world: World, **fields: Any) -> User:
    """An operator with a role of the platform's own."""
    person = factories.user(world.platform, "viewer")
    role = factories.role(world.platform, world.operator, **fields)
    person.memberships.update(role="", custom_role=role)
    return person


def test_no_operator_gives_more_than_they_hold_not_even_to_themselves(world: World) -> None:
    person = narrow(world, permissions=[*BUILTIN_ROLES["viewer"].grants, "member.manage"])
    own = person.memberships.get()
    client = signed_in(person)
    for place in (own, member(world, "viewer"), world.viewer.memberships.get()):
        answer = send(client, "membership_role", place, role="owner")
        assert answer.status_code == 403
        assert "You cannot assign a role with permissions that you do not have" in answer.content.decode()
    assert not AuditEvent.objects.filter(event="member.role_changed").exists()
    weak = factories.role(world.tenant, world.outsider, permissions=["compute.read"])
    place = Membership.objects.get(user__email="leaving@example.com")
    assert send(client, "membership_role", place, role=str(weak.pk)).status_code == 302


def test_an_operator_whose_role_is_narrowed_gives_none_that_is_not(world: World) -> None:
    person = narrow(world, permissions=factories.EVERYTHING, ip_ranges=["127.0.0.0/8"])
    client = signed_in(person)
    answer = send(client, "membership_role", person.memberships.get(), role="admin")
    assert answer.status_code == 403
    assert "restricted by ipRanges" in answer.content.decode()
    within = factories.role(
        world.tenant, world.outsider, permissions=["compute.read"], ip_ranges=["127.0.0.1/32"]
    )
    assert send(client, "membership_role", member(world), role=str(within.pk)).status_code == 302


def test_the_services_ask_again_who_decides(world: World) -> None:
    """What a page let through a moment ago is refused when the operator was demoted or left meanwhile."""
    place = member(world)
    factories.session(place.user, world.tenant)
    session = SessionToken.objects.get()
    caller = console_caller(world.operator.pk, world.platform.pk, source_ip="127.0.0.1", request_id="r")
    tenants = console_caller(world.outsider.pk, world.tenant.pk, source_ip="127.0.0.1", request_id="r")

    def attempts(who: Any, reason: str = "why") -> list[Any]:
        return [
            lambda: change_role_as_operator(caller=who, membership_id=place.pk, role="viewer", reason=reason),
            lambda: remove_member_as_operator(caller=who, membership_id=place.pk, reason=reason),
            lambda: revoke_session_as_operator(caller=who, session_id=session.pk, reason=reason),
        ]

    for attempt in attempts(caller, " "):
        with pytest.raises(Invalid, match="reason"):
            attempt()
    for attempt in attempts(tenants):
        with pytest.raises(NotFound):
            attempt()
    world.operator.memberships.update(role="viewer")
    for attempt in attempts(caller):
        with pytest.raises(NotFound):
            attempt()
    world.operator.memberships.all().delete()
    for attempt in attempts(caller):
        with pytest.raises((Forbidden, Unauthenticated)):
            attempt()
    assert Membership.objects.filter(pk=place.pk, role="owner").exists()
    session.refresh_from_db()
    assert session.revoked_at is None


class TestScreen:
    @pytest.fixture
    def world(self, screen: Screen) -> World:
        """The same world, committed for the server to see."""
        return worlds.build()

    def test_an_operator_changes_a_role_and_then_removes_the_person(
        self, screen: Screen, world: World
    ) -> None:
        place = member(world)
        token = factories.session(place.user, world.tenant)
        screen.sign_in(world.operator)
        page = screen.page
        expect(page.get_by_role("heading", level=1)).to_contain_text("Overview")
        screen.open(f"identity/membership/?q={place.user_id}")
        page.get_by_role("link", name="leaving@example.com").click()
        page.get_by_role("link", name="Give another role").click()
        expect(page.locator("#effects")).to_contain_text("They are Owner now")
        accessible(page)
        page.get_by_label("New role").select_option("Viewer")
        page.get_by_label("Reason").fill("Moved to another team")
        page.get_by_role("button", name="Change the role").click()
        expect(page.get_by_text("leaving@example.com has the new role.")).to_be_visible()
        page.get_by_role("link", name="Remove from the organization").click()
        expect(page.locator("#effects")).to_contain_text("1 of their sessions there ends")
        accessible(page)
        page.get_by_label("Reason").fill("Left the company")
        page.get_by_role("button", name="Remove").click()
        expect(
            page.get_by_text("leaving@example.com is no longer a member of Acme Research.")
        ).to_be_visible()
        assert [
            (event.event, event.reason)
            for event in AuditEvent.objects.filter(
                actor=f"user:{world.operator.pk}", target_type="member"
            ).order_by("created_at")
        ] == [("member.role_changed", "Moved to another team"), ("member.removed", "Left the company")]
        with pytest.raises(Unauthenticated):
            authenticate(token, source_ip="127.0.0.1", request_id="")

    def test_an_operator_ends_a_session(self, screen: Screen, world: World) -> None:
        token = factories.session(world.outsider, world.tenant)
        screen.sign_in(world.operator)
        page = screen.page
        expect(page.get_by_role("heading", level=1)).to_contain_text("Overview")
        screen.open(f"identity/sessiontoken/{SessionToken.objects.get().pk}/change/")
        page.get_by_role("link", name="End this session").click()
        expect(page.locator("#effects")).to_contain_text("Its token is refused from now on")
        accessible(page)
        page.get_by_role("link", name="Back, change nothing").click()
        page.get_by_role("link", name="End this session").click()
        page.get_by_label("Reason").fill("Lost laptop")
        page.get_by_role("button", name="End the session").click()
        expect(page.get_by_text("The session has ended.")).to_be_visible()
        with pytest.raises(Unauthenticated):
            authenticate(token, source_ip="127.0.0.1", request_id="")
