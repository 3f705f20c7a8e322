"""Owners stay, nobody acts on somebody who holds more, and a changed password ends sessions."""

import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.test import Client

from openrelay.audit.models import AuditEvent
from openrelay.audit.services.record import OPERATOR
from openrelay.core import clock
from openrelay.core.errors import Conflict, Forbidden
from openrelay.core.ids import new_id
from openrelay.identity.models import Membership, SessionToken, User
from openrelay.identity.services import memberships
from openrelay.identity.services.callers import console_caller
from openrelay.identity.services.users import set_password
from tests import factories

ROOT = settings.BASE_DIR


def place(person: User) -> Membership:
    return Membership.objects.get(user=person)


@pytest.mark.django_db
@pytest.mark.parametrize("act", ["demote", "remove"])
def test_the_last_owner_stays(act: str) -> None:
    org = factories.organization()
    owner = factories.user(org)
    factories.user(org, "admin")

    def do() -> None:
        if act == "demote":
            memberships.change_role(
                actor=OPERATOR, user_id=owner.pk, organization_id=org.pk, role="admin", reason="x"
            )
        else:
            memberships.remove_member(actor=OPERATOR, user_id=owner.pk, organization_id=org.pk)

    with pytest.raises(Conflict, match="last owner"):
        do()
    assert place(owner).role == "owner"
    factories.user(org)
    do()


@pytest.mark.django_db
def test_an_owner_who_is_not_active_counts_for_nothing() -> None:
    org = factories.organization()
    owner, other = factories.user(org), factories.user(org)
    User.objects.filter(pk=other.pk).update(is_active=False)
    with pytest.raises(Conflict, match="last owner"):
        memberships.remove_member(actor=OPERATOR, user_id=owner.pk, organization_id=org.pk)
    memberships.remove_member(actor=OPERATOR, user_id=other.pk, organization_id=org.pk)


@pytest.mark.django_db(transaction=True)
def test_two_owners_who_remove_each_other_at_once_leave_one() -> None:
    for _ in range(5):
        org = factories.organization()
        people = [factories.user(org), factories.user(org)]
        begin = threading.Barrier(2)
        refused: list[Conflict] = []

        def remove(person: User, org: Any = org, begin: Any = begin, refused: Any = refused) -> None:
            begin.wait()
            try:
                memberships.remove_member(actor=OPERATOR, user_id=person.pk, organization_id=org.pk)
            except Conflict as error:
                refused.append(error)
            finally:
                connection.close()

        threads = [threading.Thread(target=remove, args=(person,)) for person in people]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 1
        assert Membership.objects.filter(organization=org, role="owner").count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("act", ["demote", "remove"])
def test_nobody_acts_on_somebody_who_holds_more(act: str) -> None:
    platform = factories.platform()
    boss, other = factories.user(platform), factories.user(platform)
    role = factories.role(platform, boss, permissions=["member.manage"])
    clerk = factories.user(platform, "viewer")
    Membership.objects.filter(user=clerk).update(role="", custom_role=role)
    caller = console_caller(clerk.pk, platform.pk, source_ip="127.0.0.1", request_id="")

    def do(target: User) -> None:
        if act == "demote":
            memberships.change_role_as_operator(
                caller=caller, membership_id=place(target).pk, role=str(role.pk), reason="x"
            )
        else:
            memberships.remove_member_as_operator(caller=caller, membership_id=place(target).pk, reason="x")

    with pytest.raises(Forbidden) as refused:
        do(other)
    assert refused.value.code == "ESCALATION_REFUSED"
    assert place(other).role == "owner"
    equal = factories.user(platform, "viewer")
    Membership.objects.filter(user=equal).update(role="", custom_role=role)
    do(equal)


