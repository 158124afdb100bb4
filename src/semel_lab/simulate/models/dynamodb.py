"""DynamoDB as the store meets it: conditional writes on one item, reads that may lag, and a deletion that comes late.

What always holds: a write is judged and done at one instant, and a refusal tells the item that stood in its way. Only a
reading that asks for it sees the last write; any other may see an item as it once was. What has a `ttl` that has passed
may be deleted by the service at any time after, or never. This runs the requests themselves, so what is proved over it
is proved of the store's own conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from semel.core.operations import Operation
from semel.core.store import Answers
from semel.stores.dynamodb.clock import SECOND, Moment
from semel.stores.dynamodb.commands import Call, Item, Now, Refused, Together
from semel.stores.dynamodb.items import KEY, TTL
from semel.stores.dynamodb.plan import Places, plan
from semel_lab.simulate.models.conditions import Request

TABLE = "semel"
Reply = Any


class Expire(msgspec.Struct, frozen=True):
    """The service comes round to delete an item, if its time is over."""

    digest: bytes


class DynamoModel:
    """A table of the service."""

    __slots__ = ("_actions", "_past", "items", "places")

    def __init__(self) -> None:
        self.items: dict[bytes, Item] = {}
        self.places: Places = {}
        self._past: dict[bytes, list[Item | None]] = {}
        self._actions: dict[str, Callable[[Any, int], Reply]] = {
            "get_item": self._get,
            "put_item": self._write,
            "update_item": self._write,
            "delete_item": self._write,
            "scan": self._scan,
            "query": self._query,
        }

    def answer(self, call: Call, lag: int = 0) -> Reply:
        """Carry out one request; a reading that does not ask for more may be `lag` writes old."""
        return self._actions[call.action](call.parameters, lag)

    def lags(self, call: Call) -> int:
        """How many earlier versions a reading could give."""
        if call.action not in ("get_item", "scan") or call.parameters.get("ConsistentRead"):
            return 0
        if call.action == "scan":
            return max(map(len, self._past.values()), default=0)
        return len(self._past.get(_digest(call.parameters), ()))

    def is_expired(self, digest: bytes, now: int) -> bool:
        """Whether the service may delete an item."""
        item = self.items.get(digest)
        return item is not None and TTL in item and int(item[TTL]["N"]) <= now // SECOND

    def expire(self, digest: bytes, now: int) -> bool:
        """Delete an item if its time is over; whether that was done."""
        if not self.is_expired(digest, now):
            return False
        self._put(digest, None)
        return True

    def apply(self, operation: Operation, now: int) -> Any:
        """Carry out a whole operation by the store's own plan, with nobody in between."""
        work = plan(TABLE, self.places, [operation])
        together: Together = next(work)
        try:
            work.send([self._carried(chain, now) for chain in together.chains])
        except StopIteration as end:
            return end.value[0]
        message = "a plan asked for more after its chains were carried out"
        raise AssertionError(message)

    def _carried(self, chain: Any, now: int) -> Answers:
        reply: Reply = None
        while True:
            try:
                wanted = chain.send(reply)
            except StopIteration as end:
                answers: Answers = end.value
                return answers
            match wanted:
                case Now():
                    reply = Moment(now, now)
                case Together(chains):
                    reply = [self._carried(one, now) for one in chains]
                case Call():
                    reply = self.answer(wanted)

    def _write(self, parameters: Any, _lag: int) -> Reply:
        digest = _digest(parameters)
        there, request = self.items.get(digest), Request(parameters)
        if not request.allows(there):
            tells = parameters.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            return Refused(there if tells else None)
        if "Item" in parameters:
            self._put(digest, parameters["Item"])
        elif "UpdateExpression" in parameters:
            self._put(digest, request.updated(there))
        else:
            self._put(digest, None)
        return {}

    def _get(self, parameters: Any, lag: int) -> Reply:
        item = self._seen(_digest(parameters), lag)
        return {} if item is None else {"Item": item}

    def _scan(self, parameters: Any, lag: int) -> Reply:
        request, digests = Request(parameters), sorted(self._past)
        seen = [item for digest in digests if (item := self._seen(digest, lag)) is not None and request.finds(item)]
        return {"Items": [request.projected(item) for item in seen]}

    def _query(self, parameters: Any, _lag: int) -> Reply:
        """The keys of the items that an index leads to, oldest first."""
        request = Request(parameters)
        found = [item for item in self.items.values() if request.leads_to(item)]
        found.sort(key=lambda item: int(item["created_us"]["N"]))
        return {"Items": [{KEY: item[KEY], "created_us": item["created_us"]} for item in found]}

    def _seen(self, digest: bytes, lag: int) -> Item | None:
        past = self._past.get(digest, [])
        return past[-min(lag, len(past))] if lag and past else self.items.get(digest)

    def _put(self, digest: bytes, item: Item | None) -> None:
        self._past.setdefault(digest, []).append(self.items.get(digest))
        if item is None:
            self.items.pop(digest, None)
        else:
            self.items[digest] = item


def _digest(parameters: Any) -> bytes:
    key: bytes = (parameters.get("Item") or parameters["Key"])[KEY]["B"]
    return key
