"""The consumer of a service that is killed while `semel events redrive` runs it, as the environment says.

- `DYING_STORE`: the database file, which has the table `booked` too: a row there is the effect of an event.
- `DYING_ENGINE`: `threads` or `loop`.
- `DYING_WHERE`: `inside` the handler, before the effect; `written`, when that is written and not committed; or
  `committed`, when nobody has taken the letter away, nor noted that its item is done.
- `DYING_AT`: the event of this process at which it dies there, 0 for never.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiosqlite

from semel import AsyncSemel, Semel
from semel.events import Consumer, Event

_STORE: Final = Path(os.environ["DYING_STORE"])
_BOOK: Final = "INSERT INTO booked (event) VALUES (?)"
_SETTINGS: Final[dict[str, Any]] = {"max_attempts": 3, "lease_for": timedelta(seconds=3)}
_MET: Final = count(1)


def _meet(place: str) -> None:
    if place == os.environ["DYING_WHERE"] and next(_MET) == int(os.environ["DYING_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def _transaction() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(_STORE, timeout=30)) as connection:
        yield connection
        connection.commit()
        _meet("committed")


@asynccontextmanager
async def _async_transaction() -> AsyncIterator[aiosqlite.Connection]:
    async with aiosqlite.connect(_STORE, timeout=30) as connection:
        yield connection
        await connection.commit()
        _meet("committed")


def _with_threads() -> Consumer[Semel]:
    made = Consumer(Semel(_STORE), "billing", transaction=_transaction, **_SETTINGS)

    @made.on("paid")
    def book(event: Event, session: sqlite3.Connection) -> None:
        _meet("inside")
        session.execute(_BOOK, (event.id,))
        _meet("written")

    return made


def _with_loop() -> Consumer[AsyncSemel]:
    made = Consumer(AsyncSemel(_STORE), "billing", transaction=_async_transaction, **_SETTINGS)

    @made.on("paid")
    async def book(event: Event, session: aiosqlite.Connection) -> None:
        _meet("inside")
        await session.execute(_BOOK, (event.id,))
        _meet("written")

    return made


consumer = _with_threads() if os.environ["DYING_ENGINE"] == "threads" else _with_loop()
