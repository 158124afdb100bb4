"""What an attempt knows of itself, without colour: its lease, its steps, and whether it is still the owner.

What always holds: the steps of an attempt come in the order of the attempt before, as far as that one got; a name is
used once. Whoever touches an attempt that lost its lease is told so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from semel.core.key import Key, make_key
from semel.core.operations import Granted
from semel.core.record import About, Lease, Step
from semel.engine.background import Beat
from semel.errors import LeaseLost, StepsChanged, UsageError


class StepLog:
    """The steps of one attempt against those already finished."""

    def __init__(self, finished: tuple[Step, ...]) -> None:
        self._finished = {step.index: step for step in finished}
        self._entered: list[str] = []
        self._last_joined = False

    def enter(self, name: str, *, joined: bool = False) -> tuple[int, Step | None, bool]:
        """The position of the step called next, its record if it is finished, and whether it is the last one again.

        A step in the caller's transaction is finished when that commits, so the caller may have to run it again.

        Raises:
            StepsChanged: another step stood here in the attempt before, or the name was used already.
        """
        if joined and self._last_joined and name == self._entered[-1]:
            index = len(self._entered) - 1
            return index, self._finished.get(index), True
        index, finished = self._enter_next(name)
        self._last_joined = joined
        return index, finished, False

    def leave(self) -> None:
        """The step entered last did nothing: it may be entered once more."""
        self._entered.pop()
        self._last_joined = False

    def _enter_next(self, name: str) -> tuple[int, Step | None]:
        index = len(self._entered)
        if name in self._entered:
            message = f"The step {name!r} was used twice in one attempt; the second did not run. Name each step once."
            raise StepsChanged(message)
        finished = self._finished.get(index)
        elsewhere = next((step for step in self._finished.values() if step.name == name), None)
        if (finished is not None and finished.name != name) or (finished is None and elsewhere is not None):
            was = finished.name if finished is not None else f"number {elsewhere.index + 1}"  # type: ignore[union-attr]
            message = (
                f"Step {index + 1} is {name!r} now and was {was!r} in an earlier attempt; it did not run. "
                f"Finish the key with the code that began it, or give changed code another operation or version."
            )
            raise StepsChanged(message)
        self._entered.append(name)
        return index, finished

    def check_complete(self) -> None:
        """Refuse an end that passed over steps which an earlier attempt finished."""
        if not self._finished:
            return
        missing = [step.name for step in self._finished.values() if step.name not in self._entered]
        if missing:
            message = (
                f"This attempt ended without the step {missing[0]!r}, which an earlier attempt finished; its result is "
                f"not recorded. Finish the key with the code that began it."
            )
            raise StepsChanged(message)


class AttemptState:
    """What a call knows of its attempt, once its claim is granted; the part of a call that its handler can see."""

    granted: Granted
    lease: Lease
    beat: Beat | None = None
    in_doubt = False
    active = False
    joined = False
    _monotonic: Callable[[], float] | None = None

    def take(self, granted: Granted) -> None:
        """Begin the attempt that was granted; one before it, whose lease was over before anything ran, is forgotten."""
        own = vars(self)
        if "granted" in own:
            for name in ("beat", "_monotonic", "_steps", "_derived"):
                own.pop(name, None)
        self.granted = granted
        self.lease = granted.lease
        self.in_doubt = granted.in_doubt

    @property
    def key(self) -> Key:
        """The key this attempt runs."""
        return self.granted.record.key

    @property
    def number(self) -> int:
        """How many attempts there were, this one included."""
        return self.granted.record.attempts

    @property
    def about(self) -> About:
        """What the caller said the operation is about."""
        return self.granted.record.about

    @property
    def steps(self) -> StepLog:
        """The steps of this attempt, made when the first one is asked for."""
        # Threads of one handler may come at the same time: `setdefault` is one step of the interpreter.
        log: StepLog | None = vars(self).get("_steps")
        return log or vars(self).setdefault("_steps", StepLog(self.granted.record.steps))

    def check_steps(self) -> None:
        """Refuse an end that passed over steps which an earlier attempt finished."""
        if self.granted.record.steps:
            self.steps.check_complete()

    def derive_next(self, step: str, what: str) -> str:
        """A key for the next service, derived from this key, the step's name, and a counter per step and `what`."""
        # Threads of one handler never get the same number: each of these is one step of the interpreter.
        derived: dict[tuple[str, str], Iterator[int]] = vars(self).setdefault("_derived", {})
        number = next(derived.setdefault((step, what), count(1)))
        return self.key.derive(make_key("next", step, what, number))

    def keep(self, beat: Beat, monotonic: Callable[[], float]) -> None:
        """Its lease is kept alive from now on; `monotonic` is the engine's clock."""
        self.beat = beat
        self._monotonic = monotonic

    def _lost(self) -> str | None:
        """Why the lease is lost, by the clock: the keeper may itself be stuck behind a store that does not answer."""
        if self.beat is None or self._monotonic is None:
            return None
        return self.beat.over(self._monotonic())

    @property
    def is_lost(self) -> bool:
        """Whether it is no longer the owner, as far as is known here."""
        return self._lost() is not None

    def check(self) -> None:
        """Stop an attempt that is no longer the owner.

        Raises:
            LeaseLost: the lease is lost; what follows would not be recorded.
        """
        lost = self._lost()
        if lost is not None:
            message = (
                f"This attempt lost its lease: {lost}. What it did so far stands, but nothing more of it is "
                f"recorded; stop, and ask for the same key again to get the recorded outcome."
            )
            raise LeaseLost(message, reference=self.key.reference)


class AttemptView:
    """The attempt whose handler is running, as the handler sees it: a view on its call; each kind adds `step`."""

    def __init__(self, call: AttemptState) -> None:
        self._call = call

    @property
    def key(self) -> Key:
        """The key this attempt runs."""
        return self._call.key

    @property
    def number(self) -> int:
        """Which attempt this is, counted from 1."""
        return self._call.number

    @property
    def in_doubt(self) -> bool:
        """Whether an earlier attempt may have had its effect."""
        return self._call.in_doubt

    @property
    def fence(self) -> int:
        """The rising number of this lease, for resources that can check it.

        Raises:
            LeaseLost: this attempt is no longer the owner.
        """
        self._call.check()
        return self._call.lease.fence

    @property
    def about(self) -> About:
        """What the caller said the operation is about."""
        return self._call.about

    def derive(self, step: str) -> str:
        """A key for the next service, the same on every attempt of this key.

        Raises:
            LeaseLost: this attempt is no longer the owner.
        """
        self._call.check()
        return self._call.key.derive(step)


def refuse_plain_step(name: str, state: AttemptState, connection: Any) -> None:
    """Inside `within` a step without a transaction of its own would promise what it cannot keep.

    Raises:
        UsageError: the attempt runs in the caller's transaction, and the step names none.
    """
    if connection is None and state.joined:
        message = f"The step {name!r} has no transaction of its own inside within(); it did not run. Just call it."
        raise UsageError(message)
