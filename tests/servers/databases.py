"""Databases on one SQL server: made for a worker or a test, and dropped on a server that is not ours.

What always holds: only databases whose names were made here are ever created, used or dropped.
"""

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

Session = Callable[..., list[tuple[Any, ...]]]
"""Takes statements and gives the rows of the last."""


class Client(Protocol):
    """How one kind of SQL server is spoken to."""

    def session(self, url: str) -> AbstractContextManager[Session]:
        """Runs statements on one connection, outside any transaction."""
        ...

    def create(self, name: str) -> str:
        """The statement that makes a database."""
        ...

    def drop(self, name: str) -> str:
        """The statement that removes a database, even while somebody is connected."""
        ...


@dataclass(frozen=True)
class Endpoint:
    """What another process has to know in order to use a server."""

    url: str
    log: str = ""
    statement_log: str = ""


@dataclass
class Databases:
    """A running server, seen by somebody who needs databases on it."""

    client: Client
    endpoint: Endpoint
    made: list[str] = field(default_factory=list)
    _sessions: dict[str, Session] = field(default_factory=dict, init=False, repr=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False, repr=False)

    @cached_property
    def url(self) -> str:
        """A database of one's own, made on first use."""
        return self.new_database()

    @property
    def log(self) -> Path | None:
        """What the server writes; None when it is not ours."""
        return Path(self.endpoint.log) if self.endpoint.log else None

    @property
    def statement_log(self) -> Path | None:
        """Where statements are written while the server logs them; None when it is not ours."""
        return Path(self.endpoint.statement_log) if self.endpoint.statement_log else None

    def new_database(self) -> str:
        """Make an empty database and return its URL."""
        name = f"semel_{secrets.token_hex(6)}"
        self.admin(self.client.create(name))
        self.made.append(name)
        return urlsplit(self.endpoint.url)._replace(path=f"/{name}").geturl()

    def admin(self, sql: str, url: str | None = None) -> list[tuple[Any, ...]]:
        """Run one statement as the administrator, beside the databases of the tests or in the one at `url`."""
        with self.client.session(url or self.endpoint.url) as session:
            return session(sql)

    def admin_each(self, statements: Sequence[str], url: str) -> list[tuple[Any, ...]]:
        """Run several, one by one, in the database at `url`; the rows of the last.

        Their connection stays open for the next time: to a server a new one costs more than a few short statements.
        """
        if url not in self._sessions:
            self._sessions[url] = self._open.enter_context(self.client.session(url))
        return self._sessions[url](*statements)

    def close(self) -> None:
        """Let go of the connections that stayed open."""
        self._sessions.clear()
        self._open.close()

    def drop_all(self) -> None:
        """Drop every database that was made here."""
        while self.made:
            self.admin(self.client.drop(self.made.pop()))


def session_on(connection: Any) -> Session:
    """Runs statements on a connection that knows cursors."""

    def run(*statements: str) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []

    return run
