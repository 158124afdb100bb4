"""The heartbeat: one place that knows every lease of this process and when to renew it.

A pure state machine: leases come and go, `due` says when to look again, `beats` says what to send. What always holds:
a lease is renewed at a third of its length, and no longer than `max_runtime`; an attempt whose lease was refused, or
whose renewals stayed without answer until the lease must be over, is told that it is lost before anybody else can
have been granted the key by the store's clock (the local deadline counts from before the request was sent).
"""

from __future__ import annotations

from semel.core.operations import Answer, Held, Lost, Renew
from semel.core.record import Lease

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
