"""Waiting: everybody in this process who waits for somebody else's key, and the one poll that serves them all.

A pure state machine: waiters come and go, `due` says when to look, `look` says what to read. What always holds:
however many wait, there is one read per key and round and at most five rounds a second; a waiter holds no connection;
no more wait than the limits say, and whoever comes then is told so at once; when the owner is gone exactly one waiter
is told to claim, and the next only after that one has left without the key.

The heartbeat: one place that knows every lease of this process and when to renew it.

A pure state machine: leases come and go, `due` says when to look again, `beats` says what to send. What always holds:
a lease is renewed at a third of its length, and no longer than `max_runtime`; an attempt whose lease was refused, or
whose renewals stayed without answer until the lease must be over, is told that it is lost before anybody else can
have been granted the key by the store's clock (the local deadline counts from before the request was sent).

The keeper: looks for every waiter of a process, and writes down replays.

What a watch looks after. What always holds: an error of the store never ends it, and it rests when there is nothing to
do. Leases are not its business (`renewal`): what callers wait for must not hold them up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from semel.core.circuit import Limits
from semel.core.flow import Flow
from semel.core.operations import Answer, Found, Held, Lost, Operation, Read, Renew, Tally
from semel.core.record import Lease, Record, Status
from semel.engine.clock import Clock
from semel.engine.effects import Crowded, Ended, News, PerformAll, Promoted, TimedOut

_PART = 3


class Beat:
    """One lease kept alive. `lost` says why it is not any more."""

    __slots__ = ("deadline", "lease", "length", "lost", "next", "stop")

    def __init__(self, lease: Lease, length: float, asked: float, stop: float) -> None:
        self.lease = lease
        self.length = length
        self.deadline = asked + length
        self.next = asked + length / _PART
        self.stop = stop
        self.lost: str | None = None

    def over(self, now: float) -> str | None:
        """Why the lease is lost at this instant, if it is."""
        if self.lost is not None:
            return self.lost
        if now >= self.stop:
            return "it ran longer than max_runtime, so its lease is no longer renewed"
        if now >= self.deadline:
            return "its lease could not be renewed in time"
        return None


class Heartbeat:
    """Every lease that a handler of this process holds."""

    def __init__(self) -> None:
        self._beats: dict[bytes, Beat] = {}

    def hold(self, lease: Lease, *, length: float, max_runtime: float, asked: float) -> Beat:
        """Keep a lease alive; `asked` is when the claim was sent, so that the deadline errs on the safe side."""
        beat = Beat(lease, length, asked, asked + max_runtime)
        self._beats[lease.nonce] = beat
        return beat

    def release(self, beat: Beat) -> None:
        """The attempt is over."""
        self._beats.pop(beat.lease.nonce, None)

    def due(self) -> float | None:
        """When something has to be done next."""
        times = [min(beat.next, beat.deadline, beat.stop) for beat in self._beats.values() if beat.lost is None]
        return min(times, default=None)

    def lapse(self, now: float) -> list[Beat]:
        """Mark leases whose time is over as lost; answers those that were not renewed in time."""
        lapsed = []
        for beat in self._beats.values():
            if beat.lost is None:
                beat.lost = beat.over(now)
                if beat.lost is not None and now < beat.stop:
                    lapsed.append(beat)
        return lapsed

    def beats(self, now: float) -> list[Renew]:
        """What to send now. Leases whose time is over are marked lost instead."""
        self.lapse(now)
        renewals = []
        for beat in self._beats.values():
            if beat.lost is None and now >= beat.next:
                beat.next = min(now + beat.length / _PART, beat.deadline)
                renewals.append(Renew(beat.lease, round(beat.length * 1_000_000)))
        return renewals

    def answered(self, renewal: Renew, answer: Answer | Exception, sent: float) -> None:
        """Take in the answer to a renewal that was sent at `sent`; an error means that it will be tried again."""
        beat = self._beats.get(renewal.lease.nonce)
        if beat is None:
            return
        match answer:
            case Held():
                beat.deadline = sent + beat.length
                beat.next = sent + beat.length / _PART
            case Lost():
                beat.lost = "somebody else holds the key now, or its doubt was resolved"
            case _:
                beat.next = min(sent + beat.length / (_PART * 2), beat.deadline)


FIRST_LOOK = 0.05
BETWEEN_LOOKS = 0.2
JITTER = 0.1


class Waiter:
    """One caller that waits. `seat` is whatever its shell waits on; `news` is what ends the wait."""

    __slots__ = ("digest", "news", "seat", "until")

    def __init__(self, digest: bytes, until: float, seat: Any = None) -> None:
        self.digest = digest
        self.until = until
        self.seat = seat
        self.news: News | None = None


class Waiting:
    """The waiters of this process, by key. `random` gives the jitter, from 0 to 1; `limits` how many may wait."""

    def __init__(self, random: Callable[[], float], limits: Limits | None = None) -> None:
        self._random = random
        self._limits = limits or Limits()
        self._count = 0
        self._keys: dict[bytes, list[Waiter]] = {}
        self._heirs: dict[bytes, Waiter] = {}
        self._nudged: set[bytes] = set()
        self._look_at: float | None = None
        self._last_look = float("-inf")

    def join(self, digest: bytes, until: float, now: float, seat: Any = None, last: Waiter | None = None) -> Waiter:
        """Begin to wait. Whoever waits again, after `last` was promoted, did not get the key: its turn is over.

        A waiter who cannot stay comes back with its news at once; whoever waited before keeps its place.
        """
        if last is not None and self._heirs.get(digest) is last:
            del self._heirs[digest]
        waiter = Waiter(digest, until, seat)
        if last is None and (crowded := self._crowded(digest)) is not None:
            waiter.news = crowded
            return waiter
        self._count += 1
        self._keys.setdefault(digest, []).append(waiter)
        if self._look_at is None:
            self._look_at = max(now + FIRST_LOOK, self._last_look + BETWEEN_LOOKS)
        return waiter

    def _crowded(self, digest: bytes) -> Crowded | None:
        if self._count >= self._limits.waiters:
            return Crowded(whole_process=True)
        if len(self._keys.get(digest, ())) >= self._limits.waiters_per_key:
            return Crowded(whole_process=False)
        return None

    def take_turn(self, digest: bytes) -> Waiter | None:
        """Become the one of this process who claims a key, as if promoted; None while somebody else is."""
        if digest in self._heirs:
            return None
        self._heirs[digest] = Waiter(digest, float("inf"))
        return self._heirs[digest]

    def leave(self, waiter: Waiter) -> None:
        """Stop waiting, with or without news. A promoted waiter keeps its turn until `done`."""
        waiters = self._keys.get(waiter.digest, [])
        if waiter in waiters:
            waiters.remove(waiter)
            self._count -= 1
            if not waiters:
                self._keys.pop(waiter.digest, None)
                self._nudged.discard(waiter.digest)
        if not self._keys:
            self._look_at = None

    def done(self, digest: bytes, waiter: Waiter | None) -> bool:
        """A call for this key is over in this process: look at once, if anybody waits (then it answers true).

        If the call was a promoted waiter, its turn is over too, and the next look may promote another.
        """
        if waiter is not None and self._heirs.get(digest) is waiter:
            del self._heirs[digest]
        if digest not in self._keys:
            return False
        self._nudged.add(digest)
        return True

    def due(self) -> float | None:
        """When something has to be done next; the past means now."""
        if not self._keys:
            return None
        if self._nudged:
            return float("-inf")
        ends = min(waiter.until for waiters in self._keys.values() for waiter in waiters)
        return ends if self._look_at is None else min(ends, self._look_at)

    def look(self, now: float) -> tuple[list[Waiter], list[Read]]:
        """Who has waited long enough, and what to read now."""
        late = [waiter for waiters in self._keys.values() for waiter in waiters if now >= waiter.until]
        for waiter in late:
            waiter.news = TimedOut()
            self.leave(waiter)
        if self._look_at is not None and now >= self._look_at:
            wanted = list(self._keys)
            self._last_look = now
            self._look_at = now + BETWEEN_LOOKS + JITTER * self._random()
        else:
            wanted = [digest for digest in self._nudged if digest in self._keys]
        self._nudged.clear()
        return late, [Read(digest, waits=True) for digest in wanted]

    def looked(self, read: Read, answer: Answer | Exception) -> list[Waiter]:
        """Take in what a read found; returns the waiters who now have news."""
        if not isinstance(answer, Found):
            return []  # the store did not answer: look again later
        waiters = list(self._keys.get(read.digest, []))
        record = answer.record
        if record is not None and record.final and record.expires_us > answer.now_us:
            for waiter in waiters:
                waiter.news = Ended(record)
                self.leave(waiter)
            return waiters
        if not waiters or _is_held(record, answer.now_us) or read.digest in self._heirs:
            return []
        return [self._promote(waiters[0])]

    def _promote(self, waiter: Waiter) -> Waiter:
        waiter.news = Promoted()
        self._heirs[waiter.digest] = waiter
        self.leave(waiter)
        return waiter


def _is_held(record: Record | None, now_us: int) -> bool:
    return record is not None and record.status is Status.RUNNING and record.lease_us > now_us


TALLY_EVERY = 10.0
TALLY_AGAIN = 0.1
_MOST_COUNTED = 1000
_MOST_WRITTEN = 32


class Keeper:
    """What a process keeps an eye on: who waits. `wake_up` is told which waiter has news."""

    def __init__(self, clock: Clock, waiting: Waiting, wake_up: Callable[[Waiter], None]) -> None:
        self.waiting = waiting
        self.replays: Counter[bytes] = Counter()
        self._clock = clock
        self._wake_up = wake_up
        self._tally_at: float | None = None

    def replayed(self, digest: bytes) -> bool:
        """Count a replay, to be written down later; whether it is the first since the last time that was done.

        Under heavy load some stay uncounted.
        """
        if digest in self.replays or len(self.replays) < _MOST_COUNTED:
            self.replays[digest] += 1
        first = self._tally_at is None
        if first:
            self._tally_at = self._clock.monotonic() + TALLY_EVERY
        return first

    def due(self) -> float | None:
        """When the keeper has something to do next."""
        times = (self.waiting.due(), self._tally_at)
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: float) -> Flow[None]:
        """Do what is due now."""
        late, reads = self.waiting.look(now)
        for waiter in late:
            self._wake_up(waiter)
        operations: list[Operation] = [*reads, *self._tallies(now)]
        if not operations:
            return
        answers = yield PerformAll(operations)
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(operation, Read):  # a tally that failed is not worth a second try
                for waiter in self.waiting.looked(operation, answer):
                    self._wake_up(waiter)

    def _tallies(self, now: float) -> list[Operation]:
        if self._tally_at is None or now < self._tally_at:
            return []
        tallies = self.drain(_MOST_WRITTEN)
        self._tally_at = now + TALLY_AGAIN if self.replays else None
        return tallies

    def drain(self, most: int = _MOST_COUNTED) -> list[Operation]:
        """Replays counted and not yet written down, a few at a time, so that no caller waits behind them."""
        digests = list(self.replays)[:most]
        return [Tally(digest, self.replays.pop(digest)) for digest in digests]
