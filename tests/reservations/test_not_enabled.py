"""An organization without reservations: none is made for it, and what it holds goes on."""

import pytest

from openrelay.audit.actor import OPERATOR
from openrelay.identity.models import Organization
from openrelay.identity.services.organizations import set_switches
from reservations.models import Reservation
from tests import factories
from tests.reservations import makers
from tests.reservations.conftest import Fleet, refused

DISABLED = (409, "FEATURE_DISABLED", "Reservations are not enabled")


def switch(org: Organization, on: bool) -> None:
    set_switches(actor=OPERATOR, organization_id=org.pk, reservations_enabled=on)


def test_nothing_is_reserved_for_an_organization_without_reservations(fleet: Fleet) -> None:
    switch(fleet.tenant, False)
    both = [str(fleet.tenant.pk), str(fleet.outsider.pk)]
    refused(fleet.reserve(0), *DISABLED, str(fleet.tenant.pk))
    refused(fleet.reserve(0, allowedOrgIds=both), *DISABLED, str(fleet.tenant.pk))
    assert Reservation.objects.count() == 0
    switch(fleet.tenant, True)
    assert fleet.reserve(0, allowedOrgIds=both).status_code == 200


def test_an_unknown_organization_is_named_first(fleet: Fleet) -> None:
    switch(fleet.tenant, False)
    nobody = "00000000-0000-0000-0000-000000000001"
    refused(fleet.reserve(0, allowedOrgIds=[str(fleet.tenant.pk), nobody]), 400, "UNKNOWN_ORG", nobody)


def test_the_refusal_is_the_same_for_units_that_are_taken(fleet: Fleet) -> None:
    """It does not depend on what else is reserved."""
    fleet.reserved(0, allowedOrgIds=[str(fleet.outsider.pk)])
    switch(fleet.tenant, False)
    refused(fleet.reserve(0), *DISABLED)


def test_managing_does_not_need_the_feature(fleet: Fleet) -> None:
    switch(fleet.manager, False)
    assert fleet.reserve(0, managingOrgIds=[str(fleet.manager.pk)]).status_code == 200


def test_operators_join_the_audience_without_the_feature(fleet: Fleet) -> None:
    switch(fleet.platform, False)
    made = fleet.reserved(0)
    assert str(fleet.platform.pk) in made["allowedOrgIds"]
    assert fleet.amend(made, allowedOrgIds=[str(fleet.outsider.pk)]).status_code == 200
    assert fleet.reserve(1, allowedOrgIds=[str(fleet.platform.pk)]).status_code == 200


def test_an_amend_may_keep_the_organization_and_may_not_add_it(fleet: Fleet) -> None:
    made, other = fleet.reserved(0), fleet.reserved(1, allowedOrgIds=[str(fleet.outsider.pk)])
    switch(fleet.tenant, False)
    both = [str(fleet.tenant.pk), str(fleet.outsider.pk)]
    before = fleet.read(other)
    refused(fleet.amend(other, allowedOrgIds=both, endsAt="2126-01-01T00:00:00Z"), *DISABLED)
    assert fleet.read(other) == before
    changed = fleet.amend(made, allowedOrgIds=both, endsAt="2126-01-01T00:00:00Z")
    assert changed.status_code == 200, changed.content
    assert set(changed.json()["allowedOrgIds"]) == {*both, str(fleet.platform.pk)}
    # What was taken away is not given back.
    assert fleet.amend(made, allowedOrgIds=[str(fleet.outsider.pk)]).status_code == 200
    refused(fleet.amend(made, allowedOrgIds=both), *DISABLED)
    assert fleet.amend(other, managingOrgIds=[str(fleet.tenant.pk)]).status_code == 200


def test_what_it_holds_goes_on(fleet: Fleet) -> None:
    made = fleet.reserved(0, 1, managingOrgIds=[str(fleet.manager.pk)])
    for org in (fleet.tenant, fleet.manager):
        switch(org, False)
    assert fleet.read(made)["status"] == "active"
    released = fleet.act("release", made, by="manager", unitIds=[factories.address(0)])
    assert released.status_code == 200, released.content
    spot = makers.workload(fleet.node, fleet.outsider, [0])
    reclaimed = fleet.act("reclaim", made, by="manager", unitIds=[factories.address(0)])
    assert reclaimed.status_code == 200, reclaimed.content
    assert makers.status(spot) == ("terminated", "spot_reclaimed_by_capacity_owner")
    fleet.reports(7)
    assert fleet.read(made)["status"] == "needs-review"
    assert fleet.amend(made, reaffirm=True).json()["status"] == "active"
    assert fleet.act("cancel", made).json()["status"] == "cancelled"


@pytest.mark.parametrize("name", ["tenant", "manager"])
def test_its_list_is_empty(fleet: Fleet, name: str) -> None:
    fleet.reserved(0, managingOrgIds=[str(fleet.manager.pk)])
    org = getattr(fleet, name)
    switch(org, False)
    assert fleet.client(name).get(f"/v1/orgs/{org.pk}/reservations").json() == []
