"""Batches on SQLite, from `statements.sql`: what follows a statement is part of its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec

from semel.core.batch.operations import AddItems, ReopenItems
from semel.core.batch.values import State
from semel.stores.rows import load_statements, storable
from semel.stores.sql.batch.plan import shared_statements
from semel.stores.sql.dialect import Asking
from semel.stores.sql.errors import RowError
from semel.stores.sqlite.commands import SqliteCommand, blob, positional, whether_changed

_SQL: Final = load_statements("semel.stores.sqlite.batch", "statements.sql", {"n": "{n}"})
_SHARED: Final = shared_statements(
    {
        "batch_table": "semel_batch",
        "item_table": "semel_item",
        "page_table": "semel_page",
        "record_table": "semel_record",
        "insert_ignore": "INSERT INTO",
        "or_nothing": "ON CONFLICT DO NOTHING",
        "true": "1",
        "clock": ":now",
    }
)
_LOOK_UPS: Final = frozenset({"by_name", "by_number", "loading", "is_done"})


@cache
def _numbered(name: str, place: int) -> str:
    """A statement for one of several that travel together."""
    return _SQL[name].replace("{n}", f"_{place}")


def _command(name: str, text: str, values: Sequence[Any]) -> SqliteCommand:
    return positional(text, values, is_look_up=name in _LOOK_UPS)


class SqliteBatch:
    """The statements."""

    def command(self, name: str, *values: Any) -> SqliteCommand:
        """A statement that all databases understand."""
        return _command(name, _SHARED[name], values)

    def command_among(self, name: str, kind: str, among: Sequence[Any], *values: Any) -> SqliteCommand:
        """The same with a list, as so many values."""
        del kind
        text = _SHARED[name].replace("{among}", f"IN ({', '.join('?' * len(among))})")
        return _command(name, text, (*values, *among))

    def add(self, operation: AddItems) -> Asking[bool]:
        """Items, and then how many are loaded."""
        data = bytearray()
        rows: list[tuple[Any, ...]] = []
        for item in operation.items:
            place = _put(data, item.data)
            rows.append((item.position, storable(item.id), storable(item.subject), *place, *_put(data, item.about)))
        named = {
            "number": operation.number,
            "token": blob(operation.token),
            "offset": operation.offset,
            "count": operation.count,
            "data": data,
            "rows": msgspec.json.encode(rows).decode(),
        }
        text, follow = (_SQL["add"], (_SQL["move_on"],)) if rows else (_SQL["move_on"], ())
        try:
            return bool((yield SqliteCommand(text, named=named, follow=follow, to_rows=whether_changed)))
        except sqlite3.IntegrityError as error:
            raise RowError(error) from None

    def take(self, number: int) -> Asking[tuple[int | None, State]]:
        """The next page."""
        follow = (_SQL["make_page"], _SQL["taken"])
        rows = yield SqliteCommand(_SQL["take"], named={"number": number}, follow=follow, otherwise=_SQL["not_taken"])
        return rows[0] if rows else (None, "expired")

    def settle(
        self, number: int, page: int, rows: Sequence[tuple[int, int, bytes | None]], *, joined: bool
    ) -> Asking[None]:
        """Rows, and then their counts anew."""
        del joined
        named: dict[str, Any] = {"number": number, "page": page}
        texts: list[str] = []
        by_status: dict[int, list[int]] = {}
        for position, status, outcome in rows:
            if outcome is None:
                by_status.setdefault(status, []).append(position)
                continue
            place = len(texts)
            texts.append(_numbered("settle_outcome", place))
            named |= {f"position_{place}": position, f"status_{place}": status, f"outcome_{place}": blob(outcome)}
        for status, positions in by_status.items():
            place = len(texts)
            texts.append(_numbered("settle", place))
            named |= {f"status_{place}": status, f"positions_{place}": msgspec.json.encode(positions).decode()}
        yield SqliteCommand(_SQL["touch"], named=named, follow=(*texts, _SQL["count"]))

    def reopen(self, operation: ReopenItems) -> Asking[None]:
        """Rows, counts and the batch, if something is pending again."""
        named = {
            "number": operation.number,
            "page": operation.page,
            "positions": msgspec.json.encode(operation.positions).decode(),
            "status": int(operation.status),
        }
        follow = (_SQL["count"], _SQL["open_page"], _SQL["open_batch"])
        yield SqliteCommand(_SQL["reopen"], named=named, follow=follow)

    def reserve(self, number: int, amount_us: int) -> Asking[tuple[int, int]]:
        """Time behind what others have reserved."""
        named = {"number": number, "amount": amount_us}
        rows = yield SqliteCommand(_SQL["reserve"], named=named, follow=(_SQL["reserved"],))
        return rows[0] if rows else (0, 0)


def _put(pieces: bytearray, piece: bytes | None) -> tuple[int, int | None]:
    """Where a piece begins, from 1, and how long it is; None: there is none."""
    begin = len(pieces) + 1
    if piece is None:
        return begin, None
    pieces += piece
    return begin, len(piece)
