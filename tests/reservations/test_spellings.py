"""Units and ids in the reservation operations, in other spellings than the canonical one."""

from typing import Any

import pytest

from tests import factories
from tests.reservations import makers
from tests.reservations.conftest import Fleet, refused

EIGHT_DIGITS = f"0000{factories.address(0)}"


def test_a_unit_in_another_spelling_is_the_same_unit_in_every_operation(fleet: Fleet) -> None:
    made = fleet.reserved(0, unitIds=[EIGHT_DIGITS, factories.address(0).removeprefix("0000:")])
    assert made["reservedUnitIds"] == [factories.address(0)]
    released = fleet.act("release", made, unitIds=[EIGHT_DIGITS]).json()
    assert released["releasedUnitIds"] == [factories.address(0)]
    guest = makers.workload(fleet.node, fleet.outsider, [0])
    assert fleet.reclaim_spot(unitIds=[EIGHT_DIGITS], dryRun=True).json()["terminated"] == [str(guest.pk)]
    assert fleet.act("reclaim", made, unitIds=[EIGHT_DIGITS.upper()]).json()["terminated"] == [str(guest.pk)]


@pytest.mark.parametrize("unit", ["0000:10:00", "10:00", "gpu0"])
def test_what_is_no_address_is_refused_by_its_place(fleet: Fleet, unit: str) -> None:
    made = fleet.reserved(1)
    words = (f"unitIds[0] '{unit}' is not a PCI address of the form dddd:bb:dd.f",)
    refused(fleet.reserve(0, unitIds=[unit]), 400, "VALIDATION_ERROR", *words)
    refused(fleet.act("release", made, unitIds=[unit]), 400, "VALIDATION_ERROR", *words)
    refused(fleet.reclaim_spot(unitIds=[unit]), 400, "VALIDATION_ERROR", *words)


@pytest.mark.parametrize(
    "change",
    [str.upper, lambda text: f"{{{text}}}", lambda text: text.replace("-", ""), "urn:uuid:{}".format],
)
def test_an_id_in_another_spelling_is_unknown_wherever_it_is(fleet: Fleet, change: Any) -> None:
    org, made = change(str(fleet.tenant.pk)), fleet.reserved(1)
    refused(fleet.reserve(0, allowedOrgIds=[org]), 400, "UNKNOWN_ORG", org)
    refused(fleet.amend(made, managingOrgIds=[org]), 400, "UNKNOWN_ORG", org)
    assert fleet.get(f"/{change(made['id'])}").status_code == 404
    path = f"/v1/nodes/{change(str(fleet.node.pk))}/reservations"
    assert fleet.client("platform").get(path).status_code == 404
