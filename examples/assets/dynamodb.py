"""The plant in a table of DynamoDB, on aiobotocore: three items for each asset, under its name.

What handlers write is sent together with the mark of their event, in one TransactWriteItems. The marks may lie in the
same table (`dynamodb://assets?pk=pk&sk=sk`) or in another one (`dynamodb://semel-records`): the requests are the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

from aiobotocore.session import AioSession

from semel.stores.dynamodb import Writes
from semel.versions import Items, Write, transact_item

ASSET = "asset#"


class DynamoPlant:
    """The items of all assets, and the transactions that events are handled in.

    The client is opened at the first event and kept: the next invocation of the process finds it open. Where it leads
    to is for the SDK to find, which Lambda tells it by the environment.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._opened: tuple[Any, Any] | None = None

    async def _client(self) -> Any:
        if self._opened is None:
            manager = AioSession().create_client("dynamodb")
            self._opened = manager, await manager.__aenter__()
        return self._opened[1]

    async def close(self) -> None:
        """Let go of the client. Lambda ends the process instead."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened[0].__aexit__(None, None, None)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Writes]:
        """Take writes, which are sent with the mark of the event."""
        yield Writes(await self._client())

    async def save(self, session: Writes, write: Write) -> None:
        """Add a versioned write; nothing where a newer version is there already.

        Closes: a newer version that comes after this look. Then the condition of the write refuses the whole
        transaction, and the event is delivered again.
        """
        key = {"pk": f"{ASSET}{write.key['id']}", "sk": write.place}
        values = {name: _to_item_value(value) for name, value in write.values.items()}
        item = replace(write, table=Items(self._table), key=key, values=values)
        if write.newer is not None and await self._version(key) >= write.newer:
            return
        session.add(transact_item(item))

    async def _version(self, key: dict[str, str]) -> int:
        """The version of an item; 0 where there is none."""
        wire = {name: {"S": value} for name, value in key.items()}
        client = await self._client()
        found = await client.get_item(TableName=self._table, Key=wire, ConsistentRead=True)
        return int(found["Item"]["version"]["N"]) if "Item" in found else 0

    async def add_energy(self, session: Writes, asset: str, kwh: float) -> None:
        """Add to the sum of an asset."""
        session.add(
            {
                "Update": {
                    "TableName": self._table,
                    "Key": {"pk": {"S": f"{ASSET}{asset}"}, "sk": {"S": "energy"}},
                    "UpdateExpression": "ADD kwh :kwh",
                    "ExpressionAttributeValues": {":kwh": {"N": str(kwh)}},
                }
            }
        )

    async def read(self) -> list[tuple[object, ...]]:
        """All that is known of all assets. Items of others in the table, such as marks, are left out."""
        client = await self._client()
        assets: dict[str, dict[str, Any]] = {}
        asked: dict[str, Any] = {
            "TableName": self._table,
            "ConsistentRead": True,
            "FilterExpression": "begins_with(pk, :asset)",
            "ExpressionAttributeValues": {":asset": {"S": ASSET}},
        }
        async for page in client.get_paginator("scan").paginate(**asked):
            for item in page["Items"]:
                name = item["pk"]["S"].removeprefix(ASSET)
                assets.setdefault(name, {}).update({key: _plain(value) for key, value in item.items()})
        columns = ("facility", "type", "capacity_kw", "state", "load_kw", "kwh")
        rows = [(name, *(values.get(column) for column in columns)) for name, values in assets.items()]
        return sorted(row for row in rows if row[1] is not None)


def _to_item_value(value: Any) -> Any:
    """A value as items keep it: numbers of DynamoDB are decimal."""
    return Decimal(str(value)) if isinstance(value, float) else value


def _plain(stored: dict[str, Any]) -> Any:
    ((kind, value),) = stored.items()
    return float(value) if kind == "N" else value
