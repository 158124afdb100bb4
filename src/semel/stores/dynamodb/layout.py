"""Where records lie in a table: in one of semel's own, or beside the items of a service whose table it is.

Plans speak of a table of semel's own, whose key is a digest. For a table with keys of the service, every request is
translated on its way out and every reply on its way back:

- The partition key is `semel#` and the digest in hexadecimal digits, the sort key is `semel#`. No item of the service
  begins its partition key so, and no item of semel begins it otherwise.
- Every other attribute is called `semel_…`. So no index, no time to live and no stream filter of the service sees a
  value that it takes for one of its own. The time to live alone is an attribute that both may share: a table has one.
- A scan leaves the items of the service out by its filter; no other request can reach them, because each names its key
  or an index of semel's own.
- What the caller adds to a transaction is the caller's, and is sent as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from semel.stores.dynamodb.commands import Call, CallerWrite, Cancelled, Item, Refused
from semel.stores.dynamodb.items import KEY, TTL
from semel.stores.dynamodb.request_builders import INNER

PREFIX: Final = "semel#"
"""How the keys of semel's items begin."""
ATTRIBUTES: Final = "semel_"
"""How the other attributes of semel's items begin."""
_MARK, _VALUE = "#semel_key", ":semel_key"
Request = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """The keys of a table that belongs to a service.

    Attributes:
        pk: the attribute of the partition key, which is text.
        sk: the attribute of the sort key, which is text; empty where the table has none.
        ttl: the attribute by which DynamoDB deletes what has expired.
    """

    pk: str
    sk: str = ""
    ttl: str = ATTRIBUTES + TTL

    def attribute(self, name: str) -> str:
        """What an attribute is called in this table; for the key that is the partition key."""
        if name == KEY:
            return self.pk
        return self.ttl if name == TTL else ATTRIBUTES + name

    def key(self, digest: bytes) -> Item:
        """The primary key of an item."""
        names = (self.pk, self.sk) if self.sk else (self.pk,)
        return dict(zip(names, ({"S": PREFIX + digest.hex()}, {"S": PREFIX}), strict=False))

    def encode(self, call: Call) -> Call:
        """The request for this table."""
        return Call(call.action, self._encode(call.action, dict(call.parameters)))

    def _encode(self, action: str, request: Request) -> Request:
        match action:
            case "get_item" | "put_item" | "update_item" | "delete_item":
                return self._encode_one(request)
            case "query":
                return self._encode_reading(request)
            case "scan":
                return self._encode_scan(request)
            case "transact_write_items":
                return self._encode_transaction(request)
            case "batch_get_item":
                return self._encode_readings(request)
            case "batch_write_item":
                return self._encode_deletions(request)
        return request  # it is about the table itself

    def decode(self, call: Call, reply: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request as plans know it."""
        return {**reply, **self._decode(call.action, reply)}

    def _decode(self, action: str, reply: Mapping[str, Any]) -> Request:
        match action:
            case "get_item" | "put_item" | "update_item" | "delete_item":
                return self._decode_one(reply)
            case "query" | "scan":
                return self._decode_page(reply)
            case "batch_get_item":
                return self._decode_readings(reply)
            case "batch_write_item":
                return self._decode_deletions(reply)
        return {}

    def decode_refusal(self, call: Call, reply: Any) -> Any:
        """The same for what stands for an error."""
        match reply:
            case Refused(item=dict() as item):
                return Refused(self._decode_item(item))
            case Cancelled(reasons):
                writes = call.parameters.get("TransactItems", [])
                pairs = zip(reasons, writes, strict=False)
                return Cancelled(tuple(self._decode_reason(reason, write) for reason, write in pairs))
        return reply

    def _decode_reason(self, reason: Mapping[str, Any], write: Mapping[str, Any]) -> Mapping[str, Any]:
        if isinstance(write, CallerWrite) or "Item" not in reason:
            return reason
        return {**reason, "Item": self._decode_item(reason["Item"])}

    def _encode_item(self, item: Item) -> Item:
        others = {self.attribute(name): value for name, value in item.items() if name != KEY}
        return {**self.key(bytes(item[KEY]["B"])), **others}

    def _decode_item(self, item: Item) -> Item:
        found: Item = {}
        for name, value in item.items():
            if name == self.pk:
                found[KEY] = {"B": bytes.fromhex(value["S"].removeprefix(PREFIX))}
            elif name == self.ttl:
                found[TTL] = value
            elif name != self.sk:
                found[name.removeprefix(ATTRIBUTES)] = value
        return found

    def _encode_one(self, request: Request) -> Request:
        """A request about one item."""
        for place in ("Item", "Key"):
            if place in request:
                request[place] = self._encode_item(request[place])
        return self._encode_names(request)

    def _encode_names(self, request: Request) -> Request:
        if "ExpressionAttributeNames" in request:
            request["ExpressionAttributeNames"] = {
                mark: name if mark.startswith(INNER) else self.attribute(name)
                for mark, name in request["ExpressionAttributeNames"].items()
            }
        return request

    def _encode_reading(self, request: Request) -> Request:
        """A query or a scan: where it goes on is a key as the service gave it, which may be that of another item."""
        if "ExclusiveStartKey" in request:
            start = dict(request["ExclusiveStartKey"])
            keys = start.pop(KEY)
            request["ExclusiveStartKey"] = {**keys, **{self.attribute(name): value for name, value in start.items()}}
        return self._encode_names(request)

    def _encode_scan(self, request: Request) -> Request:
        request = self._encode_reading(request)
        own = f"begins_with({_MARK}, {_VALUE})"
        given = request.get("FilterExpression")
        return {
            **request,
            "FilterExpression": own if given is None else f"{own} AND ({given})",
            "ExpressionAttributeNames": {**request.get("ExpressionAttributeNames", {}), _MARK: self.pk},
            "ExpressionAttributeValues": {**request.get("ExpressionAttributeValues", {}), _VALUE: {"S": PREFIX}},
        }

    def _encode_transaction(self, request: Request) -> Request:
        request["TransactItems"] = [
            write
            if isinstance(write, CallerWrite)
            else {kind: self._encode_one(dict(one)) for kind, one in write.items()}
            for write in request["TransactItems"]
        ]
        return request

    def _encode_readings(self, request: Request) -> Request:
        request["RequestItems"] = {
            table: {**asked, "Keys": [self._encode_item(key) for key in asked["Keys"]]}
            for table, asked in request["RequestItems"].items()
        }
        return request

    def _encode_deletions(self, request: Request) -> Request:
        request["RequestItems"] = {
            table: [{"DeleteRequest": {"Key": self._encode_item(one["DeleteRequest"]["Key"])}} for one in deletions]
            for table, deletions in request["RequestItems"].items()
        }
        return request

    def _decode_one(self, reply: Mapping[str, Any]) -> Request:
        return {place: self._decode_item(reply[place]) for place in ("Item", "Attributes") if place in reply}

    def _decode_page(self, reply: Mapping[str, Any]) -> Request:
        page: Request = {"Items": list(map(self._decode_item, reply["Items"]))}
        if "LastEvaluatedKey" in reply:
            last = reply["LastEvaluatedKey"]
            keys = {name: last[name] for name in (self.pk, self.sk) if name in last}
            others = {name.removeprefix(ATTRIBUTES): value for name, value in last.items() if name not in keys}
            page["LastEvaluatedKey"] = {KEY: keys, **others}
        return page

    def _decode_readings(self, reply: Mapping[str, Any]) -> Request:
        found = {table: list(map(self._decode_item, items)) for table, items in reply["Responses"].items()}
        left = {
            table: {**asked, "Keys": list(map(self._decode_item, asked["Keys"]))}
            for table, asked in (reply.get("UnprocessedKeys") or {}).items()
        }
        return {"Responses": found, "UnprocessedKeys": left}

    def _decode_deletions(self, reply: Mapping[str, Any]) -> Request:
        left = {
            table: [{"DeleteRequest": {"Key": self._decode_item(one["DeleteRequest"]["Key"])}} for one in deletions]
            for table, deletions in (reply.get("UnprocessedItems") or {}).items()
        }
        return {"UnprocessedItems": left}
