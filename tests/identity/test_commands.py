"""What is done at the server about organizations and roles."""

import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection, transaction

from openrelay import commands
from openrelay.audit.actor import SYSTEM
from openrelay.audit.models import AuditEvent
from openrelay.core.errors import Invalid, NotFound, Unauthenticated
from openrelay.core.ids import new_id
from openrelay.identity.models import Membership, Organization
from openrelay.identity.services.callers import authenticate, forget_keys
from openrelay.identity.services.organizations import set_switches
from tests import factories
from tests.identity.factories import make_org, make_person, make_user

pytestmark = pytest.mark.django_db

# Of 255 characters, in a form that Django takes.
LONG_ADDRESS = f"{'x' * 60}@{'.'.join(['y' * 60] * 3)}.{'z' * 7}.org"


def run(*args: Any) -> str:
    out = io.StringIO()
    call_command(*args, stdout=out)
    return out.getvalue()


def test_what_an_organization_may_do_is_set_and_audited() -> None:
    org = make_org()
    fresh = Organization.objects.get(pk=org.pk)
    assert (fresh.stop_enabled, fresh.infiniband_enabled, fresh.leave_notices_enabled) == (True, False, False)
    assert fresh.balance_cents is None
    said = run(
        "set_org", org.slug, "--stop-enabled=false", "--infiniband-enabled=yes", "--balance-cents=-250"
    )
    assert "stop_enabled False" in said
    org.refresh_from_db()
    assert (org.stop_enabled, org.infiniband_enabled, org.leave_notices_enabled) == (False, True, False)
    assert org.balance_cents == -250
    event = AuditEvent.objects.get(event="org.switches_changed")
    assert event.actor == "operator"
    assert event.before == {"stopEnabled": True, "infinibandEnabled": False, "balanceCents": None}
    assert event.after == {"stopEnabled": False, "infinibandEnabled": True, "balanceCents": -250}
    run("set_org", org.slug, "--stop-enabled=false", "--balance-cents=-250")
    assert AuditEvent.objects.filter(event="org.switches_changed").count() == 1
    run("set_org", org.slug, "--balance-cents=unknown", "--provider=true", "--leave-notices-enabled=on")
    org.refresh_from_db()
    assert (org.balance_cents, org.is_provider, org.leave_notices_enabled) == (None, True, True)
    run("set_org", org.slug, "--account-status=suspended")
    org.refresh_from_db()
    assert org.account_status == "suspended"
    event = AuditEvent.objects.filter(event="org.switches_changed").latest("created_at")
    assert (event.before, event.after) == ({"accountStatus": "active"}, {"accountStatus": "suspended"})


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("nobody", "--stop-enabled=true"), "no organization nobody"),
        (("{slug}",), "Nothing to set"),
        (("{slug}", "--stop-enabled=maybe"), "true or false"),
        (("{slug}", "--balance-cents=1.5"), "whole cents"),
        (("{slug}", "--account-status=closed"), "invalid choice"),
        (("{slug}", "--balance-cents=99999999999999999999"), "balance_cents must be between"),
    ],
)
def test_what_cannot_be_set(args: tuple[str, ...], says: str) -> None:
    slug = make_org().slug
    with pytest.raises(CommandError, match=says):
        run("set_org", *(arg.format(slug=slug) for arg in args))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("create_org", "acme", "x" * 201), "name has 201 characters. It must be at most 200 characters"),
        (("create_org", "x" * 101, "Acme"), "slug has 101 characters. It must be at most 100 characters"),
        (("create_org", "acme", "Acme", "--billing-email", "x" * 255), "billing_email .* at most 254"),
        (("create_user", "a@x.org", "--no-password", "--full-name", "x" * 201), "full_name .* at most 200"),
        (("create_user", LONG_ADDRESS, "--no-password"), "email .* at most 254"),
        (("set_fabric", "ib", "--name", "x" * 129), "name .* at most 128"),
        (("set_fabric", "x" * 65), "slug .* at most 64"),
        (("set_price", "h100", "spot", "9" * 5000), "whole number from 0 to 2147483647"),
        (("set_price", "h100", "spot", "2147483648"), "from 0 to 2147483647"),
    ],
)
def test_what_is_too_long_is_refused_by_name(args: tuple[str, ...], says: str) -> None:
    factories.gpu_model("h100")
    with pytest.raises(CommandError, match=says):
        run(*args)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("SELECT 1 FROM no_such_table", "The database has no tables yet. Run manage.py prepare."),
        (
            "SELECT no_such_column FROM identity_user",
            "The database's tables are of an earlier version. Run manage.py prepare.",
        ),
        ("SELECT 1 / 0", "The database refused a value: division by zero."),
        ("INSERT INTO identity_membership DEFAULT VALUES", "The database refused a value: null value in"),
    ],
)
def test_what_the_database_refuses_ends_a_command_with_a_sentence(
    statement: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(_argv: list[str]) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)

    monkeypatch.setattr(commands, "execute_from_command_line", execute)
    with pytest.raises(SystemExit) as ended:
        commands.main(["manage.py", "check_invariants"])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith(says)
    assert said.count("\n") == 1


