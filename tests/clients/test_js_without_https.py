"""The browser client on a page without HTTPS: no `crypto.subtle`, no `randomUUID`, no locks. It still happens."""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.clients.serving import SEND, Service, begin_together, opened
from tests.servers.browser import QUIET, find_chromium

NAME: Final = "hotel.example"
MISSING: Final = "[isSecureContext, typeof crypto.subtle, typeof crypto.randomUUID, typeof navigator.locks]"
ROUNDS: Final = 6

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def insecure(browser: Browser) -> Iterator[Browser]:
    """A browser that finds this machine under a name which is not localhost."""
    args = [*QUIET, f"--host-resolver-rules=MAP {NAME} 127.0.0.1"]
    program = browser.browser_type.launch(executable_path=find_chromium(), args=args)
    yield program
    program.close()


@pytest.fixture
def context(insecure: Browser) -> Iterator[BrowserContext]:
    context = insecure.new_context()
    yield context
    context.close()


def _url(service: Service) -> str:
    return f"http://{NAME}:{service.server_port}"


def test_the_page_is_one_without_what_https_gives(context: BrowserContext, service: Service) -> None:
    page = opened(context, _url(service))
    assert page.evaluate(MISSING) == [False, "undefined", "undefined", "undefined"]


def test_a_key_outlives_a_refresh(context: BrowserContext, service: Service) -> None:
    page = opened(context, _url(service))
    service.lose = 99
    failure = page.evaluate(f"(given) => ({SEND})(given).catch((error) => error.name)", ["shared", "pay"])
    service.lose = 0
    page.reload()
    page.wait_for_function("'once' in window")
    assert (failure, page.evaluate(SEND, ["shared", "pay"])) == ("Unfinished", {"effects": 1})


def test_tabs_that_begin_at_the_same_moment_agree_on_a_key(insecure: Browser, service: Service) -> None:
    for number in range(1, ROUNDS + 1):
        context = insecure.new_context()
        service.lose = 99
        begin_together(context, _url(service), "shared")
        context.close()
        assert service.effects() == number
