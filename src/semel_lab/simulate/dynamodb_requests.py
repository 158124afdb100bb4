"""A round on DynamoDB: the requests of its operations, one move each, with whatever befalls them on the way.

What always holds: each operation runs as the store's own steps, and others may come between any two of its requests.
What a request changed is judged at once, at the instant it took effect; the answer when it is given.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from semel.core.operations import Claim, Fail, Operation
from semel.core.store import Answers
from semel.stores.dynamodb.commands import Call, Now, Refused
from semel_lab.simulate.process import LaneRunner, unanswered
from semel_lab.simulate.store_model import Last, WatchedDynamo

if TYPE_CHECKING:
    from semel_lab.simulate.process import Worker

_WORDS = ("throttle", "lose", "late", "twice", "crash before", "crash after", "stall before", "stall after")
_HARMLESS = ("twice", "lag", "expire")  # what explains no second effect


class Request:
    """One operation on its way, or several on one record. Its move: the next request reaches the service."""

    __slots__ = (
        "_flow", "_history", "_store", "actor", "answers", "call", "error", "exchange", "last", "operation", "reply",
        "worker",
    )  # fmt: skip

    def __init__(self, exchange: Exchange, operations: Sequence[Operation], actor: int) -> None:
        self.exchange = exchange
        self.worker = exchange.worker
        self.actor = actor
        self._store: WatchedDynamo = exchange.store
        self.operation = operations[0]
        self.last = Last()
        self._flow = self._each(operations)
        self._history = 0
        self.call: Call | None = None
        self.reply: Any = None
        self.error: Exception | None = None
        self.answers: Answers | None = None
        self.step()

    def _each(self, operations: Sequence[Operation]) -> Generator[Any, Any, Answers]:
        answers: Answers = []
        for operation in operations:
            self.operation, self.last = operation, Last()
            try:
                answers.append((yield from self._store.watching(operation, self.last)))
            except Exception as error:  # noqa: BLE001 - what befalls one operation is its answer
                answers.append(error)
        return answers

    def step(self) -> None:
        """Go on with the reply, up to the next request."""
        reply, error = self.reply, self.error
        self.reply = self.error = None
        try:
            wanted = self._flow.send(reply) if error is None else self._flow.throw(error)
            while isinstance(wanted, Now):
                wanted = self._flow.send(self._store.moment(self.worker))
        except StopIteration as stop:
            self.answers = stop.value
            self.exchange.ended()
        else:
            self.call = wanted
        self._history = hash((self._history, self.worker.sim.now_us, _brief(reply), type(error)))

    def go(self) -> None:
        """Reach the service, or not."""
        sim = self.worker.sim
        kinds = self._options() if sim.faults.left else []
        choice = sim.choices.fault(len(kinds) + 1) if kinds else 0
        if choice:
            self._spoil(kinds[choice - 1])
        else:
            self._arrive()

    def _options(self) -> list[str]:
        assert self.call is not None
        faults, store = self.worker.sim.world.faults, self._store
        reads = self.call.action in ("get_item", "scan")
        kinds = list(_befalling(faults, reads=reads))
        if "lag" in faults:
            kinds += [f"lag {lag}" for lag in range(1, min(store.model.lags(self.call), 2) + 1)]
        if "expire" in faults and store.expired() is not None:
            kinds.append("expire")
        return kinds

    def _spoil(self, kind: str) -> None:
        sim, worker, call = self.worker.sim, self.worker, self.call
        assert call is not None
        word, _, rest = kind.partition(" ")
        self._note(word if word == "lag" else kind)
        match word:
            case "expire":
                self._store.expire()
                self.go()  # and then the request arrives, or something else happens to it too
            case "lag":
                self._arrive(lag=int(rest))
            case "twice":
                self._store.answer(self.operation, self.last, call)
                self._arrive()
            case "throttle" | "lose" | "late":
                self._lose(word, call)
            case "crash" | "stall":
                if word == "crash" and rest == "after":
                    self._store.answer(self.operation, self.last, call)
                elif rest == "after":
                    self._arrive()
                (sim.faults.crash if word == "crash" else sim.faults.stall)(worker)

    def _note(self, kind: str) -> None:
        sim, word = self.worker.sim, kind.partition(" ")[0]
        digests = () if word in _HARMLESS else [self._store.digest_of(self.operation)]
        sim.faults.note(kind, digests, f"process {self.worker.index}")

    def _lose(self, word: str, call: Call) -> None:
        sim, operation = self.worker.sim, self.operation
        if isinstance(operation, (Claim, Fail)):
            nonce = operation.nonce if isinstance(operation, Claim) else operation.lease.nonce
            sim.faults.unknown.add(nonce)
            if word == "late":
                sim.faults.ghosts.add(nonce)
        if word == "lose":
            self._store.answer(operation, self.last, call)
        elif word == "late":
            sim.late.append(LateRequest(self._store, operation, call, 3000 + len(sim.late)))
        self._back(None, unanswered())

    def _arrive(self, lag: int = 0) -> None:
        assert self.call is not None
        self._back(self._store.answer(self.operation, self.last, self.call, lag), None)

    def _back(self, reply: Any, error: Exception | None) -> None:
        self.call, self.reply, self.error = None, reply, error
        self.worker.sim.ready.append(self)

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        return self._history, self.call is None, _brief(self.reply), type(self.error)


class LateRequest:
    """A request whose sender no longer waits. Its move: it arrives."""

    __slots__ = ("_call", "_store", "actor", "operations")

    def __init__(self, store: WatchedDynamo, operation: Operation, call: Call, actor: int) -> None:
        self._store = store
        self._call = call
        self.operations = [operation]
        self.actor = actor

    def go(self) -> None:
        """Arrive."""
        sim = self._store.sim
        sim.late.remove(self)
        sim.calm_since_us = sim.now_us
        sim.seen["arrived late"] += 1
        sim.arriving = True
        self._store.answer(self.operations[0], Last(), self._call)
        sim.arriving = False


class Exchange:
    """A round that is out: it comes back when the last of its operations has its answer."""

    __slots__ = ("_begun", "_lists", "lane", "requests", "store", "worker")

    def __init__(self, lane: LaneRunner, store: WatchedDynamo) -> None:
        self.lane = lane
        self.worker: Worker = lane.worker
        self.store = store
        self._begun = False
        self.requests: list[Request] = []
        self._lists: list[dict[bytes, list[int]]] = []

    def begin(self) -> None:
        """Send what the lane has taken: operations on one record follow each other, the others go side by side."""
        lists = [[ticket.operation for ticket in tickets] for tickets in self.lane.round]
        for operations in lists:
            order: dict[bytes, list[int]] = {}
            for index, operation in enumerate(operations):
                order.setdefault(self.store.digest_of(operation), []).append(index)
            self._lists.append(order)
        requests: list[Request] = []
        for operations, order in zip(lists, self._lists, strict=True):
            for indexes in order.values():
                actor = 4 * self.lane.actor * 100 + len(requests)
                requests.append(Request(self, [operations[index] for index in indexes], actor))
        self.requests, self._begun = requests, True
        self.ended()  # where all were given up before they were sent
        if len(requests) == 1 and requests[0].call is not None:
            requests[0].go()  # nobody can tell the start from the first request

    def ended(self) -> None:
        """One operation has its answer: perhaps it was the last."""
        if not self._begun or any(request.answers is None for request in self.requests):
            return
        given = iter(self.requests)
        replies: list[Answers | Exception] = []
        for order in self._lists:
            answers: dict[int, Any] = {}
            for indexes in order.values():
                answers.update(zip(indexes, next(given).answers or (), strict=True))
            replies.append([answers[index] for index in sorted(answers)])
        self.lane.exchange = None
        self.lane.sent(replies)

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        return tuple([request.mark() for request in self.requests])


@cache
def _befalling(faults: tuple[str, ...], *, reads: bool) -> tuple[str, ...]:
    """What of `_WORDS` may happen to a request."""
    chosen = [word for word in _WORDS if word.partition(" ")[0] in faults]
    return tuple(word for word in chosen if not (reads and word in ("late", "twice", "crash after")))


def _brief(reply: Any) -> object:
    """What a reply says, as far as the next step depends on it."""
    item = reply.item if isinstance(reply, Refused) else reply.get("Item") if isinstance(reply, dict) else None
    if item is None:
        return type(reply)
    return type(reply), item["nonce"]["B"], item["version"]["N"], item["created_us"]["N"]
