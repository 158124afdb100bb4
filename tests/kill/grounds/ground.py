"""The ground of a run: the database that records and effects share, and how a caller's own transaction is held on it.

What always holds: a ground is named by a text, so that a worker process can stand on the same one; making it opens
nothing. A session connects on first use and again after it was lost.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from semel.core.store import Store
from tests.kill.positions import Modes


class Row(NamedTuple):
    """An effect in the database."""

    mode: int
    key: int
    step: int
    fence: int
    life: int
    sequence: int


class Session(Protocol):
    """A caller's own connection, in threads."""

    def begin(self, chance: random.Random) -> None:
        """Begin a transaction in one of the ways that callers have."""

    def begin_step(self) -> None:
        """Begin one for a step, where the library does not do so by itself."""

    @property
    def raw(self) -> Any:
        """What `within` is given."""

    @property
    def in_transaction(self) -> bool:
        """Whether there is something to commit."""

    def insert(self, row: Row) -> None:
        """The effect of a handler."""

    def commit(self) -> None:
        """End the transaction."""

    def rollback(self) -> None:
        """Undo what is open; a connection that cannot do that is let go."""

    def close(self) -> None:
        """Let go of the connection."""


class AsyncSession(Protocol):
    """The same, awaited."""

    async def begin(self, chance: random.Random) -> None:
        """Begin a transaction."""

    async def begin_step(self) -> None:
        """Begin one for a step."""

    @property
    def raw(self) -> Any:
        """What `within` is given."""

    @property
    def in_transaction(self) -> bool:
        """Whether there is something to commit."""

    async def insert(self, row: Row) -> None:
        """The effect of a handler."""

    async def commit(self) -> None:
        """End the transaction."""

    async def rollback(self) -> None:
        """Undo what is open."""

    async def close(self) -> None:
        """Let go of the connection."""


class Ground(Protocol):
    """One database."""

    commits_rounds: ClassVar[bool]
    """Whether the store commits a round of several statements, so that there is a time between writing and committing.
    Elsewhere a statement has committed when it answers."""
    modes: ClassVar[Modes]
    """What kinds of operation there are, by whether a caller's transaction can be joined."""
    cache: str | None
    """The URL of a cache in front of the store, where there is one."""
    lost: ClassVar[tuple[type[Exception], ...]]
    """What a session raises when its server is gone."""

    @property
    def name(self) -> str:
        """What another process makes the same ground from."""

    def prepare(self) -> None:
        """Make the tables: semel's own, and the one of effects."""

    def store(self) -> Store:
        """The store under test."""

    def session(self) -> Session:
        """A caller's connection."""

    def async_session(self) -> AsyncSession:
        """The same, awaited."""

    def rows(self) -> list[Row]:
        """The effects that are in the database."""

    def missing(self, folder: Path) -> list[str]:
        """What must be there at any instant, while everybody is at work on it, and is not.

        The ledgers of the run are in `folder`.
        """


def ground_of(name: str) -> Ground:
    """The ground of this name; imports what it needs and opens nothing."""
    if name.startswith("postgresql:"):
        from tests.kill.grounds.postgresql import PostgresqlGround

        return PostgresqlGround(name)
    if name.startswith("redis"):
        from tests.kill.grounds.redis import RedisGround

        return RedisGround(name)
    if name.startswith("mysql:"):
        from tests.kill.grounds.mysql import MysqlGround

        return MysqlGround(name)
    from tests.kill.grounds.sqlite import SqliteGround

    return SqliteGround(name)
