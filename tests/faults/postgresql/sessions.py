"""Sessions beside the store: one that holds locks in a transaction, one that looks at what the others do.

What always holds: waiting for a session means asking the server until it says so; nothing here guesses by time.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import psycopg

from semel.core.operations import Claim
from semel.stores.postgresql import PostgresStore
from semel.stores.postgresql.store import POSTGRESQL
from semel.stores.sql.adapters.psycopg import PsycopgAdapter

_WAITS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'semel' AND wait_event_type = 'Lock'
"""


class Outsider:
    """A session whose statements are those of a test, and a second one that looks."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.session: psycopg.Connection[Any] = psycopg.connect(url)
        self._eye: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)

    def claim(self, claim: Claim) -> None:
        """Claim as the store does, in a transaction that stays open."""
        place = PostgresStore(self._url)._context
        command = place.render(place.dialect.claim([claim], joined=False, turn=1))
        PsycopgAdapter(POSTGRESQL).execute(self.session, command)

    def execute(self, text: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """A statement in the open transaction."""
        cursor = self.session.execute(text.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def look(self, text: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """A statement outside of it."""
        cursor = self._eye.execute(text.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def until_stores_wait(self, count: int = 1) -> None:
        """Come back when so many sessions of stores wait for a lock."""
        while self.look(_WAITS) != [(count,)]:
            pass

    def commit(self) -> None:
        self.session.commit()

    def rollback(self) -> None:
        self.session.rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.close()
        self._eye.close()
