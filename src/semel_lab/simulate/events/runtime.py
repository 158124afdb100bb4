"""The moving parts of a simulated process: an engine whose every wait is a wish of the simulation.

Invariant: nothing runs beside the process. What it hands to a task is carried on where that is awaited, and no
lease is renewed: time passes only by choice.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, cast

from semel.api import AsyncSemel
from semel.core.record import Lease
from semel.core.store import Store
from semel.engine.async_engine import AsyncEngine, AsyncSemelBase
from semel.engine.background import HeldLease
from semel.engine.call_flow import CallFlow
from semel.engine.clock import RetryBudget
from semel.engine.runtime import AsyncRuntimes
from semel_lab.simulate.decorated_caller import Silent
from semel_lab.simulate.events.database import Wish
from semel_lab.simulate.process import whole
from semel_lab.simulate.world import SECOND


class Timed(Protocol):
    """A database, whose clock is that of its world."""

    now_us: int


def make_semel(database: Timed, new_nonce: Callable[[], bytes], check_alive: Callable[[], None]) -> AsyncSemel:
    """An engine on a simulated database. `check_alive` raises where its process has died."""
    engine = AsyncEngine(
        cast("Store", database), clock=cast("Any", _Clock(database)), observer=Silent(), new_nonce=new_nonce
    )
    engine.retry_budget = RetryBudget(whole)
    engine._use_runtimes(cast("AsyncRuntimes", _Runtimes(check_alive)))
    return cast("AsyncSemel", AsyncSemelBase(engine))


class _CleaningUp:
    """The task that cleans up after a call: it is carried on where it is awaited."""

    _asyncio_future_blocking = False

    def __init__(self, work: Any) -> None:
        self._work = work

    def done(self) -> bool:
        """`asyncio.shield` then hands it back to be awaited."""
        return True

    def __await__(self) -> Generator[Any, Any, None]:
        return cast("Generator[Any, Any, None]", self._work.__await__())


class _Background:
    """What a call asks of the background: here nothing is due."""

    register_from = float("inf")


class _Runtime:
    """The moving parts of a process, as far as a call needs them. No lease is renewed: time passes only by choice."""

    background = _Background()
    spawn = _CleaningUp

    def perform(self, operation: Any) -> Wish:
        """Have one operation performed."""
        return Wish(operation)

    def keep_lease(self, call: CallFlow) -> None:
        """Nobody renews it."""
        call.beat = cast("HeldLease", object())

    def keep_claims(self, leases: Sequence[Lease], *, length: float, asked: float) -> list[HeldLease]:
        """Nobody renews them."""
        return [HeldLease(lease, length, asked, float("inf")) for lease in leases]

    def release(self, _lease: HeldLease) -> None:
        """Nobody renews it."""

    def finish(self, _lease: Any, _digest: bytes, _waiter: Any) -> None:
        """Nobody waits here."""

    def count_replay(self, _digest: bytes) -> None:
        """Nobody counts."""


class _Runtimes:
    def __init__(self, check_alive: Callable[[], None]) -> None:
        self._check_alive = check_alive
        self._runtime = _Runtime()

    def current(self) -> _Runtime:
        """The runtime of a process that is alive."""
        self._check_alive()
        return self._runtime


class _Clock:
    def __init__(self, database: Timed) -> None:
        self._database = database

    def monotonic(self) -> float:
        """The instant, in seconds."""
        return self._database.now_us / SECOND

    def rest(self, wake: threading.Event, until: float | None) -> None:
        """No threads here."""
        raise NotImplementedError

    async def arest(self, _wake: asyncio.Event, until: float | None) -> None:
        """Let time pass."""
        assert until is not None
        await Wish(until - self.monotonic())
