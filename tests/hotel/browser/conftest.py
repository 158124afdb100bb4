"""A house on each kind of database, and guests with browsers."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.hotel.browser.house import PATIENCE, Guest, House

ROOT = Path(__file__).parents[3]
ARTIFACTS = ROOT / "artifacts" / "hotel"
# A page behaves the same on every database: the others are left to the full effort.
DATABASES = ["sqlite", "postgresql", "mariadb"] if os.environ.get("SEMEL_EFFORT") == "full" else ["sqlite"]


expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session", params=DATABASES)
def house(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A hotel with sample data that is open for all tests of this worker."""
    folder = tmp_path_factory.mktemp("house")
    url = f"sqlite:///{folder}/hotel.db"
    if request.param != "sqlite":
        url = str(request.getfixturevalue(request.param).new_database())
    with House(folder, url) as house:
        yield house


@pytest.fixture
def guest(house: House, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Guest]:
    """Somebody who has just signed in; at the end there is a picture of what they saw."""
    house.gateway.faults(delay=0, lose_reply=0, die_before=0, die_after=0)
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(house.url)
    page.get_by_label("Your name").fill("Ada")
    page.get_by_role("button", name="Come in").click()
    guest = Guest(house, context, page, *house.nights())
    yield guest
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    if not guest.page.is_closed():
        guest.page.screenshot(path=ARTIFACTS / f"{request.node.name.replace('/', '-')}.png", full_page=True)
    context.close()
    assert errors == []
