"""Batches on PostgreSQL, from `statements.sql`: every change of rows and their counts is one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from semel.core.batch.operations import AddItems, ReopenItems
from semel.core.batch.values import State
from semel.stores.rows import load_statements, storable
from semel.stores.sql.batch.plan import shared_statements
from semel.stores.sql.dialect import Asking, Command, Copy
from semel.stores.sql.errors import CannotCopy
from semel.stores.sql.settings import Settings

_COLUMNS: Final = ("batch", "position", "id", "data", "about", "subject")
_TYPES: Final = ("int8", "int8", "text", "bytea", "bytea", "text")


class PostgresBatch:
    """The statements for one place.

    Args:
        names: of the tables, as parts of statements.
        clock: the store's now, as part of statements.
        settings: where the tables are.
    """

    def __init__(self, names: dict[str, str], clock: str, settings: Settings) -> None:
        words = {"insert_ignore": "INSERT INTO", "or_nothing": "ON CONFLICT DO NOTHING", "true": "true"}
        self._shared = shared_statements({**names, **words, "clock": clock})
        self._sql = load_statements("semel.stores.postgresql.batch", "statements.sql", {**names, "clock": clock})
        self._schema = settings.schema or None
        self._item_table = f"{settings.prefix}item"

    def command(self, name: str, *values: Any) -> Command:
        """A statement that all databases understand."""
        return Command(self._shared[name], values)

    def command_among(self, name: str, kind: str, among: Sequence[Any], *values: Any) -> Command:
        """The same with a list, which travels as an array."""
        return Command(self._shared[name].replace("{among}", f"= ANY(?::{kind}[])"), (*values, list(among)))

    def add(self, operation: AddItems) -> Asking[bool]:
        """Items by COPY, or as arrays, one for each column."""
        number = operation.number
        rows = [
            (number, item.position, storable(item.id), item.data, item.about, storable(item.subject))
            for item in operation.items
        ]
        place = (operation.count, number, operation.token, operation.offset)
        copy = Copy(self._schema, self._item_table, _COLUMNS, _TYPES, rows)
        try:
            return bool((yield Command(self._sql["move_loaded"], place, copy=copy)))
        except CannotCopy:
            columns = [list(column) for column in zip(*rows, strict=True)][1:] or [[], [], [], [], []]
            return bool((yield Command(self._sql["add"], (*place, *columns))))

    def take(self, number: int) -> Asking[tuple[int | None, State]]:
        """The next page."""
        rows = yield Command(self._sql["take"], (number, number))
        return rows[0] if rows else (None, "expired")

    def settle(
        self, number: int, page: int, rows: Sequence[tuple[int, int, bytes | None]], *, joined: bool
    ) -> Asking[None]:
        """Rows and counts, in one statement; and once more, if some items were not pending."""
        del joined
        positions, statuses, outcomes = (list(column) for column in zip(*rows, strict=True))
        ends, bounds = (number, page, positions, statuses, outcomes), (number, rows[0][0], rows[-1][0])
        changed = yield Command(self._sql["settle_pending"], (*ends, *bounds, number, page))
        if changed and changed[0][0] < len(rows):
            yield Command(self._sql["settle"], (*ends, *bounds, *bounds, number, page))

    def reopen(self, operation: ReopenItems) -> Asking[None]:
        """Rows, counts and the batch, in one statement."""
        number, page, status = operation.number, operation.page, int(operation.status)
        items = (number, list(operation.positions), status, number)
        yield Command(self._sql["reopen"], (number, page, *items, number, status, status, number, page, number))

    def reserve(self, number: int, amount_us: int) -> Asking[tuple[int, int]]:
        """Time behind what others have reserved."""
        rows = yield Command(self._sql["reserve"], (amount_us, number))
        return rows[0] if rows else (0, 0)
