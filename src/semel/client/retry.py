"""Sending one request until there is a definite answer, or the retry limits are reached. Flows; no I/O.

- Every try carries the same key.
- The error at the end says what is known: refused for good, certainly not executed, or unknown. One try that may have
  been executed makes it unknown.
- When a service is down, a client adds little to its load: each retry costs a token of a budget that all requests of
  the client share, an answer gives back a tenth of one, and without tokens nothing is retried. The key stays stored,
  and `resume` sends it later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from semel.client.models import Ended, NotExecuted, OutcomeUnknown, Refused, Reply, Rest, Send, TransportFailed
from semel.client.response_class import Done, Refusal, ResponseClass, Retry, classify
from semel.core.flow import Flow

_EARNED = 0.1


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long one request is tried, in seconds."""

    tries: int
    give_up_after: float
    shortest: float
    longest: float

    def pause(self, number: int, asked: float | None, chance: float) -> float:
        """How long to wait behind try `number`.

        What the service asks for is waited for, and up to half of the shortest pause more, so that those who were told
        the same do not come back together. Otherwise it is any time up to a bound that doubles with every try.
        """
        if asked is not None:
            return asked + chance * self.shortest / 2
        bound: float = min(self.longest, self.shortest * 2.0 ** min(number, 30))
        return float(bound * chance)


class Budget:
    """How many retries all requests of a client may still make."""

    def __init__(self, size: int) -> None:
        self._size = float(size)
        self._left = float(size)
        self._lock = threading.Lock()

    def spend(self) -> bool:
        """Take one, if there is one."""
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True

    def earn(self) -> None:
        """A request was answered."""
        with self._lock:
            self._left = min(self._size, self._left + _EARNED)


Chance = Callable[[], float]


class Sender:
    """Sends for all requests of a client, out of one budget."""

    def __init__(
        self,
        patience: Backoff,
        budget: Budget,
        *,
        monotonic: Callable[[], float],
        now: Callable[[], float],
        chance: Callable[[], float],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._patience = patience
        self._budget = budget
        self._monotonic = monotonic
        self._now = now
        self._chance = chance
        self._check = check

    def sending(self, send: Send, *, certain: bool, still: Callable[[], Flow[None]] | None = None) -> Flow[Reply]:
        """The answer of a request that was done.

        Args:
            send: the request, with its key.
            certain: whether it is known that no try before this call was carried out.
            still: asked before a try is repeated that may have run; raises where it must not be.

        Raises:
            Ended: there is no such answer.
            LeaseLost: somebody else has the key by now.
        """
        began = self._monotonic()
        doubted = False
        for number in count(1):
            signal, reply, error = yield from self._one(send)
            match signal:
                case Done():
                    assert reply is not None  # noqa: S101 - only an answer says so
                    return reply
                case Refusal(recorded):
                    if certain or recorded:
                        raise Refused(reply, error, send.outgoing.place)
                    # Behind a try that may have run it can come from somebody who never saw that try. A service that
                    # has recorded it under this key says so when it is asked once more.
                    pause = None if doubted else self._pause(number, None, began)
                    doubted = True
                    if pause is None:
                        raise OutcomeUnknown(reply, error, send.outgoing.place)
                    yield from self._rested(pause, still)
                case Retry(after, certainly_not, soon):
                    certain = certain and certainly_not
                    pause = self._pause(number, after, began) if soon else None
                    if pause is None:
                        raise _end(certain)(reply, error, send.outgoing.place)
                    yield from self._rested(pause, None if certain else still)
        raise AssertionError

    def _rested(self, pause: float, still: Callable[[], Flow[None]] | None) -> Flow[None]:
        yield Rest(pause)
        # A caller that lost the key in the meantime sends no more: it may have been given up and used anew.
        self._check()
        if still is not None:
            yield from still()

    def _one(self, send: Send) -> Flow[tuple[ResponseClass, Reply | None, Exception | None]]:
        try:
            reply: Reply = yield send
        except TransportFailed as cut:
            return Retry(certain=not cut.sent, soon=cut.again), None, cut.error
        self._budget.earn()
        return classify(reply, self._now()), reply, None

    def _pause(self, number: int, asked: float | None, began: float) -> float | None:
        """How long to wait before the next try; None where there is to be none."""
        pause = self._patience.pause(number, asked, self._chance())
        over = self._monotonic() + pause > began + self._patience.give_up_after
        return None if number >= self._patience.tries or over or not self._budget.spend() else pause


def _end(certain: bool) -> type[Ended]:  # noqa: FBT001 - the one thing that decides
    return NotExecuted if certain else OutcomeUnknown
