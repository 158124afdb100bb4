"""Waiting: everybody in this process who waits for somebody else's key, and the one poll that serves them all.

A pure state machine: waiters come and go, `due` says when to look, `look` says what to read. What always holds:
however many wait, there is one read per key and round and at most five rounds a second; a waiter holds no connection;
no more wait than the limits say, and whoever comes then is told so at once; when the owner is gone exactly one waiter
is told to claim, and the next only after that one has left without the key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semel.core.guard import Limits
from semel.core.operations import Answer, Found, Read
from semel.core.record import Record, Status
from semel.engine.effects import Crowded, Ended, News, Promoted, TimedOut

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
