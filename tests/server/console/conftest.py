"""A sample shop, made once, and its console for the tests of a module."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from semel import Semel
from tests.server.console.sample import fill, park_events
from tests.server.console.sample_site import PATIENCE, Reader, Site, make_app, make_consumer, run_apart, served

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of the shop, to be copied."""
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    logging.getLogger("semel").setLevel(logging.CRITICAL)
    try:
        fill(path)
        run_apart(park_events(path))
    finally:
        logging.getLogger("semel").setLevel(logging.NOTSET)
    return path


@pytest.fixture(scope="module")
def site(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The console on a database of this module, for all roles."""
    path = tmp_path_factory.mktemp("site") / "shop.db"
    shutil.copy(filled, path)
    with Semel(path) as semel, served(make_app(semel, [make_consumer(semel)])) as address:
        yield Site(address, path, semel)


@pytest.fixture
def reader(site: Site, browser: Browser) -> Iterator[Reader]:
    """Somebody with a browser; nothing may go wrong in their pages."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if "Content Security Policy" in said.text else None)
    yield Reader(site, page)
    context.close()
    assert problems == []
