"""A real browser for tests of pages: the system's Chromium, without windows where that is packaged apart."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.servers.plugin import verdict

if TYPE_CHECKING:
    from playwright.sync_api import Browser

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str | None:
    """The program to start: the one without windows, which takes half the processor time, or else the whole browser."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Chromium, as the system has it.

    For a module and not for the session: while Playwright is there an event loop runs in this thread, and no test that
    has one of its own can run.
    """
    from playwright.sync_api import sync_playwright

    program = find_chromium()
    if program is None:
        reason = "there is no chromium on the PATH; as root `make test` installs it"
        raise verdict(f"NOT TESTED: the pages, because {reason}.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(QUIET))
        yield browser
        browser.close()
