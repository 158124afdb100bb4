"""The circuit breaker of a store, and the guard that decides with it which operations are sent.

Pure state machines: time and randomness are passed in.

- `Breaker` opens after so many failures in a row. While it is open at most one probe at a time is let through, after a
  back-off that doubles with each failed one, up to `longest`.
- `Guard`: while the breaker is open, claims and reads fail fast and nothing ran; writes of running attempts still go
  through, so an attempt can record its outcome the moment the store is back. Only a store that could not answer counts
  as a failure; a conflict is an answer. Of the last failure only its text is kept, so that no traceback stays alive.
- `Limits` are the settings of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from semel.core.operations import Checkpoint, Complete, Fail, JoinTransaction, Operation, Renew
from semel.core.store import Answers
from semel.errors import StoreMisconfigured, StoreUnavailable, UsageError
from semel.validation import Duration, refuses_unknown, to_timedelta

BreakerState = Literal["closed", "open", "half-open"]


class Breaker:
    """Closed: everything goes through. Open: nothing does. Half-open: one try is on its way.

    Args:
        failures: how many in a row open it.
        rest: seconds until the first try after that.
        longest: the longest rest.
        chance: a number from 0 up to 1; a rest is between half and all of its length, so that processes do not come
            back together.
    """

    def __init__(self, *, failures: int, rest: float, longest: float, chance: Callable[[], float]) -> None:
        self._most = failures
        self._first_rest = rest
        self._longest = longest
        self._chance = chance
        self._failed = 0
        self._tries = 0
        self._again_at = 0.0
        self._trying_since: float | None = None

    @property
    def state(self) -> BreakerState:
        """What it does with the next one who asks."""
        if self._failed < self._most:
            return "closed"
        return "open" if self._trying_since is None else "half-open"

    def allow(self, now: float) -> bool:
        """Whether a request may be sent now. Its sender then reports how it went."""
        if self._failed < self._most:
            return True
        # A try whose end was never told (its caller is gone) does not keep the place shut for ever.
        if self._trying_since is not None and now - self._trying_since < self._longest:
            return False
        if now < self._again_at:
            return False
        self._trying_since = now
        return True

    def remaining(self, now: float) -> float:
        """Seconds until the next try; 0 when there may be one."""
        return max(0.0, self._again_at - now) if self._failed >= self._most else 0.0

    def on_success(self) -> None:
        """The place answered."""
        self._failed = self._tries = 0
        self._trying_since = None

    def on_no_signal(self) -> None:
        """What was let through told nothing of the place: the next try need not wait for it."""
        self._trying_since = None

    def on_failure(self, now: float, *, at_once: bool = False) -> None:
        """The place did not answer. `at_once`: this one failure is enough to open it."""
        self._failed = self._most if at_once else min(self._failed + 1, self._most)
        if self._failed < self._most:
            return
        length = min(self._first_rest * 2.0 ** min(self._tries, 32), self._longest)
        self._again_at = now + length * (0.5 + self._chance() / 2)
        self._tries += 1
        self._trying_since = None


RUNNING = (Complete, Fail, Renew, Checkpoint, JoinTransaction)
"""What belongs to an attempt that runs."""

Change = Literal["store_open", "store_closed"]
_SHORTEST = 0.05
_AnsweredOrFailure = Literal[True] | StoreUnavailable | None


@refuses_unknown("Limits", UsageError)
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a store in trouble is asked, how many may wait for it, and how many for what others run.

    A number stands for so many seconds.

    Args:
        open_after: how many rounds without an answer, in a row, until the store is left alone.
        slow_call: a single round without an answer for so long is enough for that.
        backoff: how long until it is tried again, the first time; twice as long after each try that failed.
        max_backoff: the longest of these.
        max_queue: how many operations of a process may wait for their turn.
        retry_budget: how many claims may be sent again at first; each call adds a tenth, up to ten times as many.
        waiters: how many callers of a process may wait for keys that others run.
        waiters_per_key: how many of them may wait for one key.
        max_handlers: how many handlers of a process may run at the same time; None: any number. One more is refused
            with `TooManyHandlers` before anything is claimed. What a running handler calls itself is not counted, and
            claims of semel's own, as that of a relay, are not either.
    """

    open_after: int = 5
    slow_call: timedelta = timedelta(seconds=5)
    backoff: timedelta = timedelta(milliseconds=100)
    max_backoff: timedelta = timedelta(seconds=2)
    max_queue: int = 10_000
    retry_budget: int = 10
    waiters: int = 10_000
    waiters_per_key: int = 1_000
    max_handlers: int | None = None

    if TYPE_CHECKING:

        def __init__(self, **given: Unpack[LimitFields]) -> None: ...

    def __post_init__(self) -> None:
        for name in ("open_after", "max_queue", "retry_budget", "waiters", "waiters_per_key", "max_handlers"):
            value, least = getattr(self, name), int(name != "retry_budget")
            if value is None and name == "max_handlers":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                message = f"{name} must be a whole number from {least} up, not {value!r}; nothing ran."
                raise UsageError(message)
        for name in ("slow_call", "backoff", "max_backoff"):
            object.__setattr__(self, name, to_timedelta(name, getattr(self, name)))
        if self.max_backoff < self.backoff:
            message = f"max_backoff must not be shorter than backoff, {self.backoff}; nothing ran."
            raise UsageError(message)

    def breaker(self, chance: Callable[[], float]) -> Breaker:
        """A breaker with these limits."""
        rest, longest = self.backoff.total_seconds(), self.max_backoff.total_seconds()
        return Breaker(failures=self.open_after, rest=rest, longest=longest, chance=chance)


