"""The models of servers under watch: whose model the records of a world are in.

What always holds: the checker is the one of the memory store's table, whatever is beneath it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from semel.core.arbitration import granted
from semel.core.flow import run
from semel.core.operations import (
    Claim,
    Held,
    Lapse,
    Operation,
    Purge,
    Read,
    Recorded,
    Renew,
    Resolve,
    Scan,
    Tally,
)
from semel.core.record import Record
from semel.stores.dynamodb.clock import Moment
from semel.stores.dynamodb.commands import Call, Item, Now, Together
from semel.stores.dynamodb.items import KEY, seen_of
from semel.stores.dynamodb.plan import digest_of, one
from semel.stores.dynamodb.rules import storable_operation
from semel.testing.simulate.models.dynamodb import TABLE, DynamoModel
from semel.testing.simulate.models.redis import RedisModel
from semel.testing.simulate.trace import told
from semel.testing.simulate.watched import WatchedStore
from semel.testing.simulate.world import World

if TYPE_CHECKING:
    from semel.testing.simulate.process import Worker
    from semel.testing.simulate.simulation import Simulation


class WatchedRedis(WatchedStore):
    """Redis: an operation is one script, and writes may be forgotten."""

    __slots__ = ("model",)

    def __init__(self, sim: Simulation, batch: int) -> None:
        super().__init__(sim, batch)
        self.model = RedisModel(self.table)

    def perform(self, operation: Any, now: int) -> Any:
        """What the model makes of it."""
        return self.model.apply(operation, now)

    def mark(self) -> tuple[object, ...]:
        """What forgetting would lead back to."""
        return self.model.mark() if "forget" in self.sim.world.faults else ()


class Last:
    """What the last request of an operation met, and whether it wrote."""

    __slots__ = ("met", "wrote")

    def __init__(self) -> None:
        self.met: Record | None = None
        self.wrote = False


class WatchedDynamo(WatchedStore):
    """DynamoDB: an operation is one request or several, and each is watched by itself."""

    __slots__ = ("_read", "model")

    def __init__(self, sim: Simulation, batch: int) -> None:
        super().__init__(sim, batch)
        self.model = DynamoModel()
        self._read: dict[bytes, Item] = {}

    def moment(self, worker: Worker | None) -> Moment:
        """What time the service has, as a process knows it."""
        del worker  # learnt from the replies, so its own clock does not matter
        now = self.sim.store_now()
        return Moment(now, now)

    def digest_of(self, operation: Operation) -> bytes:
        """The record that an operation is about."""
        return digest_of(operation)

    def watching(self, operation: Operation, last: Last) -> Generator[Any, Any, Any]:
        """The steps of an operation; its answer is looked at when it is there."""
        answer = yield from _in_turn(one(TABLE, self.model.places, storable_operation(operation)))
        self._answered(operation, last, answer)
        return answer

    def answer(self, operation: Operation, last: Last, call: Call, lag: int = 0) -> Any:
        """Carry out one request of an operation, and look at what it changed."""
        now, records = self.sim.store_now(), self.table.records
        digest = digest_of(operation) or call.parameters.get("Key", {}).get(KEY, {}).get("B", b"")
        before = records.get(digest)
        reply = self.model.answer(call, lag)
        after = self._known(digest)
        last.met, last.wrote = before, after is not before
        if after is not before:
            self._changed(operation, before, after, now)
        if self.sim.trace is not None:
            shown = told(operation) if after is before else f"{told(operation)} (writes)"
            self.sim.note("store", f"{shown}: {call.action} -> {type(reply).__name__}")
        return reply

    def _known(self, digest: bytes) -> Record | None:
        """The record that is stored, the same object as long as nobody has written it."""
        records, item = self.table.records, self.model.items.get(digest)
        if item is None:
            records.pop(digest, None)
            return None
        known = records.get(digest)
        if known is not None and self._read[digest] is item:
            return known  # no item is changed in place
        self._read[digest], found = item, seen_of(item).record
        if known is None or known != found:
            records[digest] = found
        return records[digest]

    def _changed(self, operation: Operation, before: Record | None, after: Record | None, now: int) -> None:
        match operation:
            case Claim() if after is not None:
                self.judge(operation, before, after, now, granted(after))
            case Purge() | Lapse() if before is not None:
                self.judge_swept(before, after, now)
            case Tally():
                pass
            case Renew() if after is not None:
                self.judge(operation, before, after, now, Held(after.lease_us))
            case _:
                self.judge(operation, before, after, now, Recorded(now))

    def _answered(self, operation: Operation, last: Last, answer: Any) -> None:
        if not last.wrote and not isinstance(operation, (Read, Scan, Purge, Lapse, Tally, Resolve)):
            self.judge(operation, last.met, last.met, self.sim.store_now(), answer)

    def apply(self, operation: Any) -> Any:
        """Carry out a whole operation with nobody in between."""
        last = Last()
        return run(
            self.watching(operation, last),
            lambda wanted: self.moment(None) if isinstance(wanted, Now) else self.answer(operation, last, wanted),
        )

    def expired(self) -> bytes | None:
        """A record that the service may delete."""
        now = self.sim.store_now()
        return next((digest for digest in self.table.records if self.model.is_expired(digest, now)), None)

    def expire(self) -> None:
        """Delete it."""
        digest = self.expired()
        assert digest is not None
        self.deleted(self.table.records[digest], self.sim.store_now())
        self.model.expire(digest, self.sim.store_now())
        self._known(digest)

    def mark(self) -> tuple[object, ...]:
        """The versions, by which conditions tell writes apart."""
        return tuple([item["version"]["N"] for item in self.model.items.values()])


def _in_turn(flow: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """The same steps, with chains that may go side by side one after the other: each is on a record of its own."""
    reply: Any = None
    error: Exception | None = None
    while True:
        try:
            wanted = flow.send(reply) if error is None else flow.throw(error)
        except StopIteration as stop:
            return stop.value
        reply = error = None
        try:
            if isinstance(wanted, Together):
                reply = []
                for chain in wanted.chains:
                    reply.append((yield from _in_turn(chain)))
            else:
                reply = yield wanted
        except Exception as problem:  # noqa: BLE001 - the steps decide what an error means
            error = problem


def watched(sim: Simulation, world: World) -> WatchedStore:
    """The store of a world."""
    match world.store:
        case "redis":
            return WatchedRedis(sim, world.batch)
        case "dynamodb":
            return WatchedDynamo(sim, world.batch)
        case _:
            return WatchedStore(sim, world.batch)
