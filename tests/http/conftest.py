"""Sites for the tests: each started once per worker and store, on first use, and stopped with the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.asking import Asker
from tests.http.sites import MORE_SITES, SITES, Running

STORES = ("sqlite", "postgresql")
Start = Callable[..., Running]


@pytest.fixture(scope="session")
def store_at(request: pytest.FixtureRequest) -> Callable[[str, Path], str]:
    """A fresh place for records."""

    def url(store: str, folder: Path) -> str:
        if store == "sqlite":
            return f"sqlite:///{folder / 'records.db'}"
        database: str = request.getfixturevalue(store).new_database()
        return database

    return url


@pytest.fixture(scope="session")
def sites(
    store_at: Callable[[str, Path], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, str], Running]]:
    """Sites by name and store."""
    running: dict[tuple[str, str], Running] = {}

    def site(name: str, store: str) -> Running:
        if (name, store) not in running:
            folder = tmp_path_factory.mktemp(f"{name}-{store}")
            running[name, store] = Running({**SITES, **MORE_SITES}[name], store_at(store, folder), folder)
        return running[name, store]

    yield site
    for one in running.values():
        one.close()


# Of the session, so that pytest puts the tests of one site in a row and one worker starts it, not each of them.
@pytest.fixture(scope="session", params=SITES)
def site_name(request: pytest.FixtureRequest) -> str:
    """Every application on every server."""
    return str(request.param)


@pytest.fixture(scope="session", params=STORES)
def site_store(request: pytest.FixtureRequest) -> str:
    """Every store that the sites are tried over."""
    return str(request.param)


@pytest.fixture
def site(site_name: str, site_store: str, sites: Callable[[str, str], Running]) -> Running:
    """Every application on every server, over every store."""
    return sites(site_name, site_store)


@pytest.fixture
def asker(site: Running) -> Iterator[Asker]:
    """Somebody who asks; afterwards nobody has lost a right."""
    asker = Asker(site)
    yield asker
    asker.threads.shutdown()
    site.revoke(())


@pytest.fixture
def start(store_at: Callable[[str, Path], str], tmp_path: Path) -> Iterator[Start]:
    """Starts sites with settings of their own; they end with the test."""
    started: list[Running] = []

    def begin(name: str, store: str = "sqlite", **given: Any) -> Running:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Running(SITES[name], store_at(store, folder), folder, **given))
        return started[-1]

    yield begin
    for one in started:
        one.close()
