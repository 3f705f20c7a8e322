"""People, organizations, and the commands that make them."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction

from openrelay.audit.actor import SYSTEM
from openrelay.audit.models import AuditEvent
from openrelay.core.errors import Conflict, Invalid, NotFound
from openrelay.identity.models import Membership, Organization, User
from openrelay.identity.services.callers import authenticate
from openrelay.identity.services.memberships import add_member, change_role, remove_member
from tests import factories
from tests.identity.factories import make_org, make_person, make_user

pytestmark = pytest.mark.django_db


def run(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue().strip()


def test_there_is_one_platform_ops_organization() -> None:
    make_org(is_platform_ops=True)
    with pytest.raises(Conflict, match="platform ops"):
        make_org(is_platform_ops=True)
    with pytest.raises(Conflict, match="slug"):
        make_org(slug=make_org().slug)
    with pytest.raises(IntegrityError), transaction.atomic():
        Organization.objects.update(is_platform_ops=True) or make_org()
    assert Organization.objects.filter(is_platform_ops=True).count() == 1


def test_an_address_is_one_person_in_any_case() -> None:
    user = make_user(email="Ada@Example.COM")
    assert user.email == "ada@example.com"
    assert User.objects.get_by_natural_key("ADA@example.com") == user
    with pytest.raises(Conflict):
        make_user(email="ada@EXAMPLE.com")
    with pytest.raises(IntegrityError), transaction.atomic():
        User.objects.filter(pk=user.pk).update(email="ADA@example.com")


def test_the_console_opens_for_members_of_the_platform_ops_organization_only() -> None:
    operator = make_person(make_org(is_platform_ops=True), role="viewer").user
    assert operator.is_staff
    assert operator.console_actions >= {"compute.read", "audit.read"}
    assert not make_person().user.is_staff
    invited = make_user()
    add_member(
        actor=SYSTEM,
        user_id=invited.id,
        organization_id=operator.memberships.get().organization_id,
        role="owner",
    )
    invited.memberships.update(joined_at=None)
    assert not User.objects.get(pk=invited.pk).is_staff


def test_memberships_are_one_a_person_and_audited() -> None:
    person = make_person()
    factories.user(person.organization)
    where = {"user_id": person.user.id, "organization_id": person.organization.id}
    with pytest.raises(Conflict):
        add_member(actor=SYSTEM, role="owner", **where)
    with pytest.raises(Invalid):
        change_role(actor=SYSTEM, role="emperor", **where)
    change_role(actor=SYSTEM, role="owner", **where)
    change_role(actor=SYSTEM, role="viewer", **where)
    remove_member(actor=SYSTEM, **where)
    with pytest.raises(NotFound):
        remove_member(actor=SYSTEM, **where)
    events = list(
        AuditEvent.objects.filter(target_type="member", target_id=str(person.user.pk))
        .order_by("created_at")
        .values_list("event", "before", "after")
    )
    assert events == [
        ("member.added", None, {"role": "owner"}),
        ("member.role_changed", {"role": "owner"}, {"role": "viewer"}),
        ("member.removed", {"role": "viewer"}, None),
    ]
    assert not Membership.objects.filter(user=person.user).exists()


def test_the_commands_take_a_person_from_nothing_to_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENRELAY_USER_PASSWORD", "a long enough secret")
    org_id = run("create_org", "acme", "Acme", "--provider")
    user_id = run("create_user", "Eve@Example.com", "--full-name", "Eve")
    run("add_member", "eve@example.com", "acme", "admin")
    caller = authenticate(run("mint_session", "EVE@example.com"), source_ip="", request_id="")
    assert (str(caller.organization_id), str(caller.user_id), caller.role) == (org_id, user_id, "admin")
    run("create_org", "other", "Other")
    run("add_member", "eve@example.com", "other", "viewer")
    with pytest.raises(CommandError, match="acme, other"):
        run("mint_session", "eve@example.com")
    caller = authenticate(
        run("mint_session", "eve@example.com", "--org", "other"), source_ip="", request_id=""
    )
    assert caller.role == "viewer"
    assert set(AuditEvent.objects.values_list("actor", flat=True)) == {"operator"}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("create_user", "no address"), "valid email"),
        (("add_member", "nobody@example.com", "acme", "owner"), "nobody"),
        (("mint_session", "nobody@example.com"), "no member"),
    ],
)
def test_a_command_that_cannot_says_why(command: tuple[str, ...], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        run(*command)


def test_a_weak_password_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENRELAY_USER_PASSWORD", "password")
    with pytest.raises(CommandError, match="too short"):
        run("create_user", "eve@example.com")
    assert not User.objects.exists()
