"""A run on one Redis server: no transaction of a caller can be joined, so all effects are outside.

What always holds: an answer that somebody got, and a claim under which an effect happened, was acknowledged by the
server before it was written to a ledger. So it must be found there ever after.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, ClassVar

from semel import Semel
from semel.core.record import Status
from semel.core.store import Store
from semel.stores.redis import RedisStore
from tests.kill.grounds.ground import Row
from tests.kill.ledger import ANSWERED, ANSWERS, EFFECTS, Line, read_ledger
from tests.kill.positions import ALONE, Mode, Modes

_LOOKED_AT = 600
"""So many of the last lines of each ledger: what a server forgets was acknowledged last."""


class NoSession:
    """A caller without a transaction."""

    raw: ClassVar[Any] = None
    in_transaction: ClassVar = False

    def begin(self, chance: random.Random) -> None:
        """There is nothing to begin."""
        raise NotImplementedError

    def begin_step(self) -> None:
        """There is nothing to begin."""
        raise NotImplementedError

    def insert(self, row: Row) -> None:
        """There is no table."""
        raise NotImplementedError

    def commit(self) -> None:
        """There is nothing to commit."""
        raise NotImplementedError

    def rollback(self) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Nothing is open."""


class AsyncNoSession:
    """The same, awaited."""

    raw: ClassVar[Any] = None
    in_transaction: ClassVar = False

    async def begin(self, chance: random.Random) -> None:
        """There is nothing to begin."""
        raise NotImplementedError

    async def begin_step(self) -> None:
        """There is nothing to begin."""
        raise NotImplementedError

    async def insert(self, row: Row) -> None:
        """There is no table."""
        raise NotImplementedError

    async def commit(self) -> None:
        """There is nothing to commit."""
        raise NotImplementedError

    async def rollback(self) -> None:
        """Nothing is open."""

    async def close(self) -> None:
        """Nothing is open."""


class RedisGround:
    """The server, or whatever the URL `name` leads to."""

    commits_rounds: ClassVar = False
    modes: ClassVar[Modes] = ALONE
    lost: ClassVar[tuple[type[Exception], ...]] = ()

    def __init__(self, name: str) -> None:
        self.name = name
        self.cache: str | None = None

    def prepare(self) -> None:
        """Nothing has to be made."""

    def store(self) -> Store:
        """The store under test."""
        return RedisStore(self.name)

    def session(self) -> NoSession:
        """A caller without a transaction."""
        return NoSession()

    def async_session(self) -> AsyncNoSession:
        """The same, awaited."""
        return AsyncNoSession()

    def rows(self) -> list[Row]:
        """There is no table of effects."""
        return []

    def missing(self, folder: Path) -> list[str]:
        """What the server acknowledged and does not know."""
        fences: dict[tuple[int, int], int] = {}
        for line in _last_lines(folder / EFFECTS):
            name = line.mode, line.key
            fences[name] = max(line.fence, fences.get(name, 0))
        answered = {(line.mode, line.key) for line in _last_lines(folder / ANSWERS) if line.what in ANSWERED}
        with Semel(self.store()) as semel:
            found = (
                _missed(semel, Mode(mode), key, fences.get((mode, key), 0), answered=(mode, key) in answered)
                for mode, key in sorted(fences.keys() | answered)
            )
            return [what for what in found if what]


def _last_lines(path: Path) -> list[Line]:
    return list(read_ledger(path, last=_LOOKED_AT))


def _missed(semel: Semel, mode: Mode, key: int, fence: int, *, answered: bool) -> str:
    """What the record of a key should show and does not."""
    record = semel.read(str(key), operation=mode.name)
    seen = "gone" if record is None else f"{record.status} with fence {record.fence}"
    if answered and (record is None or record.status is not Status.COMPLETED):
        return f"{mode.name.lower()} {key} was answered, and is {seen}"
    if record is None or record.fence < fence:
        return f"{mode.name.lower()} {key} was claimed with fence {fence}, and is {seen}"
    return ""
