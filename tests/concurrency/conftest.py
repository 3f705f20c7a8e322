"""Many callers at one moment: the fleet on the running server, and how to let callers loose together."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from django.db import connection

from compute.models import SshKey
from openrelay.identity.models import Organization
from reservations.services.invariants import violations
from tests import factories
from tests.reservations.conftest import Fleet, fleet
from tests.support.web import Server

__all__ = ["fleet"]


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Run the calls at one moment, a thread each; their results, or the exceptions they raised, in order."""
    ready = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        try:
            ready.wait(60)
            return call()
        except Exception as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@dataclass
class Crowd:
    """The fleet, and HTTP calls to it that are safe to make from any thread."""

    fleet: Fleet
    http: httpx.Client
    secrets: dict[str, str] = field(default_factory=dict)
    keys: dict[str, SshKey] = field(default_factory=dict)

    def org(self, name: str) -> Organization:
        found: Organization = getattr(self.fleet, name)
        return found

    def call(self, method: str, path: str, by: str = "platform", **body: Any) -> httpx.Response:
        """One request as `by`; never raises for a status, but for one of 500."""
        headers = {"Authorization": f"Bearer {self.secrets[by]}"}
        answer = self.http.request(method, path, json=body or None, headers=headers)
        assert answer.status_code != 500, answer.text
        return answer

    def reserve(self, *units: int, **body: Any) -> httpx.Response:
        data = {
            "unitIds": [factories.address(unit) for unit in units],
            "allowedOrgIds": [str(self.fleet.tenant.pk)],
            **body,
        }
        return self.call("POST", self.fleet.path, **data)

    def reserved(self, *units: int, **body: Any) -> dict[str, Any]:
        answer = self.reserve(*units, **body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def act(
        self, verb: str, reservation: dict[str, Any], by: str = "platform", **body: Any
    ) -> httpx.Response:
        return self.call("POST", f"{self.fleet.path}/{reservation['id']}/{verb}", by, **body)

    def amend(self, reservation: dict[str, Any], **body: Any) -> httpx.Response:
        return self.call("PATCH", f"{self.fleet.path}/{reservation['id']}", **body)

    def create(self, by: str, **body: Any) -> httpx.Response:
        org = self.org(by)
        data = {"name": "vm", "sshKeyIds": [str(self.keys[by].pk)], "gpuCount": 1, "diskSizeGb": 20, **body}
        return self.call("POST", f"/v1/orgs/{org.pk}/vms/create", by, **data)

    def terminate(self, by: str, vm_id: str) -> httpx.Response:
        return self.call("POST", f"/v1/vms/{vm_id}/terminate", by)


@pytest.fixture
def crowd(server: Server, fleet: Fleet) -> Iterator[Crowd]:
    """The fleet on the running server. When the test is over, nothing may be wrong in the database."""
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=64)
    with httpx.Client(base_url=server.url, timeout=60, limits=limits) as http:
        names = ("platform", "provider", "tenant", "manager", "outsider")
        made = Crowd(fleet, http)
        made.secrets = {name: factories.api_key(getattr(fleet, name)) for name in names}
        made.keys = {name: factories.ssh_key(getattr(fleet, name)) for name in names}
        yield made
    assert violations() == []


def statuses(answers: Sequence[Any]) -> list[int]:
    """The statuses of the answers, sorted; an exception among them is raised."""
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return sorted(answer.status_code for answer in answers)
