"""Somebody who uses a store on a server: its operations one list at a time, in the colour of a test.

What always holds: both colours are asked by plain calls, so one test serves both; whoever awaits has a loop of its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from semel.core.key import Key
from semel.core.operations import Claim, Complete, Granted, Recorded, Terms
from semel.core.record import About
from semel.core.store import Answers, Plan, Store
from tests.unit.stores.asking import Asking

Colour = Literal["threads", "loop"]
COLOURS: tuple[Colour, ...] = ("threads", "loop")
SECOND = 1_000_000


class SqlStore(Store, Protocol):
    """A store on a server, as far as tests look inside."""

    @property
    def _context(self) -> Any: ...


def key(value: str) -> Key:
    return Key.of(value, operation="charge")


def claim(value: str, *, lease: float = 60, keep: float = 3600, fingerprint: bytes = b"\x01f") -> Claim:
    """A claim that nobody sent before."""
    terms = Terms(int(lease * SECOND), int(keep * SECOND), "rerun", 0)
    return Claim(key(value), fingerprint, os.urandom(16), terms, About())


class User(Asking):
    """A store and one driver of it."""

    def __init__(self, store: Any, colour: Colour) -> None:
        self.store: SqlStore = store
        self._closed = False
        self._runner = asyncio.Runner() if colour == "loop" else None
        self.driver: Any = self._run(_made(store)) if self._runner else store.driver()

    def _run(self, awaited: Any) -> Any:
        assert self._runner is not None
        return self._runner.run(awaited)

    def perform(self, *plans: Plan) -> list[Answers | Exception]:
        """Run one round."""
        replies: list[Answers | Exception] = (
            self._run(self.driver.perform(plans)) if self._runner else self.driver.perform(plans)
        )
        return replies

    def completed(self, value: str, *, keep: float = 3600) -> Granted:
        """Claim a key and complete it."""
        granted = self.one(claim(value, keep=keep), Granted)
        self.one(Complete(granted.lease, b"done"), Recorded)
        return granted

    def close(self) -> None:
        """Let go of the connections; a second time changes nothing."""
        if self._runner is None:
            self.driver.close()
        elif not self._closed:
            self._run(self.driver.close())
            self._runner.close()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _made(store: Store) -> Any:
    return store.async_driver()  # belongs to the loop that runs now


def with_tables(store_kind: Callable[[str], Store], url: str) -> str:
    """The URL of a new database, once a store has made its tables there and completed a key."""
    with User(store_kind(url), "threads") as user:
        user.completed("first")
    return url


MakeUser = Callable[..., User]
"""Makes a user of a fresh store at a URL, with settings; it is closed with the test."""
