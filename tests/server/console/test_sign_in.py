"""The console of `semel serve`, in a real browser: who signs in with a token, decides, and signs out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from semel import AsyncSemel
from semel.server.process import make_first_token, make_server_app
from semel.server.settings import ServerSettings
from semel.server.tokens import Tokens
from tests.server.console.sample_site import PATIENCE, run_apart, served
from tests.server.console.test_browser import look_at

LINKS: Final = {"Engine": "https://engine.example/{process_instance}"}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def secret(filled: Path, tmp_path: Path) -> str:
    """The first token of a server on a database of its own."""
    shutil.copy(filled, tmp_path / "shop.db")

    async def make() -> str | None:
        async with AsyncSemel(tmp_path / "shop.db") as semel:
            return await make_first_token(Tokens(semel))

    made = run_apart(make())
    assert made is not None
    return made


@pytest.fixture
def page(browser: Browser, secret: str, tmp_path: Path) -> Iterator[Page]:
    """A browser at the first page of the server."""
    del secret

    def later(now: datetime) -> datetime:
        return now + timedelta(hours=1)

    app = make_server_app(AsyncSemel(tmp_path / "shop.db"), ServerSettings(links=LINKS), due=later)
    with served(app) as address:
        context = browser.new_context(reduced_motion="reduce")
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.goto(address)
        yield page
        context.close()


def test_somebody_signs_in_decides_and_signs_out(secret: str, page: Page) -> None:
    expect(page.get_by_role("heading")).to_have_text("Sign in to semel")
    look_at(page, "sign-in")
    page.get_by_label("Token").fill("semel_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("status")).to_have_text("This token is unknown, expired or revoked.")
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("h1")).to_have_text("What needs a person")
    page.get_by_role("link", name="Look at them").first.click()
    page.locator("tbody a").first.click()
    page.get_by_role("link", name="Cancel it").click()
    page.get_by_label("Reason").fill("the bank says so")
    page.get_by_role("button", name="Cancel it").click()
    expect(page.get_by_role("status").filter(has_text="done")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading")).to_have_text("Sign in to semel")
    page.go_back()
    page.reload()
    expect(page.get_by_role("heading")).to_have_text("Sign in to semel")


def test_somebody_signs_out_on_the_page_of_a_body(secret: str, page: Page) -> None:
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    page.goto(f"{page.url}records?operation=balance")
    page.locator("tbody a").first.click()
    page.get_by_role("link", name="Show the body").click()
    expect(page.locator("pre").first).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading")).to_have_text("Sign in to semel")


def test_a_page_says_so_once_its_session_has_ended(secret: str, page: Page) -> None:
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#pulse")).to_have_text("Live")
    page.context.clear_cookies()
    expect(page.locator("#pulse")).to_have_text("Signed out: reload to sign in")
    expect(page.locator("h1")).to_have_text("What needs a person")


def test_a_link_to_a_page_leads_there_once_somebody_has_signed_in(secret: str, page: Page) -> None:
    address = page.url.removesuffix("/sign-in")
    page.goto(f"{address}/records?status=in_doubt&operation=ship")
    expect(page.get_by_role("heading")).to_have_text("Sign in to semel")
    page.get_by_label("Token").fill("semel_wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{address}/records?status=in_doubt&operation=ship")


@pytest.mark.parametrize(
    "to", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)", "", "\t//evil.example"]
)
def test_nobody_is_led_to_another_site_by_signing_in(secret: str, page: Page, to: str) -> None:
    address = page.url.removesuffix("/sign-in")
    page.goto(f"{address}/sign-in?{urlencode({'to': to})}")
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("h1")).to_have_text("What needs a person")
    assert page.url == f"{address}/"


def test_the_console_of_the_server_links_to_where_its_settings_say(secret: str, page: Page) -> None:
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    page.goto(f"{page.url}process?instance=proc-7")
    expect(page.get_by_role("link", name="Engine")).to_have_attribute("href", "https://engine.example/proc-7")
