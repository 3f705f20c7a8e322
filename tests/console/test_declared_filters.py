"""The lists of the console filter, order and search by what they declare, and by nothing else."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.admin.filters import SimpleListFilter
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.test import Client, RequestFactory
from django.urls import reverse

from compute.models import Workload
from openrelay.audit.models import AuditEvent
from openrelay.console.listing import ListRefused
from openrelay.identity.models import ApiKey, User
from reservations.admin.lists import ReviewQueue
from reservations.models import Reservation
from tests.console.test_lists import MODELS, QUEUE, list_of
from tests.console.world import World

LOOKUPS = ("", "__startswith", "__regex", "__isnull", "__in")
DEPTH = 2


def paths(model: type[Model], depth: int = DEPTH) -> Iterator[str]:
    """The names of a model's fields and of the fields of what it relates to, forwards and backwards."""
    for field in model._meta.get_fields():
        name = field.name
        yield name
        if field.is_relation and field.related_model is not None and depth > 1:
            yield from (f"{name}__{rest}" for rest in paths(field.related_model, depth - 1))  # type: ignore[arg-type]


def declared(shown: Any, request: Any) -> set[str]:
    """The parameters of a list's declared filters, as the filters themselves tell."""
    names: set[str] = set()
    for each in shown.get_list_filter(request):
        if isinstance(each, type) and issubclass(each, SimpleListFilter):
            names.add(each.parameter_name)
        else:
            path, kind = each
            ends = {
                "AutocompleteSelectFilter": ("__id__exact", "__isnull"),
                "BooleanRadioFilter": ("__exact", "__isnull"),
                "FieldTextFilter": ("__icontains",),
                "TimeRangeFilter": ("_from_0", "_from_1", "_to_0", "_to_1"),
            }[kind.__name__]
            names |= {path + end for end in ends}
    return names


LISTS = [(model.__name__, model) for model in MODELS] + [("ReviewQueue", Reservation)]


@pytest.mark.parametrize(("name", "model"), LISTS, ids=[name for name, _ in LISTS])
def test_a_list_honours_no_filter_that_it_does_not_declare(
    world: World, name: str, model: type[Model]
) -> None:
    shown = admin.site._registry[model]
    if name == "ReviewQueue":
        shown = ReviewQueue(model, admin.site)
    request = RequestFactory().get("/")
    request.user = world.operator
    known = declared(shown, request)
    honoured = set()
    for path in sorted(set(paths(model))):
        for lookup in LOOKUPS:
            parameter = path + lookup
            if parameter in known:
                continue
            asked = RequestFactory().get("/", {parameter: "1"})
            asked.user = world.operator
            with suppress(ListRefused):
                shown.get_changelist_instance(asked)
                honoured.add(parameter)
    assert honoured == set()


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        (Workload, "env_vars__DB_PASSWORD__startswith=s"),
        (Workload, "cloud_init__contains=token"),
        (Workload, "organization__api_keys__sha256__startswith=a"),
        (User, "password__regex=^pbkdf2"),
        (ApiKey, "sha256__startswith=a"),
        (User, "password__regex="),
        (User, "no_such_thing=1"),
        (User, "is_active__exact=maybe"),
        (Workload, "status=odd"),
        (Workload, "organization__id__exact=odd"),
        (AuditEvent, "created_at_from_0=never&created_at_from_1=12:00:00"),
        (AuditEvent, "created_at_from_0=2026-13-45"),
        (AuditEvent, "created_at_to_1=12:00:00"),
        (AuditEvent, "o=1"),
        (User, "o=password"),
        (User, "o=99"),
        (User, "o=0.-x"),
        (User, "_to_field=password"),
        (User, "_popup=1&_to_field=email"),
        (User, "p=x&is_active__exact=2"),
    ],
)
def test_a_list_answers_400_with_a_reason_and_no_row(
    console: Client, world: World, model: type[Model], asked: str
) -> None:
    world.workload(world.tenant, 0)
    answer = console.get(f"{list_of(model)}?{asked}")
    assert answer.status_code == 400
    page = answer.content.decode()
    assert "Nothing is shown." in page
    assert world.outsider.email not in page
    assert "result_list" not in page


@pytest.mark.filterwarnings("error:DateTimeField")
def test_a_list_filters_by_the_day_and_by_an_empty_form(console: Client, world: World) -> None:
    url = list_of(User)
    assert len(console.get(f"{url}?is_active__exact=&q=&o=1").context["cl"].result_list) == 3
    world.reserve(0)
    url = list_of(AuditEvent)
    empty = {f"created_at_{end}_{part}": "" for end in ("from", "to") for part in "01"}
    every = len(console.get(f"{url}?{urlencode(empty)}").context["cl"].result_list)
    assert every > 0
    assert not console.get(f"{url}?created_at_from_0=2999-01-01").context["cl"].result_list
    assert len(console.get(f"{url}?created_at_to_0=2999-01-01").context["cl"].result_list) == every


def test_completion_is_by_the_primary_key_of_what_the_operator_may_view(
    console: Client, world: World
) -> None:
    url = reverse("admin:autocomplete")
    asked = {"app_label": "identity", "model_name": "membership", "field_name": "user", "term": "tenant@"}
    assert [row["text"] for row in console.get(url, asked).json()["results"]] == ["tenant@example.com"]
    hashed = {**asked, "term": world.outsider.password[:20]}
    assert console.get(url, hashed).json()["results"] == []
    viewer = Client()
    world.viewer.memberships.update(role="inference")
    viewer.force_login(world.viewer)
    assert viewer.get(url, asked).status_code == 403


def test_the_queue_refuses_as_well(console: Client, world: World) -> None:
    assert console.get(f"{reverse(QUEUE)}?hold__node__credentials__sha256__startswith=a").status_code == 400


@pytest.mark.parametrize("page", ["x", "0", "2", "-1", "1" * 5000, ""])
def test_the_menu_search_has_one_page(console: Client, page: str) -> None:
    path = reverse("admin:search")
    assert console.get(path, {"s": "node"}).status_code == 200
    assert console.get(path, {"s": "node", "page": "1"}).status_code == 200
    assert console.get(path, {"s": "node", "page": page}).status_code == 404


@pytest.mark.parametrize("object_id", ["abc", "%00", "9" * 5000, "0190e5a0-0000-7000-8000-000000000001"])
def test_no_object_has_a_page_outside_of_the_console(console: Client, world: World, object_id: str) -> None:
    assert Client().get(f"/console/r/abc/{object_id}/").status_code == 404
    for content_type in (*ContentType.objects.values_list("pk", flat=True), "abc"):
        assert console.get(f"/console/r/{content_type}/{object_id}/").status_code == 404


def test_an_empty_field_to_refer_by_is_none(console: Client, world: World) -> None:
    for page, status in (("change", 200), ("delete", 403)):
        url = reverse(f"admin:nodes_node_{page}", args=[world.node.pk])
        assert console.get(f"{url}?_to_field=").status_code == status
        assert console.get(f"{url}?_to_field=hostname").status_code == 400
