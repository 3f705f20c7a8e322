"""The console as operators use it: signed in by Django's client, or in a real Chromium."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from django.test import Client
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response, expect, sync_playwright

from openrelay.identity.models import User
from tests.console import world as worlds
from tests.console.world import World
from tests.support.web import Server

CHROMIUM = "chromium"
# Two cores may be busy with everything else.
PATIENCE_MS = 30_000


@pytest.fixture
def world(db: None) -> World:
    """Operators, a viewer, an outsider, and an online node of eight units."""
    return worlds.build()


@pytest.fixture
def console(world: World) -> Client:
    """A client signed in as the operator."""
    client = Client()
    client.force_login(world.operator)
    return client


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium. Without it the test is skipped, and fails where everything must be tested."""
    path = shutil.which(CHROMIUM)
    if path is None:
        reason = "chromium is not installed: apt-get install chromium"
        if os.environ.get("OPENRELAY_CI") or os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    # Playwright keeps an event loop in this thread, in which Django would refuse to reach the database.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=path, args=["--no-sandbox", "--disable-background-networking"]
            )
            yield browser
            browser.close()
    finally:
        if before is None:
            del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
        else:
            os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


@dataclass
class Screen:
    """One browser window on the console, and what went wrong in it."""

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        """Go to a path of the console."""
        self.page.goto(f"{self.url}/console/{path}")

    def sign_in(self, user: User, password: str = worlds.PASSWORD) -> None:
        """Fill in the sign-in form, by its labels, and send it."""
        self.open("")
        self.page.get_by_label("Email").fill(user.email)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()

    def _console(self, message: ConsoleMessage) -> None:
        # A refusal has its status, which Chromium notes by itself.
        if message.type == "error" and "the server responded with a status of 4" not in message.text:
            self.errors.append(message.text)

    def _response(self, response: Response) -> None:
        if response.status >= 500 or (
            response.status >= 400 and not response.url.startswith(f"{self.url}/console/")
        ):
            self.errors.append(f"{response.status} {response.url}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.foreign.append(request.url)


@pytest.fixture
def screen(chromium: Browser, server: Server) -> Iterator[Screen]:
    """A fresh window on the real server. Whatever the test did: no error in the page, no other host asked."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    page = context.new_page()
    shown = Screen(page, server.url)
    page.on("console", shown._console)
    page.on("pageerror", lambda error: shown.errors.append(str(error)))
    page.on("response", shown._response)
    page.on("request", shown._request)
    yield shown
    context.close()
    assert shown.errors == []
    assert shown.foreign == []
