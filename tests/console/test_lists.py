"""The console's lists and pages: there for every model, to look at, by operators alone."""

import re
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.db import connection, models
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from compute.models import AgentState, Run, Workload
from nodes.models import InventoryReport, Node, NodeIncident
from openrelay.api.models import Beat
from openrelay.audit.models import AuditEvent, AuditRepeat
from openrelay.console.base import LookupFilter
from openrelay.console.listing import ListRefused
from openrelay.core import clock
from reservations.models import Reservation
from tests import factories
from tests.console.filling import fill
from tests.console.world import World

OURS = ("identity", "audit", "api", "nodes", "compute", "reservations")
# Counters that come and go within minutes: what they count is listed as events.
NOT_LISTED = {AuditRepeat}
MODELS = [
    model for label in OURS for model in apps.get_app_config(label).get_models() if model not in NOT_LISTED
]
QUEUE = "admin:reservations_reservation_queue"


def list_of(model: type[models.Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def page_of(model: type[models.Model], pk: Any, page: str = "change") -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=[pk])


def everywhere() -> list[str]:
    return [*(list_of(model) for model in MODELS), reverse(QUEUE), reverse("admin:index")]


class Addresses(HTMLParser):
    """The hosts that a page would have a browser reach."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = [
            value for name, value in attrs if name in ("src", "href", "action", "srcset", "style", "poster")
        ]
        self.found += [value for value in named if value and re.search(r"(^|[\s(,'\"])(https?:)?//", value)]


def opened(client: Client, url: str) -> int:
    """How many queries the page costs. It opens, has a browser reach no other host, and is kept by none."""
    with CaptureQueriesContext(
        connection,
    ) as captured:
        answer = client.get(url)
    assert answer.status_code == 200, url
    seen = Addresses()
    seen.feed(answer.content.decode())
    assert seen.found == [], url
    assert "default-src 'self'" in answer["Content-Security-Policy"]
    assert "no-store" in answer["Cache-Control"]
    return len(captured)


def test_every_model_is_listed() -> None:
    assert [model for model in MODELS if not admin.site.is_registered(model)] == []


def test_every_list_opens_and_takes_as_many_queries_for_1000_rows_as_for_10(
    console: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Enough to see a query for each row shown; rendering more of them shows nothing more.
    for shown in admin.site._registry.values():
        monkeypatch.setattr(shown, "list_per_page", 20)
    Beat.objects.create(at=clock.read())
    fill(10)
    console.get(reverse("admin:index"))  # whatever is looked up once a process
    few = {url: opened(console, url) for url in everywhere()}
    fill(990)
    many = {url: opened(console, url) for url in everywhere()}
    assert many == few
    assert max(few.values()) <= 12


def test_every_page_opens(console: Client) -> None:
    Beat.objects.create(at=clock.read())
    fill(1)
    for model in MODELS:
        found = model._default_manager.order_by("pk").last()
        assert found is not None, model
        opened(console, page_of(model, found.pk))
    reservation = Reservation.objects.get()
    opened(console, reverse("admin:reservations_reservation_review", args=[reservation.pk]))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_nothing_is_changed_by_hand(console: Client, model: type[models.Model]) -> None:
    if model is Beat:
        Beat.objects.create(at=clock.read())
    else:
        fill(1)
    found = model._default_manager.order_by("pk").last()
    assert found is not None
    label = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    before = model._default_manager.order_by("pk").values()
    before = list(before)
    assert console.post(reverse(f"{label}_add"), {}).status_code == 403
    assert console.post(page_of(model, found.pk), {"name": "x", "hostname": "x"}).status_code == 403
    assert console.post(page_of(model, found.pk, "delete"), {"post": "yes"}).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": [str(found.pk)], "post": "yes"}
    console.post(list_of(model), chosen)
    after = list(model._default_manager.order_by("pk").values())
    assert after == before


def test_only_operators_get_in(world: World) -> None:
    reservation = world.reserve(0)
    urls = [*everywhere(), reverse("admin:reservations_reservation_review", args=[reservation.pk])]
    outsider, nobody = Client(), Client()
    outsider.force_login(world.outsider)
    for client in (outsider, nobody):
        for url in urls:
            answer = client.get(url)
            assert answer.status_code == 302, url
            assert answer["Location"].startswith("/console/login/")


def test_a_person_who_left_the_platform_is_out_at_once(console: Client, world: World) -> None:
    assert console.get(list_of(Node)).status_code == 200
    world.operator.memberships.all().delete()
    assert console.get(list_of(Node)).status_code == 302


def rows(client: Client, url: str) -> list[str]:
    """The text of each row of a list."""
    answer = client.get(url)
    assert answer.status_code == 200, url
    listed = answer.context["cl"].result_list
    return [str(row.pk) for row in listed]


def test_reservations_are_filtered_and_searched(console: Client, world: World) -> None:
    first, second = world.reserve(0, ref="CT-7"), world.reserve(1, ref="CT-8")
    elsewhere = factories.node(world.provider)
    url = list_of(Reservation)
    assert rows(console, f"{url}?status=active") == [str(second.pk), str(first.pk)]
    assert rows(console, f"{url}?status=needs-review") == []
    assert rows(console, f"{url}?contract_ref__icontains=ct-7") == [str(first.pk)]
    assert rows(console, f"{url}?q=CT-8") == [str(second.pk)]
    assert rows(console, f"{url}?q={first.pk}") == [str(first.pk)]
    assert rows(console, f"{url}?q={world.node.pk}") == [str(second.pk), str(first.pk)]
    assert rows(console, f"{url}?q=Acme") == [str(second.pk), str(first.pk)]
    assert rows(console, f"{url}?hold__node__id__exact={elsewhere.pk}") == []
    assert rows(console, f"{url}?hold__audience__id__exact={world.tenant.pk}") == [
        str(second.pk),
        str(first.pk),
    ]
    assert rows(console, f"{url}?hold__audience__id__exact={world.other.pk}") == []
    world.change()
    assert rows(console, f"{url}?status=needs-review") == [str(second.pk), str(first.pk)]
    assert rows(console, reverse(QUEUE)) == [str(first.pk), str(second.pk)]


def test_odd_searches_find_nothing_and_break_nothing(console: Client, world: World) -> None:
    for url in everywhere()[:-1]:
        assert console.get(f"{url}?q=%00'%25%F0%9F%A6%8A{'a' * 2000}").status_code == 200, url


def listed(world: World, model: type[models.Model], **chosen: str) -> Any:
    """A model's list under what is chosen, read but not drawn."""
    request = RequestFactory().get(list_of(model), chosen)
    request.user = world.operator
    found = admin.site._registry[model].get_changelist_instance(request)
    list(found.result_list)
    return found


ODD = ("odd", "9" * 400, "2026-13-45", "True,False", "-1")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_choice_of_every_filter_can_be_made(world: World, model: type[models.Model]) -> None:
    for each in listed(world, model).filter_specs:
        if isinstance(each, LookupFilter):
            for value, _ in each.choices_from:
                assert listed(world, model, **{each.parameter_name: value}).has_active_filters
        for name in each.expected_parameters():
            for value in ODD:
                with suppress(ListRefused):  # 400, and no row
                    listed(world, model, **{name: value})


def test_an_empty_list_says_why_it_is_empty(console: Client, world: World) -> None:
    url = list_of(Reservation)
    assert "There are no reservations yet." in console.get(url).content.decode()
    world.reserve(0)
    for chosen in ("q=nowhere", "status=cancelled"):
        assert "No reservations match." in console.get(f"{url}?{chosen}").content.decode()


def test_nul_in_a_filter_breaks_nothing(console: Client) -> None:
    for model, named in ((Reservation, "contract_ref__icontains"), (AuditEvent, "event__icontains")):
        assert console.get(f"{list_of(model)}?{named}=%00a").status_code == 200


def test_the_first_page_leads_to_what_it_counts(console: Client, world: World) -> None:
    at = clock.read()
    AgentState.objects.create(node=factories.node(world.provider))
    AgentState.objects.create(node=world.node, flag="older than one taken", flagged_at=at)
    starting, going, spot, _ = (
        world.workload(world.tenant, unit, tier="spot" if unit == 2 else "community") for unit in range(4)
    )
    Workload.objects.filter(pk=starting.pk).update(status="deploying")
    starting.runs.update(stuck_reported_at=at)
    Workload.objects.filter(pk=going.pk).update(status="terminated", terminated_at=at)
    going.runs.update(desired="gone", gone_asked_at=at, overdue_reported_at=at)
    world.reserve(4)
    for ended_at in (None, at):
        NodeIncident.objects.create(
            node=world.node, kind="two-hosts", detail="x", began_at=at, last_at=at, ended_at=ended_at
        )
    counted = {
        figure["title"]: (figure["value"], len(rows(console, figure["url"])))
        for figure in console.get(reverse("admin:index")).context["figures"]
        if figure["title"] not in ("Nodes online", "Needs review")
    }
    assert counted == {
        "Active reservations": (1, 1),
        "Pending reservations": (0, 0),
        "Workloads running": (2, 2),
        "of them spot": (1, 1),
        "Agents flagged": (1, 1),
        "Agent incidents": (1, 1),
        "Starts overdue": (1, 1),
        "Teardowns overdue": (1, 1),
    }
    assert rows(console, f"{list_of(Run)}?overdue=start") == [str(starting.runs.get().pk)]
    assert rows(console, f"{list_of(Workload)}?status=running&tier=spot") == [str(spot.pk)]


def test_nodes_show_whether_they_are_online_and_what_there_is_to_decide(
    console: Client, world: World
) -> None:
    world.reserve(0)
    world.reserve(1)
    world.change()
    silent = factories.node(world.provider)
    silent.heartbeat.seen_at = None
    silent.heartbeat.save()
    listed = {row.hostname: row for row in console.get(list_of(Node)).context["cl"].result_list}
    node = listed[world.node.hostname]
    assert (node.status, node.unit_total, node.in_review) == ("online", 8, 2)
    assert (listed[silent.hostname].status, listed[silent.hostname].in_review) == ("offline", 0)
    assert rows(console, f"{list_of(Node)}?status=offline") == [str(silent.pk)]
    assert rows(console, f"{list_of(Node)}?review=0") == [str(world.node.pk)]


def test_flagged_reports_are_found(console: Client, world: World) -> None:
    factories.inventory(world.node, [])
    flagged = InventoryReport.objects.exclude(flagged="").get()
    assert rows(console, f"{list_of(InventoryReport)}?taken=no") == [str(flagged.pk)]
    assert "it lists no unit at all" in console.get(reverse("admin:index")).content.decode()


def test_no_secret_and_nothing_of_a_guest_is_shown(console: Client, world: World) -> None:
    made = world.workload(world.tenant, 0)
    type(made).objects.filter(pk=made.pk).update(
        env_vars={"TOKEN": "hidden-value"}, cloud_init="#!hidden-script"
    )
    key = factories.api_key(world.tenant)
    from_key = world.tenant.api_keys.get(prefix=key[:10])
    for url, secret in (
        (page_of(type(made), made.pk), "hidden-"),
        (page_of(type(from_key), from_key.pk), from_key.sha256),
        (page_of(type(world.operator), world.operator.pk), world.operator.password),
    ):
        assert secret not in console.get(url).content.decode()


def test_history_is_the_audit_log(console: Client, world: World) -> None:
    reservation = world.reserve(0)
    answer = console.get(page_of(Reservation, reservation.pk, "history"), follow=True)
    assert [event.event for event in answer.context["cl"].result_list] == ["reservation.created"]
