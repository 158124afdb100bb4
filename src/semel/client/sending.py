"""One request with one key, sent until there is a definite answer or patience is at its end. Flows; no I/O.

What always holds: every try shows the same key. The end says what is known: refused for good, certainly not carried
out, or nobody knows. One try that may have run is enough for the last.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from semel.client.effects import Cut, Ended, NothingRan, Refused, Rest, Send, Unsettled
from semel.client.outgoing import Reply
from semel.client.patience import Budget, Patience
from semel.client.signals import Again, Done, Refusal, Signal, signal_of
from semel.core.flow import Flow


class Sender:
    """Sends for all requests of a client, out of one budget."""

    def __init__(
        self,
        patience: Patience,
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
                        raise Unsettled(reply, error, send.outgoing.place)
                    yield from self._rested(pause, still)
                case Again(after, certainly_not, soon):
                    certain = certain and certainly_not
                    pause = self._pause(number, after, began) if soon else None
                    if pause is None:
                        raise _end(certain)(reply, error, send.outgoing.place)
                    yield from self._rested(pause, None if certain else still)
        raise AssertionError

    def _rested(self, pause: float, still: Callable[[], Flow[None]] | None) -> Flow[None]:
        yield Rest(pause)
        # Whoever lost the key in the meantime sends no more: it may have been given up, and asked anew.
        self._check()
        if still is not None:
            yield from still()

    def _one(self, send: Send) -> Flow[tuple[Signal, Reply | None, Exception | None]]:
        try:
            reply: Reply = yield send
        except Cut as cut:
            return Again(certain=not cut.sent, soon=cut.again), None, cut.error
        self._budget.earn()
        return signal_of(reply, self._now()), reply, None

    def _pause(self, number: int, asked: float | None, began: float) -> float | None:
        """How long to wait before the next try; None where there is to be none."""
        pause = self._patience.pause(number, asked, self._chance())
        over = self._monotonic() + pause > began + self._patience.give_up_after
        return None if number >= self._patience.tries or over or not self._budget.spend() else pause


def _end(certain: bool) -> type[Ended]:  # noqa: FBT001 - the one thing that decides
    return NothingRan if certain else Unsettled
