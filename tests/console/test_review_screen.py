"""The review screen, walked through in a real Chromium."""

import re
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from openrelay.audit.models import AuditEvent
from openrelay.core import clock
from reservations.models import Reservation
from tests import factories
from tests.console import world as worlds
from tests.console.conftest import Screen
from tests.console.world import World


@pytest.fixture
def world(screen: Screen) -> World:
    """The same world, committed for the server to see."""
    return worlds.build()


def status_of(reservation: Reservation) -> str:
    found = Reservation.objects.with_status(clock.Now()).get(pk=reservation.pk)
    return str(found.status)


def last_event(reservation: Reservation) -> AuditEvent:
    event = AuditEvent.objects.filter(target_id=str(reservation.pk)).first()
    assert event is not None
    return event


def confirm(page: Page, button: str, reason: str) -> list[str]:
    """Give the reason and press the button; returns the effects that were told before."""
    effects = page.locator("#effects li").all_inner_texts()
    page.get_by_label("Reason").fill(reason)
    page.get_by_role("button", name=button).click()
    return effects


def accessible(page: Page) -> None:
    """The page names its language, has one heading of the first level, and a label for every input."""
    assert page.evaluate("document.documentElement.lang")
    assert page.locator("h1").count() == 1
    unlabelled = page.evaluate(
        """() => [...document.querySelectorAll('input, select, textarea')]
            .filter(field => field.type !== 'hidden' && field.checkVisibility())
            .filter(field => !field.labels.length && !field.ariaLabel && !field.ariaLabelledByElements
                && !field.getAttribute('aria-labelledby') && !field.placeholder)
            .map(field => field.outerHTML.slice(0, 200))"""
    )
    assert unlabelled == []


def test_an_operator_finds_what_needs_review_and_reaffirms_it(screen: Screen, world: World) -> None:
    reservation = world.reserve(0, 1, 2, ref="CT-7")
    world.workload(world.tenant, 1, name="trainer")
    world.workload(world.other, 0, name="notebook")
    world.reserve(4, ref="CT-8", starts_at=clock.read() + timedelta(days=1))
    world.change()

    screen.sign_in(world.operator)
    page = screen.page
    expect(page.get_by_role("heading", level=1)).to_contain_text("Overview")
    navigation = page.get_by_role("link", name=re.compile("Needs review"))
    expect(navigation.first).to_contain_text("2")
    accessible(page)
    navigation.first.click()
    expect(page.locator("#result_list tbody tr")).to_have_count(2)
    accessible(page)
    page.get_by_role("link", name="CT-7").click()

    expect(page.locator("#status")).to_have_text("needs-review")
    changed = page.locator("#units tr", has_text="0000:12:00.0")
    expect(changed).to_contain_text("changed")
    expect(changed).to_contain_text("1 → 2 GPUs")
    expect(page.locator("#units tr", has_text="0000:10:00.0")).to_contain_text("same")
    expect(page.locator("#units tr", has_text="0000:18:00.0")).to_contain_text("new")
    expect(page.locator("#workloads tr", has_text="notebook")).to_contain_text("other org")
    expect(page.locator("#workloads tr", has_text="trainer")).to_contain_text("in the audience")
    expect(page.get_by_text("Generation 2", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="report 2")).to_be_visible()
    accessible(page)

    page.get_by_role("button", name="Re-affirm…").click()
    accessible(page)
    effects = confirm(page, "Re-affirm the reservation", "The provider swapped the GPU as agreed")
    assert any("pinned to topology generation 2" in effect and "active" in effect for effect in effects)
    assert any("0000:12:00.0" in effect and "1 → 2 GPUs" in effect for effect in effects)

    expect(page.get_by_text("Re-affirmed:")).to_be_visible()
    expect(page.locator("#status")).to_have_text("active")
    expect(page.get_by_role("link", name=re.compile("Needs review")).first).to_contain_text("1")
    assert status_of(reservation) == "active"
    event = last_event(reservation)
    assert (event.event, event.actor) == ("reservation.reaffirmed", f"user:{world.operator.pk}")
    assert event.reason == "The provider swapped the GPU as agreed"
    assert event.source_ip == "127.0.0.1"


def test_a_decision_on_a_stale_page_is_refused_and_the_page_redrawn(screen: Screen, world: World) -> None:
    reservation = world.reserve(0, 2, ref="CT-7")
    world.change()
    screen.sign_in(world.operator)
    page = screen.page
    screen.open(f"reservations/reservation/{reservation.pk}/review/")
    page.get_by_role("button", name="Re-affirm…").click()
    page.get_by_label("Reason").fill("As it was shown to me")

    worlds.factories.inventory(world.node, 3)  # units 3 to 8 are gone
    page.get_by_role("button", name="Re-affirm the reservation").click()

    expect(page.locator("#refusal")).to_contain_text("The node changed meanwhile")
    expect(page.locator("#refusal")).to_contain_text("As it was shown to me")
    expect(page.locator("#generation")).to_have_text("generation 3")
    assert status_of(reservation) == "needs-review"

    # The page of before, too, leads to no confirmation of what is no longer so.
    page.go_back()
    page.go_back()
    page.get_by_role("button", name="Cancel now…").click()
    expect(page.locator("#refusal, #effects").first).to_be_visible()