@pytest.mark.django_db
def test_sessions_end_with_the_password_and_with_the_membership(client: Client) -> None:
    org, elsewhere = factories.organization(), factories.organization()
    person = factories.user(org)
    factories.user(org)
    Membership.objects.create(
        user=person,
        organization=elsewhere,
        role="viewer",
        invited_at=place(person).invited_at,
        joined_at=place(person).joined_at,
    )

    def serves(secret: str) -> bool:
        answer = client.get("/v1/me", headers={"Authorization": f"Bearer {secret}"})
        return bool(answer.status_code == 200)

    one, other = factories.session(person, org), factories.session(person, elsewhere)
    assert serves(one)
    assert serves(other)
    memberships.remove_member(actor=OPERATOR, user_id=person.pk, organization_id=elsewhere.pk)
    assert serves(one)
    assert SessionToken.objects.filter(user=person, organization=elsewhere, revoked_at=None).count() == 0
    set_password(actor=OPERATOR, user_id=person.pk, password="another long secret")
    assert not serves(one)
    ended = AuditEvent.objects.filter(event="session.revoked").order_by("created_at", "id")
    assert [event.reason for event in ended] == ["the member was removed", "the password was changed"]


@pytest.mark.django_db(transaction=True)
def test_sessions_are_locked_in_the_order_of_their_ids() -> None:
    org = factories.organization()
    person, now = factories.user(org), clock.read()
    low, high = sorted([new_id(), new_id()])
    for pk in (high, low):
        SessionToken.objects.create(
            id=pk,
            sha256=pk.hex * 2,
            user=person,
            organization=org,
            created_at=now,
            expires_at=now + timedelta(hours=1),
        )

    def change() -> None:
        try:
            set_password(actor=OPERATOR, user_id=person.pk, password="correct horse battery")
        finally:
            connection.close()

    thread = threading.Thread(target=change)
    with transaction.atomic():
        SessionToken.objects.select_for_update().get(pk=low)
        thread.start()
        thread.join(1.0)
        assert thread.is_alive()
        SessionToken.objects.select_for_update(nowait=True).get(pk=high)
    thread.join(60)
    assert not SessionToken.objects.filter(revoked_at=None).exists()


@pytest.mark.parametrize(
    "password", ["123456789012", "aaaaaaaaaaaa", "abababababab", "password1234", "ada.lovelace@example"]
)
def test_a_password_that_is_easily_guessed_is_refused(password: str) -> None:
    with pytest.raises(ValidationError):
        validate_password(password, User(email="ada.lovelace@example.com", full_name="Ada Lovelace"))


def test_a_good_password_is_taken() -> None:
    validate_password("correct horse battery", User(email="ada@example.com"))


def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a management command without a terminal, a home or any setting."""
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *command],
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "OPENRELAY_HOME": "/nonexistent", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


COMMANDS = sorted(
    path.stem for path in ROOT.glob("*/**/management/commands/[a-z]*.py") if ".venv" not in path.parts
)


@pytest.mark.parametrize("command", [*COMMANDS, "migrate"])
def test_help_needs_no_installation(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
    assert "Traceback" not in done.stderr


SECRET = {"SECRET_KEY": "x" * 50, "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"}


@pytest.mark.parametrize(
    ("command", "env", "says"),
    [
        (["check_invariants"], {}, "SECRET_KEY is not set"),
        (["check_invariants"], SECRET, "The database at 127.0.0.1:1/none cannot be reached"),
        (["prepare"], SECRET, "The database at 127.0.0.1:1/none cannot be reached"),
        (["create_user", "ada@example.com"], SECRET, "OPENRELAY_USER_PASSWORD"),
        (["create_user", "no address"], SECRET, "valid email"),
        (["create_user", "a@example.com"], {**SECRET, "OPENRELAY_USER_PASSWORD": "1"}, "too short"),
        (["set_password", "ada@example.com"], SECRET, "DATABASE_URL"),
        (["createsuperuser"], SECRET, "create_user"),
        (["createsuperuser", "--noinput"], {}, "create_user"),
        (["changepassword", "ada@example.com"], SECRET, "set_password"),
    ],
)
def test_a_command_that_cannot_run_says_so_in_a_sentence(
    command: list[str], env: dict[str, str], says: str
) -> None:
    done = run(*command, **env)
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert done.stdout == ""
