"""The caller's own writes, committed together with what semel records about them: `within` on DynamoDB.

DynamoDB has no transaction that stays open, only one request that writes up to a hundred items or none. So a handler
does not write: it adds its writes to a `Writes`, and the end of the operation sends them with the record.

What always holds: nothing is written before the handler has returned, and then all of it or nothing, under the
condition that the record is still as the claim saw it. A handler that raised has written nothing. Writes are taken only
while an operation, or a step of one, is open: what was added for one is never sent with another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from semel.core.record import Record
from semel.errors import UsageError
from semel.stores.dynamodb.items import Seen

_KINDS: Final = ("Put", "Update", "Delete", "ConditionCheck")
_MOST: Final = 99


@dataclass(frozen=True, slots=True)
class Opened:
    """An operation inside: the record as it will be claimed, over what was seen. For a step: neither."""

    name: str
    record: Record | None = None
    seen: Seen | None = None


class Writes:
    """Writes of the caller, in the form of TransactWriteItems.

    Args:
        client: the DynamoDB client to send them with: boto3's for `Semel`, aiobotocore's for `AsyncSemel`. Without one,
            a client is opened for each operation.
    """

    def __init__(self, client: Any = None) -> None:
        self.client = client
        self.opened: Opened | None = None
        self._items: list[Mapping[str, Any]] = []

    def add(self, write: Mapping[str, Any]) -> None:
        """Add one write: `{"Put": {"TableName": …, "Item": …}}`, or Update, Delete or ConditionCheck.

        Raises:
            UsageError: it is no write, one too many, or no operation is open to send it with.
        """
        if self.opened is None:
            message = (
                "No operation is open that this write could be sent with; it was not taken. Add writes inside the "
                "handler that runs within() these, or inside the function of a step."
            )
            raise UsageError(message)
        if not isinstance(write, Mapping) or len(write) != 1 or next(iter(write)) not in _KINDS:
            message = f"A write is a dict with one of {', '.join(_KINDS)} in it; it was not taken."
            raise UsageError(message)
        if len(self._items) == _MOST:
            message = f"DynamoDB writes a hundred items together, one of them the record; this is write {_MOST + 1}."
            raise UsageError(message)
        self._items.append(write)

    def __len__(self) -> int:
        return len(self._items)

    def open(self, opened: Opened) -> None:
        """Take writes for this operation from here on.

        Raises:
            UsageError: another one is open.
        """
        if self.opened is not None and self.opened.name != opened.name:
            message = (
                "Another operation within() these writes is still open, and each is sent by itself; nothing ran. "
                "Give the inner operation a Writes of its own, or run it after the outer one."
            )
            raise UsageError(message)
        self.opened = opened

    def close(self) -> list[Mapping[str, Any]]:
        """What was added; from here on nothing is taken."""
        items, self._items, self.opened = self._items, [], None
        return items
