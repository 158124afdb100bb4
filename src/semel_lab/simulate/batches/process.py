"""One process that works on a batch: the real runner, with one worker, stopped wherever it waits.

What always holds: everything down to the lane is semel's own code. A process that dies raises `Killed` where it stands.
"""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from semel.batch.async_runner import AsyncRunner
from semel.batch.items import Item, make_item_handler
from semel.batch.settings import make_settings
from semel.core import codec
from semel.core.batch.values import StoredBatch
from semel.core.policy import Policy
from semel.engine.engine import engine_of
from semel_lab.simulate.batches.transactions import Commit
from semel_lab.simulate.decorated_caller import Killed
from semel_lab.simulate.events.database import Session, Wish
from semel_lab.simulate.events.runtime import make_semel

if TYPE_CHECKING:
    from semel_lab.simulate.batches.simulation import BatchSimulation


class Effect:
    """What the handler of an item does."""

    __slots__ = ("item",)

    def __init__(self, item: Item) -> None:
        self.item = item


class BatchProcess:
    """One runner, and where it stands."""

    def __init__(self, sim: BatchSimulation, actor: int, batch: StoredBatch) -> None:
        self.sim = sim
        self.actor = actor
        self.is_dead = False
        self.wanted: Any = None
        self.session: Session | None = None
        world = sim.world
        self._context = contextvars.Context()
        semel = make_semel(sim, sim.new_nonce, self.check_alive)
        settings = make_settings(
            make_item_handler(self.pay, Any),
            codec.shape_of(str),
            Policy(in_doubt=world.policy, lease_for=timedelta(seconds=30)),
            concurrency=1,
            page=world.page,
            max_attempts=world.max_attempts,
            max_failed=world.max_failed,
            rate=None,
            transaction=self.transaction if world.by_page else None,
            commit="page" if world.by_page else "item",
            wait=True,
        )
        self.runner = AsyncRunner(engine_of(semel), batch, settings)
        self._work: Any = None

    async def pay(self, item: Item) -> str:
        """Have the simulation note the effect; it may fail."""
        self.check_alive()
        self.sim.begin_item(self.actor, item.id)
        value: str = await Wish(Effect(item))
        return value

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """A transaction that commits at its end."""
        session = self.session = self.sim.database.begin(self.check_alive)
        try:
            yield session
            self.check_alive()
            await Wish(Commit(session))
        finally:
            self.session = None
            self.sim.database.roll_back(session)

    def check_alive(self) -> None:
        """Raises `Killed` where the process has died."""
        if self.is_dead:
            raise Killed

    @property
    def is_busy(self) -> bool:
        """Whether it has something to do."""
        return self._work is not None

    def run(self) -> None:
        """Begin to work."""
        self._work = _work(self.runner).__await__()
        self._go(self._work.send, None)

    def answer(self, value: Any) -> None:
        """Go on with an answer, up to the next wish."""
        self._go(self._work.send, value)

    def refuse(self, error: Exception) -> None:
        """Go on with an error, up to the next wish."""
        self._go(self._work.throw, error)

    def _go(self, move: Any, value: Any) -> None:
        try:
            self.wanted = self._context.run(move, value)
            while self.wanted is None:  # it lets others run, and there are none in its process
                self.wanted = self._context.run(self._work.send, None)
        except StopIteration:
            self.wanted = self._work = None
        except BaseException:
            self.wanted = self._work = None
            raise

    def die(self) -> None:
        """End at the point where it stands."""
        self.is_dead = True
        work, self._work, self.wanted = self._work, None, None
        if work is not None:
            with suppress(Killed, StopIteration, RuntimeError):
                self._context.run(work.throw, Killed())


class _Awaited:
    def __init__(self, runner: AsyncRunner) -> None:
        self._runner = runner

    def __await__(self) -> Generator[Any, Any, None]:
        yield from self._runner.begin().__await__()
        yield from self._runner._work().__await__()
        error = self._runner._error
        if error is None or isinstance(error, Exception):  # otherwise its process died
            yield from self._runner._leave().__await__()
        if error is not None:
            raise error


def _work(runner: AsyncRunner) -> _Awaited:
    return _Awaited(runner)
