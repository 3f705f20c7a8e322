"""People, organizations and credentials for tests, made by the services."""

import itertools
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import httpx
from django.test import Client

from openrelay.audit.actor import SYSTEM
from openrelay.identity.models import ApiKey, Organization, User
from openrelay.identity.permissions import PERMISSIONS
from openrelay.identity.services.keys import create_server_key
from openrelay.identity.services.memberships import add_member
from openrelay.identity.services.organizations import create_organization
from openrelay.identity.services.sessions import mint_session
from openrelay.identity.services.users import create_user

_numbers = itertools.count(1)
ALL_BUT_MANAGE = [permission for permission in PERMISSIONS if permission != "reservation.manage"]


@dataclass(frozen=True)
class Person:
    """A signed-in member: their user, organization and session token."""

    user: User
    organization: Organization
    token: str


def make_org(**fields: Any) -> Organization:
    """An organization with a name of its own."""
    number = next(_numbers)
    return create_organization(
        **{"actor": SYSTEM, "name": f"Org {number}", "slug": f"org-{number}", **fields}
    )


def make_user(**fields: Any) -> User:
    """A person with an address of their own."""
    return create_user(**{"actor": SYSTEM, "email": f"person{next(_numbers)}@example.com", **fields})


def make_person(organization: Organization | None = None, role: str = "owner") -> Person:
    """A member of `organization`, a new one unless given, signed in."""
    organization = organization or make_org()
    user = make_user(full_name="Ada Example")
    add_member(actor=SYSTEM, user_id=user.id, organization_id=organization.id, role=role)
    return Person(user, organization, sign_in(user, organization))


def sign_in(user: User, organization: Organization) -> str:
    """A session token of a member."""
    _, token = mint_session(actor=SYSTEM, user_id=user.id, organization_id=organization.id)
    return token


def make_key(
    organization: Organization | None = None, *permissions: str, **fields: Any
) -> tuple[ApiKey, str]:
    """A key made at the server; it holds everything but managing reservations unless told."""
    organization = organization or make_org()
    return create_server_key(
        actor=SYSTEM,
        organization_id=organization.id,
        name="a key",
        permissions=permissions or ALL_BUT_MANAGE,
        **fields,
    )


def bearer(secret: str) -> dict[str, str]:
    """The header that carries a credential, for Django's test client."""
    return {"HTTP_AUTHORIZATION": f"Bearer {secret}"}


def _answer(request: httpx.Request) -> httpx.Response:
    headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
    response = Client().generic(
        request.method,
        request.url.raw_path.decode(),
        request.read(),
        content_type=request.headers.get("Content-Type", ""),
        **headers,
    )
    return httpx.Response(response.status_code, headers=dict(response.headers), content=response.content)


def sdk_client(sdk: ModuleType, secret: str) -> Any:
    """The published client, speaking to the application in this process and this test's transaction."""
    return sdk.AuthenticatedClient(
        base_url="http://127.0.0.1",
        token=secret,
        httpx_args={"transport": httpx.MockTransport(_answer)},
    )
