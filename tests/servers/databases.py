"""Databases on one SQL server: made for a worker or a test, and dropped on a server that is not ours.

What always holds: only databases whose names were made here are ever created, used or dropped.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit


class Client(Protocol):
    """How one kind of SQL server is spoken to."""

    def execute(self, url: str, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements on one connection, outside any transaction, and return the rows of the last."""
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
        return self.client.execute(url or self.endpoint.url, sql)

    def admin_each(self, statements: Sequence[str], url: str) -> None:
        """Run several, one by one, on one connection to the database at `url`."""
        self.client.execute(url, *statements)

    def drop_all(self) -> None:
        """Drop every database that was made here."""
        while self.made:
            self.admin(self.client.drop(self.made.pop()))
