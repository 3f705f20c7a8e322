"""Every page of the console × every method × every kind of visitor."""

from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from compute.models import Run
from openrelay.api.models import Beat
from openrelay.audit.models import AuditEvent
from openrelay.console.base import FactsAdmin
from openrelay.core import clock
from openrelay.identity.models import User
from openrelay.identity.permissions import ACTIONS, AREAS, BUILTIN_ROLES
from tests import factories
from tests.console.filling import fill
from tests.console.test_lists import MODELS
from tests.console.world import World

#: The pages of one object beside Django's own, with the action that each needs beside its list's.
PAGES = {
    "reservations_reservation_queue": "reservation.read",
    "reservations_reservation_review": "reservation.read",
    "reservations_reservation_confirm": "reservation.manage",
    "compute_run_override": "compute.operate",
    "compute_agentstate_reset": "provider.write",
    "nodes_node_reissue": "provider.write",
    "nodes_node_revoke": "provider.write",
    "identity_membership_role": "member.manage",
    "identity_membership_remove": "member.manage",
    "identity_sessiontoken_end": "member.manage",
}
#: What shows nothing of any model, or asks the model's own admin.
OTHERS = {
    "index",
    "search",
    "login",
    "logout",
    "password_change",
    "password_change_done",
    "autocomplete",
    "jsi18n",
    "view_on_site",
    "app_list",
}
#: Lists that are reached from the pages of their nodes or runs alone.
NOT_IN_THE_NAVIGATION = ("/gueststate/", "/agentepoch/", "/inventorystate/")
OWN = {"changelist", "add", "history", "delete", "change"}
METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
READS = {f"{area.id}.read" for area in AREAS if f"{area.id}.read" in ACTIONS}


def names() -> set[str]:
    """The names of the console's routes."""
    found: set[str] = set()

    def walk(patterns: list[Any]) -> None:
        for each in patterns:
            if isinstance(each, URLResolver):
                walk(each.url_patterns)
            elif isinstance(each, URLPattern) and each.name:
                found.add(each.name)

    console = [each for each in get_resolver().url_patterns if getattr(each, "namespace", None) == "admin"]
    walk(console)
    return found


def read_action(label: str) -> str:
    shown = next(
        each
        for model, each in admin.site._registry.items()
        if f"{model._meta.app_label}_{model._meta.model_name}" == label
    )
    assert isinstance(shown, FactsAdmin)
    return shown.read_action


