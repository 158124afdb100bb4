"""One process of a relay: the real relay, stopped wherever it waits.

Invariant: everything down to the lane is semel's own code. A process that dies raises `Killed` where it stands,
and nothing more of it reaches the simulation.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Generator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from semel.events import Backoff, Event, Outbox, Relay
from semel_lab.simulate.decorated_caller import Killed
from semel_lab.simulate.events.database import Wish
from semel_lab.simulate.events.runtime import make_semel

if TYPE_CHECKING:
    from semel_lab.simulate.relays.simulation import RelaySimulation


class Publish:
    """What a relay asks of the broker."""

    __slots__ = ("events",)

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events


class _Beside:
    """What a relay does beside publishing: it is done as soon as it is begun, or when it is awaited."""

    def __init__(self, work: Coroutine[Any, Any, Any], sim: RelaySimulation) -> None:
        self._work = work
        self._result: Any = None
        self._is_over = not sim.choices.fault(2)
        self._is_cancelled = False
        if self._is_over:
            self._result = sim.finish(work)

    def done(self) -> bool:
        """Whoever asks is to await it."""
        return True

    def cancel(self) -> None:
        """Nobody wants it any more."""
        self._is_cancelled = True
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._is_cancelled:
            raise asyncio.CancelledError
        if self._is_over:
            return self._result
        self._is_over = True
        self._result = yield from self._work.__await__()
        return self._result


class RelayProcess:
    """One relay, and where it stands."""

    def __init__(self, sim: RelaySimulation, actor: int) -> None:
        self.sim = sim
        self.actor = actor
        self.is_dead = False
        self.wanted: Any = None
        self.steps: Any = None
        self._context = contextvars.Context()
        semel = make_semel(sim, sim.new_nonce, self.check_alive)
        world = sim.world
        self.relay = Relay(
            Outbox(semel),
            self,
            world.in_flight,
            batch=world.batch,
            max_attempts=2,
            backoff=Backoff(first=0.1, most=0.1, spread=0.0),  # chance belongs to the choices of the schedule
            keep_for=timedelta(0),
        )
        self.relay._spawn = cast("Any", self._spawn)
        self._work: Any = None

    async def publish(self, events: Sequence[Event]) -> Sequence[Exception | None]:
        """Have the simulation be the broker."""
        self.check_alive()
        told: Sequence[Exception | None] = await Wish(Publish(events))
        return told

    async def _spawn(self, work: Coroutine[Any, Any, Any]) -> Any:
        return _Beside(work, self.sim)

    def check_alive(self) -> None:
        """Raises `Killed` where the process has died."""
        if self.is_dead:
            raise Killed

    @property
    def is_busy(self) -> bool:
        """Whether it has something to do."""
        return self._work is not None

    def run(self) -> None:
        """Begin to publish events as they come, until it is stopped."""
        (part,) = self.relay._parts
        self._begin(self.relay._run_part(part))

    def run_once(self) -> None:
        """Begin to publish what is there."""
        self._begin(self.relay.run_once())

    def release(self) -> None:
        """Begin to let all that is parked be published again."""
        self._begin(self.relay.release())

    def _begin(self, work: Any) -> None:
        self._work = work
        self._go(work.send, None)

    def answer(self, value: Any) -> None:
        """Go on with an answer, up to the next wish."""
        self._go(self._work.send, value)

    def refuse(self, error: Exception) -> None:
        """Go on with an error, up to the next wish."""
        self._go(self._work.throw, error)

    def _go(self, move: Any, value: Any) -> None:
        self.steps = None
        try:
            self.wanted = self._context.run(move, value)
        except StopIteration as end:
            self.wanted = self._work = None
            self.sim.ended(self, end.value)
        except OSError as error:
            self.wanted = self._work = None
            self.sim.gave_up(self, error)
        except BaseException:
            self.wanted = self._work = None  # it is over
            raise

    def die(self) -> None:
        """End at the point where it stands."""
        self.is_dead = True
        work, self._work, self.wanted, self.steps = self._work, None, None, None
        if work is not None:
            with suppress(Killed, StopIteration):
                self._context.run(work.throw, Killed())
