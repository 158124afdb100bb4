"""A run on a database server, whichever it is: what differs is the store and the sessions of callers.

With the URL of a Redis after that of the database, and a space between, there is a cache in front of the store.

What always holds: making a ground opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from semel.core.store import Store
from tests.kill.grounds.ground import AsyncSession, Session
from tests.kill.grounds.sql import TABLE, SqlGround


class ServedGround(SqlGround):
    """The database at the URL `name`, or at the first of two."""

    commits_rounds: ClassVar = False
    lost: ClassVar[tuple[type[Exception], ...]]

    def __init__(
        self,
        name: str,
        store: Callable[[str], Store],
        session: Callable[[str], Session],
        async_session: Callable[[str], AsyncSession],
    ) -> None:
        self.name = name
        self.url, _, cache = name.partition(" ")
        self.cache: str | None = cache or None
        self._store = store
        self._session = session
        self._async_session = async_session

    def prepare(self) -> None:
        """Make the tables."""
        driver = self.store().driver()
        driver.fetch_install_id()  # type: ignore[attr-defined]
        driver.close()
        self.fetch(TABLE)

    def store(self) -> Store:
        """The store under test."""
        return self._store(self.url)

    def session(self) -> Session:
        """A caller's connection."""
        return self._session(self.url)

    def async_session(self) -> AsyncSession:
        """The same, awaited."""
        return self._async_session(self.url)
