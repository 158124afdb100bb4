"""What the tests of clients share."""

import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.clients.serving import Service


@pytest.fixture
def service() -> Iterator[Service]:
    """A service of its own for each test."""
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield service
        service.shutdown()
        thread.join()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A profile of the browser without a past."""
    context = browser.new_context()
    yield context
    context.close()
