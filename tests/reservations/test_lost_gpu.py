"""A unit vanishes from its node and comes back: what that does to placing, and to the reservations there."""

from typing import Any

from compute.models import Claim, SshKey
from openrelay.identity.models import Organization
from tests import factories
from tests.reservations.conftest import Fleet, refused


def create(fleet: Fleet, who: str, key: SshKey, **body: Any) -> Any:
    org: Organization = getattr(fleet, who)
    data = {"name": "vm", "sshKeyIds": [str(key.pk)], "gpuCount": 1, "diskSizeGb": 20, **body}
    return fleet.client(who).post(f"/v1/orgs/{org.pk}/vms/create", data, format="json")


def test_one_of_eight_is_lost_and_the_other_seven_serve(fleet: Fleet) -> None:
    reserved, unnamed = fleet.reserved(0, 1), fleet.reserved(2)
    keys = {who: factories.ssh_key(getattr(fleet, who)) for who in ("tenant", "outsider")}
    named = {"nodeId": str(fleet.node.pk)}
    fleet.reports([factories.unit_report(number) for number in range(8) if number != 5])

    # One report is enough, and everything reserved on the node waits for an operator.
    for reservation in (reserved, unnamed):
        assert fleet.read(reservation)["status"] == "needs-review"
    refused(create(fleet, "tenant", keys["tenant"], **named, gpuCount=5), 503, "INSUFFICIENT_GPU_CAPACITY")
    bought = [create(fleet, "outsider", keys["outsider"]) for _ in range(5)]
    assert [answer.status_code for answer in bought] == [200] * 4 + [503]
    claimed = set(Claim.objects.values_list("unit__address", flat=True))
    assert claimed == {factories.address(number) for number in (3, 4, 6, 7)}

    assert fleet.amend(reserved, reaffirm=True).json()["status"] == "active"
    mine = create(fleet, "tenant", keys["tenant"], **named, gpuCount=2)
    assert mine.status_code == 200, mine.content
    # What was not affirmed grants nothing still, to nobody.
    refused(create(fleet, "tenant", keys["tenant"], **named), 503, "INSUFFICIENT_GPU_CAPACITY")

    fleet.reports(8)
    for reservation in (reserved, unnamed):
        assert fleet.read(reservation)["status"] == "needs-review"
    again = create(fleet, "outsider", keys["outsider"])
    assert again.status_code == 200, again.content
    claim = Claim.objects.get(workload_id=again.json()["id"])
    assert claim.unit.address == factories.address(5)
