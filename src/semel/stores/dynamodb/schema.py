"""The table: its key, its way to be paid for, and the attribute by which the service deletes what has expired.

What always holds: an existing table is never changed except for switching its time to live on, and nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from semel.errors import SchemaOutdated, StoreUnavailable
from semel.stores.dynamodb.commands import Call, Pause
from semel.stores.dynamodb.items import KEY, TTL

_LOOKS: Final = 120
_BETWEEN: Final = 0.5
Steps = Generator[Any, Any, Any]


def creation(table: str) -> dict[str, Any]:
    """What the table is made with."""
    return {
        "TableName": table,
        "KeySchema": [{"AttributeName": KEY, "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": KEY, "AttributeType": "B"}],
        "BillingMode": "PAY_PER_REQUEST",
    }


def time_to_live(table: str) -> dict[str, Any]:
    """How the service is told to delete what has expired."""
    return {"TableName": table, "TimeToLiveSpecification": {"Enabled": True, "AttributeName": TTL}}


def described(table: str) -> Steps:
    """The description of the table; None where there is none."""
    try:
        reply = yield Call("describe_table", {"TableName": table})
    except SchemaOutdated:
        return None
    return reply["Table"]


def expiring(table: str) -> Steps:
    """The attribute by which the service deletes; empty where it does not."""
    reply = yield Call("describe_time_to_live", {"TableName": table})
    told = reply["TimeToLiveDescription"]
    return told.get("AttributeName", "") if told["TimeToLiveStatus"] in ("ENABLED", "ENABLING") else ""


def keyed(description: dict[str, Any]) -> bool:
    """Whether a table has the key that records need."""
    wanted = creation("")
    kinds = {one["AttributeName"]: one["AttributeType"] for one in description["AttributeDefinitions"]}
    return bool(description["KeySchema"] == wanted["KeySchema"] and kinds.get(KEY) == "B")


def migrating(table: str) -> Steps:
    """Make what is missing; answers what was done.

    Raises:
        SchemaOutdated: there is a table of that name with another key.
    """
    done: list[str] = []
    description = yield from described(table)
    if description is None:
        yield Call("create_table", creation(table))
        done.append("table")
        description = yield from _active(table)
    if not keyed(description):
        message = f"The table {table} has another key than records need; nothing was changed. Name another table."
        raise SchemaOutdated(message)
    if (yield from expiring(table)) != TTL:
        yield Call("update_time_to_live", time_to_live(table))
        done.append("time to live")
    return done


def _active(table: str) -> Steps:
    for _ in range(_LOOKS):
        description = yield from described(table)
        if description is not None and description["TableStatus"] == "ACTIVE":
            return description
        yield Pause(_BETWEEN)
    message = f"The table {table} is still being made; nothing else was done. Run `semel migrate` again in a minute."
    raise StoreUnavailable(message)