class LimitFields(TypedDict, total=False):
    """The fields of `Limits`, as they are given."""

    open_after: int
    slow_call: Duration
    backoff: Duration
    max_backoff: Duration
    max_queue: int
    retry_budget: int
    waiters: int
    waiters_per_key: int
    max_handlers: int | None


class Guard:
    """Stands in front of one store.

    The sender calls `check` for each operation, `on_send` when a batch goes out and `on_reply` when it is back.

    Args:
        breaker: when to leave the store alone.
        clock: the monotonic time, in seconds.
        name: what the store is called in messages.
        patience: a round that stayed without an answer for so long opens the breaker by itself.
    """

    __slots__ = (
        "_breaker",
        "_changes",
        "_clock",
        "_failures",
        "_last_kind",
        "_last_message",
        "_name",
        "_patience",
        "_sent",
        "closed",
        "has_changed",
    )

    def __init__(
        self, breaker: Breaker, clock: Callable[[], float], *, name: str = "The store", patience: float = 5.0
    ) -> None:
        self.closed = True
        self._breaker = breaker
        self._clock = clock
        self._name = name
        self._patience = patience
        self._sent: float | None = None
        self._failures = 0
        self._last_kind: type[StoreUnavailable] = StoreUnavailable
        self._last_message = ""
        self._changes: list[Change] = []
        self.has_changed = False

    def check(self, operation: Operation) -> StoreUnavailable | None:
        """Why `operation` must not be sent now; None: it may."""
        if self.closed or isinstance(operation, RUNNING):
            return None
        now = self._clock()
        # A probe may take longer than any back-off: a second one would wait behind it.
        if self._sent is None and self._breaker.allow(now):
            return None
        return self._unavailable(max(_SHORTEST, self._breaker.remaining(now)))

    def _unavailable(self, rest: float) -> StoreUnavailable:
        kind, reason = self._last_kind, self._last_message
        when = "once that is mended" if kind is StoreMisconfigured else f"in {rest:.2f} s"
        # A read can be refused while a handler runs: what is said is about the request, not about the whole call.
        message = (
            f"{self._name} is unavailable (failures in a row: {self._failures}), so this request was not sent: nothing "
            f"ran and nothing was recorded for it. Retry with the same key {when}. The last failure: {reason}"
        )
        error = kind(message, retry_after=timedelta(seconds=rest), asked=False)
        error.__cause__ = kind(reason)
        return error

    def on_send(self) -> None:
        """A round goes out. Where it only holds what is never refused, it is as good a try as any."""
        self._sent = now = self._clock()
        if not self.closed:
            self._breaker.allow(now)

    def on_reply(self, replies: Iterable[Answers | Exception]) -> None:
        """The round is back: with answers, with errors, or with nothing that says anything (an empty list)."""
        sent, self._sent = self._sent, None
        verdict = _verdict(replies)
        if verdict is True:
            if self._failures:
                self._failures = 0
                self._breaker.on_success()
                self._become(closed=True)
        elif verdict is None:
            self._breaker.on_no_signal()
        else:
            self._note(verdict)
            if self._breaker.state != "open":  # a write sent while it rests is no try, and does not prolong the rest
                now = self._clock()
                self._breaker.on_failure(now, at_once=sent is not None and now - sent >= self._patience)
                self._become(closed=self._breaker.state == "closed")

    def _note(self, failure: StoreUnavailable) -> None:
        self._failures += 1
        self._last_kind = StoreMisconfigured if isinstance(failure, StoreMisconfigured) else StoreUnavailable
        self._last_message = failure.message

    def on_lane_closed(self) -> None:
        """The sender is gone, and what it sent with it: the next sender goes on from here."""
        self._sent = None
        self._breaker.on_no_signal()

    def _become(self, *, closed: bool) -> None:
        if closed is not self.closed:
            self.closed = closed
            self._changes.append("store_closed" if closed else "store_open")
            self.has_changed = True

    def take_events(self) -> Sequence[Change]:
        """What became of the store since this was last asked."""
        if not self._changes:
            return ()
        changes, self._changes = self._changes, []
        self.has_changed = False
        return changes


def _verdict(replies: Iterable[Answers | Exception]) -> _AnsweredOrFailure:
    """True: the store answered, for which one answer is enough. Else its last failure; None: nothing tells which."""
    failure: StoreUnavailable | None = None
    for reply in replies:
        for answer in (reply,) if isinstance(reply, Exception) else reply:
            if not isinstance(answer, StoreUnavailable):
                if not isinstance(answer, Exception):
                    return True
            elif answer.conflict:
                return True
            elif answer.asked:
                failure = answer
    return failure
