"""What callers were told, checked when they are told it.

What always holds: a value that was given is the recorded one, its effect is in the ledger under the same generation,
key and fingerprint, and every error a caller sees is one of its handler or of semel's tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.engine.request import Result
from semel.errors import (
    FailedBefore,
    InDoubt,
    InProgress,
    KeyReused,
    LeaseLost,
    NotResolvable,
    ResultNotKept,
    SemelError,
    StoreUnavailable,
)
from semel.testing.simulate.violation import Violation
from semel.testing.simulate.world import Broken, Declined, NothingHappened, is_same_request

if TYPE_CHECKING:
    from semel.testing.simulate.caller import Caller
    from semel.testing.simulate.life import Life
    from semel.testing.simulate.simulation import Simulation

_EXPECTED = (
    FailedBefore,
    InDoubt,
    InProgress,
    KeyReused,
    LeaseLost,
    ResultNotKept,
    StoreUnavailable,
    Broken,
    Declined,
    NothingHappened,
)


class Answers:
    """Judges how calls end."""

    __slots__ = ("sim",)

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim

    def ended(self, caller: Caller, result: Result[Any] | None, error: Exception | None) -> None:
        """A call is over, with a result or an error."""
        if self.sim.trace is not None:
            self.sim.note(f"caller {caller.actor}", f"gets {type(error).__name__ if result is None else result.value}")
        if result is not None:
            self._success(caller, result)
        elif not isinstance(error, _EXPECTED):
            raise Violation("broke", f"a call ended with {error!r}") from error
        else:
            self._failure(caller, error)

    def swept(self, report: object, error: Exception | None) -> None:
        """A sweep is over."""
        if error is not None and not isinstance(error, StoreUnavailable):
            raise Violation("broke", f"a sweep ended with {error!r}") from error
        if report is not None:
            self.sim.seen["swept"] += 1
            if report.reconciled:  # type: ignore[attr-defined]
                self.sim.seen["swept: reconciled"] += 1

    def erased(self, error: Exception | None) -> None:
        """Whoever erases has heard what became of it."""
        if error is not None and not isinstance(error, (NotResolvable, StoreUnavailable)):
            raise Violation("broke", f"erasing ended with {error!r}") from error
        self.sim.seen["erasing answered" if error is None else f"erasing answered: {type(error).__name__}"] += 1

    def resolved(self, error: Exception | None) -> None:
        """An operator has heard what became of its last statement."""
        if error is not None and not isinstance(error, (NotResolvable, StoreUnavailable)):
            raise Violation("broke", f"resolving ended with {error!r}") from error
        self.sim.seen["correcting answered" if error is None else f"correcting answered: {type(error).__name__}"] += 1

    def _success(self, caller: Caller, result: Result[Any]) -> None:
        sim = self.sim
        record = result._granted.record if result._granted is not None else result._found
        life = None if record is None else sim.store.claims.life_of.get(record.nonce)
        if life is None or caller.request is None:
            raise Violation("I3", "a value was given that no granted claim stands for")
        if not is_same_request(life.fingerprint, caller.request.fingerprint):
            raise Violation("I5", "a value was given for another fingerprint")
        if life.digest != caller.request.key.digest:
            raise Violation("I6", "a value was given for another key")
        if life.outcome is None and not life.earlier:
            raise Violation("I3", "a value was given that is not recorded")
        if record is not None and record.nonce in life.stated:
            self._stated(result, life.stated[record.nonce])
            return
        if result.value not in (life.value, *life.earlier):
            raise Violation("I2", f"{result.value} was given and {life.value} is recorded")
        if all(effect.value != result.value for effect in life.line):
            raise Violation("I3", f"{result.value} was given and no effect of this generation has it")
        sim.seen["answered: replay" if result.replayed else "answered: first"] += 1

    def _stated(self, result: Result[Any], stated: object) -> None:
        """A value is given that an operator stated: no effect has it, and it is the one of that very statement."""
        if not result.replayed or result.value != stated:
            raise Violation("I2", f"{result.value} was given and {stated} was stated")
        self.sim.seen["answered: stated"] += 1

    def _failure(self, caller: Caller, error: Exception | None) -> None:
        sim = self.sim
        assert caller.request is not None
        life: Life | None = sim.store.claims.lives.get(caller.request.key.digest)
        name = type(error).__name__
        sim.seen["answered: " + name] += 1
        if isinstance(error, InProgress) and caller.missed and sim.witness.has_answer(caller.request):
            raise Violation("waiters", "a waiter was sent away although the answer was there")
        if life is None or life.number > 1 or not isinstance(error, SemelError):
            return
        if isinstance(error, KeyReused) and is_same_request(life.fingerprint, caller.request.fingerprint):
            raise Violation("I5", "a caller was told that its own request is another one")
        if isinstance(error, ResultNotKept) and not life.erased:
            raise Violation("I3", "a value was said to be erased that nobody erased")
        if isinstance(error, FailedBefore):
            if not life.erased and life.fingerprint != caller.request.fingerprint:
                raise Violation("I5", "a failure was replayed for another fingerprint")
            if not life.failed:
                raise Violation("I3", "a failure was told that is not recorded")