def pages() -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Each page about a model by name: its address, its kind, the actions that it needs."""
    rows: dict[str, tuple[str, str, tuple[str, ...]]] = {}
    for model in MODELS:
        label = f"{model._meta.app_label}_{model._meta.model_name}"
        found = model._default_manager.order_by("pk").last()
        assert found is not None, model
        for kind in OWN:
            args = [] if kind in ("changelist", "add") else [found.pk]
            needed = (read_action(label), *(["audit.read"] if kind == "history" else []))
            rows[f"{label}_{kind}"] = (reverse(f"admin:{label}_{kind}", args=args), kind, needed)
    for name, action in PAGES.items():
        label, _, kind = name.rpartition("_")
        model = next(m for m in MODELS if f"{m._meta.app_label}_{m._meta.model_name}" == label)
        pk = [] if kind == "queue" else [model._default_manager.order_by("pk").last().pk]  # type: ignore[union-attr]
        rows[name] = (reverse(f"admin:{name}", args=pk), kind, (action, read_action(label)))
    return rows


@pytest.fixture
def filled(world: World) -> World:
    """The world, with a row of every model."""
    Beat.objects.create(at=clock.read())
    fill(1)
    return world


def test_every_route_has_a_row_here_and_every_model_an_action() -> None:
    labels = {f"{model._meta.app_label}_{model._meta.model_name}" for model in MODELS}
    assert names() - OTHERS == {f"{label}_{kind}" for label in labels for kind in OWN} | set(PAGES)
    for model, shown in admin.site._registry.items():
        assert isinstance(shown, FactsAdmin), model
        assert shown.read_action in READS, model


def test_an_admin_that_names_no_action_is_closed_to_an_owner(world: World) -> None:
    class Unnamed(FactsAdmin):
        pass

    shown = Unnamed(Run, admin.site)
    request: Any = type("Request", (), {"user": User.objects.get(pk=world.operator.pk), "method": "GET"})()
    assert not shown.has_view_permission(request)
    assert not shown.has_module_permission(request)


def test_who_is_no_operator_is_sent_to_sign_in(filled: World) -> None:
    outsider = Client()
    outsider.force_login(filled.outsider)
    for client in (Client(), outsider):
        for name, (url, _, _) in pages().items():
            for method in METHODS if name in PAGES else ("get", "post"):
                answer = getattr(client, method)(url)
                assert (answer.status_code, answer["Location"].partition("?")[0]) == (
                    302,
                    "/console/login/",
                ), (name, method)


ROLES = [
    *BUILTIN_ROLES,
    "reservation.read",
    "provider.read",
    "compute.operate",
    "member.manage",
    "audit.read",
]


@pytest.mark.parametrize("role", ROLES)
def test_a_page_needs_its_action(filled: World, role: str) -> None:
    person = factories.user(filled.platform, role if role in BUILTIN_ROLES else "viewer")
    if role not in BUILTIN_ROLES:
        own = factories.role(filled.platform, filled.operator, permissions=[role])
        person.memberships.update(role="", custom_role=own)
    held = User.objects.get(pk=person.pk).console_actions
    client = Client()
    client.force_login(person)
    for name, (url, kind, needed) in pages().items():
        allowed = held.issuperset(needed)
        answer = client.get(url)
        if kind in ("add", "delete") or not allowed:
            assert answer.status_code == 403, (name, role)
        else:
            # A decision that names no choice is refused for that, and not for want of a right.
            assert answer.status_code in (200, 302, 400), (name, role, answer.status_code)
            assert answer.headers.get("Location", "/console/").startswith("/console/"), name
        if not allowed:
            for method in METHODS[2:] if name in PAGES else ("post",):
                assert getattr(client, method)(url).status_code in (403, 405), (name, role, method)
    front = client.get(reverse("admin:index"))
    assert front.status_code == 200
    # What the front page and the navigation link to, the operator may open.
    links = {url for figure in front.context["figures"] for url in [figure["url"].partition("?")[0]]}
    for group in front.context["sidebar_navigation"]:
        links |= {str(item["link"]) for item in group["items"] if item["has_permission"]}
    lists = {
        url: held.issuperset(needed)
        for url, kind, needed in pages().values()
        if kind in ("changelist", "queue")
    }
    assert all(lists.get(url, url == reverse("admin:index")) for url in links)
    page = front.content.decode()
    for url, may in lists.items():
        assert (f'"{url}"' in page) == may or url.endswith(NOT_IN_THE_NAVIGATION), url


def test_a_refused_decision_is_noted_on_its_object(filled: World) -> None:
    client = Client()
    client.force_login(filled.viewer)
    run = Run.objects.order_by("pk").last()
    assert run is not None
    url = reverse("admin:compute_run_override", args=[run.pk])
    assert client.get(url).status_code == 403
    assert not AuditEvent.objects.filter(event="request.refused").exists()
    answer = client.post(url, {"reason": "why"})
    assert answer.status_code == 403
    assert "compute.operate" in answer.content.decode()
    event = AuditEvent.objects.get(event="request.refused")
    assert (event.target_type, event.target_id, event.after["permission"]) == (
        "run",
        str(run.pk),
        "compute.operate",
    )


def test_links_lead_only_where_the_operator_may_go(filled: World) -> None:
    reservation = filled.reserve(0)
    own = factories.role(filled.platform, filled.operator, permissions=["reservation.read"])
    person = factories.user(filled.platform, "viewer")
    person.memberships.update(role="", custom_role=own)
    client = Client()
    client.force_login(person)
    for name in ("review", "change"):
        page = client.get(reverse(f"admin:reservations_reservation_{name}", args=[reservation.pk]))
        text = page.content.decode()
        assert name != "review" or filled.node.hostname in text
        for label in ("identity", "nodes/node", "compute", "audit"):
            assert f'href="/console/{label}' not in text, (name, label)
        assert "history/" not in text
    full = Client()
    full.force_login(filled.operator)
    page = full.get(reverse("admin:reservations_reservation_review", args=[reservation.pk]))
    assert f'href="{reverse("admin:nodes_node_change", args=[filled.node.pk])}"' in page.content.decode()


def test_pages_show_no_secret_that_the_database_holds(filled: World) -> None:
    """Plant a value in every column that no page shows, and look for it on every page."""
    planted = "planted-secret-value"
    hidden = {
        "compute_workload": {
            "env_vars": {"K": planted},
            "cloud_init": planted,
            "container_command": [planted],
        },
        "compute_gueststate": {"console": planted},
        "api_idempotencykey": {"answer": {"secret": planted}},
        "identity_user": {"password": planted},
        "identity_apikey": {"sha256": planted},
        "identity_sessiontoken": {"sha256": planted},
        "nodes_nodecredential": {"digest": planted},
    }
    client = Client()
    client.force_login(filled.operator)
    for model in MODELS:
        label = f"{model._meta.app_label}_{model._meta.model_name}"
        if label not in hidden:
            continue
        found = model._default_manager.order_by("pk").last()
        assert found is not None
        model._default_manager.filter(pk=found.pk).update(**hidden[label])
        for url in (
            reverse(f"admin:{label}_change", args=[found.pk]),
            reverse(f"admin:{label}_changelist"),
        ):
            assert planted not in client.get(url).content.decode(), url
        found_by_search = client.get(reverse(f"admin:{label}_changelist"), {"q": planted})
        assert not found_by_search.context["cl"].result_list, label