def test_a_fault_in_a_statement_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(_argv: list[str]) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELEC 1")

    monkeypatch.setattr(commands, "execute_from_command_line", execute)
    with pytest.raises(ProgrammingError):
        commands.main(["manage.py", "check_invariants"])


def test_switches_are_known_and_of_somebody() -> None:
    with pytest.raises(Invalid):
        set_switches(actor=SYSTEM, organization_id=make_org().id, is_platform_ops=True)
    with pytest.raises(Invalid, match="active, suspended"):
        set_switches(actor=SYSTEM, organization_id=make_org().id, account_status="closed")
    with pytest.raises(NotFound):
        set_switches(actor=SYSTEM, organization_id=new_id(), stop_enabled=True)


def test_roles_are_given_by_name() -> None:
    owner = make_person()
    slug = owner.organization.slug
    role = factories.role(owner.organization, owner.user, name="Night shift")
    user = make_user()
    run("add_member", user.email, slug, "night shift")
    assert Membership.objects.get(user=user).custom_role == role
    assert "is viewer of" in run("change_role", user.email, slug, "viewer")
    assert Membership.objects.get(user=user).role_id == "viewer"
    run("change_role", user.email, slug, str(role.pk))
    assert Membership.objects.get(user=user).role_id == str(role.pk)
    changes = AuditEvent.objects.filter(event="member.role_changed").order_by("created_at", "id")
    assert [event.after["role"] for event in changes] == ["viewer", str(role.pk)]
    for args, says in (
        ((user.email, slug, "emperor"), "role must be one of"),
        ((make_user().email, slug, "viewer"), "is not a member"),
        (("no@example.com", slug, "viewer"), "nobody"),
        ((user.email, "nowhere", "viewer"), "no organization"),
    ):
        with pytest.raises(CommandError, match=says):
            run("change_role", *args)


def test_a_member_is_removed_with_all_their_keys_may_do() -> None:
    person = make_person()
    slug, email = person.organization.slug, person.user.email
    factories.user(person.organization)
    secret = factories.api_key(person.organization, created_by=person.user)
    said = run("remove_member", email.upper(), slug, "--reason=Left the company")
    assert f"{email} is no longer a member" in said
    assert not Membership.objects.filter(user=person.user).exists()
    forget_keys()
    assert not authenticate(secret, source_ip="", request_id="").actions
    with pytest.raises(Unauthenticated):
        authenticate(person.token, source_ip="", request_id="")
    event = AuditEvent.objects.get(event="member.removed")
    assert (event.actor, event.reason, event.before) == ("operator", "Left the company", {"role": "owner"})
    for args, says in (
        ((email, slug), "is not a member"),
        ((email, "nowhere"), "no organization"),
        (("no@example.com", slug), "nobody"),
    ):
        with pytest.raises(CommandError, match=says):
            run("remove_member", *args)