def test_cancelling_says_what_becomes_free_and_what_keeps_running(screen: Screen, world: World) -> None:
    reservation = world.reserve(0, 1, 2, ref="CT-7")
    world.workload(world.other, 0, name="notebook")
    screen.sign_in(world.operator)
    page = screen.page
    screen.open(f"reservations/reservation/{reservation.pk}/review/")
    expect(page.get_by_role("button", name="Re-affirm…")).to_have_count(0)
    page.get_by_role("button", name="Cancel now…").click()
    effects = confirm(page, "Cancel the reservation", "The customer left")

    assert "0000:11:00.0 and 0000:12:00.0 become free to the public now." in effects
    assert "1 workload of other orgs keeps running; nothing is stopped." in effects
    expect(page.locator("#status")).to_have_text("cancelled")
    expect(page.get_by_text("Nothing is left to decide")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel now…")).to_have_count(0)
    assert last_event(reservation).event == "reservation.cancelled"


def test_the_audience_is_amended(screen: Screen, world: World) -> None:
    reservation = world.reserve(0, ref="CT-7")
    screen.sign_in(world.operator)
    page = screen.page
    screen.open(f"reservations/reservation/{reservation.pk}/review/")

    page.get_by_label("Add organizations").fill("no-such-org")
    page.get_by_role("button", name="Amend the audience…").click()
    expect(page.locator("#refusal")).to_contain_text("There is no organization no-such-org")
    expect(page.get_by_label("Add organizations")).to_have_value("no-such-org")

    page.get_by_label("Add organizations").fill(world.other.slug)
    page.get_by_label(world.tenant.name).check()
    page.get_by_role("button", name="Amend the audience…").click()
    effects = confirm(page, "Change the audience", "The contract was handed over")

    assert "The audience is then Bystander Labs and Platform." in effects
    expect(page.get_by_text("The audience is changed.")).to_be_visible()
    expect(page.get_by_role("link", name="Bystander Labs")).to_be_visible()
    found = Reservation.objects.with_facts(clock.Now()).get(pk=reservation.pk)
    assert set(found.audience_ids) == {world.other.pk, world.platform.pk}


def test_another_end_is_set(screen: Screen, world: World) -> None:
    reservation = world.reserve(0, ref="CT-7")
    screen.sign_in(world.operator)
    page = screen.page
    screen.open(f"reservations/reservation/{reservation.pk}/review/")
    page.get_by_label("New end (UTC)").fill("2020-01-01T00:00:00")
    page.get_by_role("button", name="End at a time…").click()
    confirm(page, "Change the end", "A slip of the pen")
    expect(page.locator("#refusal")).to_contain_text("is not after the start")

    end = (clock.read() + timedelta(days=3)).replace(microsecond=0)
    page.get_by_label("New end (UTC)").fill(end.strftime("%Y-%m-%dT%H:%M:%S"))
    page.get_by_role("button", name="End at a time…").click()
    effects = confirm(page, "Change the end", "The customer needs it for three days")
    assert any(effect.startswith(f"The reservation ends {clock.rfc3339(end)}") for effect in effects)
    expect(page.get_by_text("The end is changed.")).to_be_visible()
    reservation.refresh_from_db()
    assert reservation.ends_at == end


def test_a_decision_needs_a_reason(screen: Screen, world: World) -> None:
    reservation = world.reserve(0, ref="CT-7")
    screen.sign_in(world.operator)
    page = screen.page
    screen.open(f"reservations/reservation/{reservation.pk}/review/")
    page.get_by_role("button", name="Cancel now…").click()
    page.get_by_label("Reason").fill("   ")
    page.get_by_role("button", name="Cancel the reservation").click()
    expect(page.get_by_role("alert")).to_contain_text("Say why")
    assert status_of(reservation) == "active"


def test_who_is_not_an_operator_is_refused(screen: Screen, world: World) -> None:
    screen.sign_in(world.outsider)
    expect(screen.page.get_by_text("is not one of them")).to_be_visible()
    screen.open("reservations/reservation/review/")
    expect(screen.page.get_by_role("button", name="Log in")).to_be_visible()
    screen.sign_in(world.operator, "not the password")
    expect(screen.page.get_by_text("do not go together")).to_be_visible()
    accessible(screen.page)


def test_an_operator_without_the_right_sees_and_cannot_decide(screen: Screen, world: World) -> None:
    reservation = world.reserve(0, ref="CT-7")
    role = factories.role(world.platform, world.operator, permissions=["reservation.read"])
    world.viewer.memberships.update(role="", custom_role=role)
    screen.sign_in(world.viewer)
    screen.open(f"reservations/reservation/{reservation.pk}/review/")
    expect(screen.page.locator("#may-not")).to_contain_text("reservation.manage")
    expect(screen.page.get_by_role("button", name="Cancel now…")).to_have_count(0)


def test_an_operator_filters_a_list_with_the_keyboard(screen: Screen, world: World) -> None:
    world.reserve(0, ref="CT-7")
    world.reserve(1, ref="CT-8", starts_at=clock.read() + timedelta(days=1))
    screen.sign_in(world.operator)
    screen.open("reservations/reservation/")
    page = screen.page
    page.locator("#searchbar").fill("CT-8")
    page.keyboard.press("Enter")
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    expect(page.locator("#result_list tbody")).to_contain_text("pending")
    screen.open("nodes/node/")
    expect(page.locator("#result_list tbody tr")).to_contain_text("online")
