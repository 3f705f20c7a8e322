"""Names and texts have no characters that cannot be seen."""

from argparse import ArgumentTypeError
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class
from django.test import Client

from nodes.services.fabrics import set_fabric
from openrelay.api.schema.book import book
from openrelay.api.serializers import FreeTextField, NameField, ToldField
from openrelay.audit.services.record import OPERATOR
from openrelay.console.forms import ReasonForm
from openrelay.core.errors import Invalid
from openrelay.core.text import fault_of_name, fault_of_text
from openrelay.identity.services.organizations import create_organization
from openrelay.identity.services.users import create_user
from tests import factories

UNSEEN = {
    "zero width space": "\u200b",
    "word joiner": "\u2060",
    "byte order mark": "\ufeff",
    "soft hyphen": "\u00ad",
    "right-to-left override": "\u202e",
    "left-to-right isolate": "\u2066",
    "right-to-left mark": "\u200f",
    "line separator": "\u2028",
    "no-break space": "\u00a0",
    "ideographic space": "\u3000",
    "hangul filler": "\u3164",
    "braille pattern blank": "\u2800",
    "tag letter": "\U000e0041",
    "variation selector": "\U000e0101",
    "escape": "\x1b",
    "bell": "\x07",
    "next line": "\x85",
    "private use": "\ue000",
    "unassigned": "\u0378",
}
SEEN = ["web-1", "Größe 3", "حاسوب", "می‌خواهم", "क्‍ष", "機械 学習", "👩‍💻", "❤️", "naïve", "a b"]


@pytest.mark.parametrize("name", UNSEEN)
@pytest.mark.parametrize("place", ["{}vm", "v{}m", "vm{}", "{}"])
def test_a_name_with_an_unseen_character_is_refused(name: str, place: str) -> None:
    text = place.format(UNSEEN[name])
    assert fault_of_name(text) != ""


@pytest.mark.parametrize("name", SEEN)
def test_a_name_that_people_write_is_taken(name: str) -> None:
    assert fault_of_name(name) == ""
    assert fault_of_text(name) == ""


@pytest.mark.parametrize("text", ["\u200c", "a\u200db", "\u200d機", "機\u200d", "a\u200d機"])
def test_a_joiner_that_joins_nothing_is_refused(text: str) -> None:
    assert "U+200" in fault_of_name(text)


def test_a_text_has_lines_and_a_name_has_not() -> None:
    assert fault_of_text("first\nsecond\tthird\r\n") == ""
    assert fault_of_name("first\nsecond")
    assert fault_of_text("first\u202esecond")
    assert fault_of_name("   ")


def test_the_fault_says_which_and_where() -> None:
    assert fault_of_name("ab\u202ec") == (
        "has a character that cannot be seen at position 3: U+202E, right-to-left override. Leave it out"
    )


def test_every_name_and_every_text_of_the_api_has_the_rule() -> None:
    names = {"name", "contractRef"}
    texts = {"reason", "note", "description"}
    seen = set()
    for operation in book().operations.values():
        if operation.body is not None:
            for name, field in operation.body().fields.items():
                if name in names | texts:
                    seen.add(name)
                    assert isinstance(field, NameField if name in names else FreeTextField), (
                        operation.body,
                        name,
                    )
    assert seen == names | texts


@pytest.mark.django_db
def test_the_api_refuses_it_by_name(client: Client) -> None:
    org = factories.organization()
    person = factories.user(org)
    answer = client.post(
        f"/v1/orgs/{org.pk}/api-keys/create",
        {"name": "ci\u200b"},
        content_type="application/json",
        headers={"Authorization": f"Bearer {factories.session(person, org)}"},
    )
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("name has a character that cannot be seen at position 3: U+200B")


@pytest.mark.django_db
@pytest.mark.parametrize("make", ["organization", "person"])
def test_services_refuse_it_for_commands_too(make: str) -> None:
    def act() -> Any:
        if make == "organization":
            return create_organization(actor=OPERATOR, name="Acme\u202e", slug="acme")
        return create_user(actor=OPERATOR, email="a@example.com", full_name="Ada\u2066")

    with pytest.raises(Invalid, match="cannot be seen"):
        act()


def test_the_console_refuses_it_in_a_reason() -> None:
    form = ReasonForm({"reason": "because\u202e"})
    assert not form.is_valid()
    assert "cannot be seen" in str(form.errors)
    assert ReasonForm({"reason": "one\ntwo"}).is_valid()


@pytest.mark.django_db
def test_a_fabric_is_not_given_such_a_name() -> None:
    with pytest.raises(Invalid, match=r"^name has a character that cannot be seen at position 4: U\+202E"):
        set_fabric("ib-1", name="ib1\u202e", networks=[], actor=OPERATOR)


def commands_that_take_text() -> list[tuple[str, str]]:
    """Each command of the product with an option that takes free text or a name."""
    return [
        (command, option)
        for command, app in get_commands().items()
        if isinstance(app, str) and app.split(".")[0] in ("openrelay", "nodes", "compute", "reservations")
        for option in load_command_class(app, command)
        .create_parser("manage.py", command)
        ._option_string_actions
        if option in ("--reason", "--note")
    ]


@pytest.mark.parametrize(("command", "option"), commands_that_take_text())
def test_commands_refuse_it_in_a_reason(command: str, option: str) -> None:
    parser = load_command_class(get_commands()[command], command).create_parser("manage.py", command)
    read = parser._option_string_actions[option].type or str
    with pytest.raises(ArgumentTypeError, match="cannot be seen"):
        read("because\u202e")
    assert read("first\nsecond") == "first\nsecond"


@pytest.mark.parametrize(
    "character", ["\u202e", "\u2066", "\u200f", "\u200b", "\u2028", "\ufeff", "\x9b", "\x1b"]
)
def test_what_a_host_passes_on_is_kept_without_it(character: str) -> None:
    assert ToldField().run_validation(f"card failed{character}") == "card failed"


def test_what_a_host_passes_on_keeps_lines_and_joiners() -> None:
    assert ToldField().run_validation("first\n\tsecond می‌خواهم") == "first\n\tsecond می‌خواهم"
