"""An operator of the simulation: ends a doubt by stating what came of it, and then corrects what was stated.

What always holds: an operator looks at a record, and sends its correction of that record later; anything may happen in
between. Every statement has a value that no handler and no other statement has.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

from semel.core import codec
from semel.core.flow import Flow
from semel.core.operations import Found, Read, Resolve
from semel.core.outcome import Happened
from semel.core.record import Record
from semel.engine import administration
from semel.errors import NotResolvable
from semel.testing.simulate.driving import driven
from semel.testing.simulate.violation import Violation
from semel.testing.simulate.world import KEYS, SHAPE

if TYPE_CHECKING:
    from semel.testing.simulate.caller import Caller

_FIRST_STATED: Final = 1_000_000_000  # above every value of a handler


class Operator:
    """What one operator does, and what it has seen."""

    __slots__ = ("_caller", "_seen")

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._seen: Record | None = None

    def flow(self) -> Flow[Record]:
        """State a value where something is in doubt, and correct what is stated, by whomever."""
        try:
            yield from self._state(correct=False)
        except NotResolvable:
            self._caller.sim.seen["nothing to resolve"] += 1
        return (yield from self._state(correct=True))

    def _state(self, *, correct: bool) -> Flow[Record]:
        caller = self._caller
        nonce = caller.new_nonce()
        value = _FIRST_STATED + caller.actor * 1_000 + caller.nonces
        flow = administration.resolve(
            KEYS[caller.asker.key],
            Happened(value),
            reason="the ledger says so",
            by="",
            nonce=nonce,
            known=None,
            correct=correct,
        )
        record: Record = yield from driven(flow, {Read: self._look, Resolve: self._send})
        if record.nonce != nonce or record.outcome is None or codec.decode(record.outcome, SHAPE) != value:
            raise Violation("stated", "an operator was told that another value is recorded than was stated")
        return record

    def _look(self, read: Read) -> Generator[Any, Any, Found]:
        found: Found = yield read
        self._seen = found.record
        return found

    def _send(self, resolve: Resolve) -> Generator[Any, Any, Any]:
        if resolve.corrects != (self._seen and self._seen.nonce):
            raise Violation("stated", "a correction is of another record than its operator looked at")
        return (yield resolve)
