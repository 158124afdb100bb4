"""Batches on PostgreSQL, from `statements.sql`: every change of rows and their counts is one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.core.batch.operations import AddItems, ReopenItems
from semel.core.batch.values import State
from semel.stores.rows import load_statements, storable
from semel.stores.sql.batch.plan import shared_statements
from semel.stores.sql.dialect import Asking, Command


class PostgresBatch:
    """The statements for one place.

    Args:
        names: of the tables, as parts of statements.
        clock: the store's now, as part of statements.
    """

    def __init__(self, names: dict[str, str], clock: str) -> None:
        words = {"insert_ignore": "INSERT INTO", "or_nothing": "ON CONFLICT DO NOTHING", "true": "true"}
        self._shared = shared_statements({**names, **words, "clock": clock})
        self._sql = load_statements("semel.stores.postgresql.batch", "statements.sql", {**names, "clock": clock})

    def command(self, name: str, *values: Any) -> Command:
        """A statement that all databases understand."""
        return Command(self._shared[name], values)

    def command_among(self, name: str, kind: str, among: Sequence[Any], *values: Any) -> Command:
        """The same with a list, which travels as an array."""
        return Command(self._shared[name].replace("{among}", f"= ANY(?::{kind}[])"), (*values, list(among)))

    def add(self, operation: AddItems) -> Asking[bool]:
        """Items as arrays, one for each column."""
        rows = [
            (item.position, storable(item.id), item.data, item.about, storable(item.subject))
            for item in operation.items
        ]
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], [], []]
        place = (operation.count, operation.number, operation.token, operation.offset)
        return bool((yield Command(self._sql["add"], (*place, *columns))))

    def take(self, number: int) -> Asking[tuple[int | None, State]]:
        """The next page."""
        rows = yield Command(self._sql["take"], (number, number))
        return rows[0] if rows else (None, "expired")

    def settle(
        self, number: int, page: int, rows: Sequence[tuple[int, int, bytes | None]], *, joined: bool
    ) -> Asking[None]:
        """Rows and counts, in one statement."""
        del joined
        positions, statuses, outcomes = (list(column) for column in zip(*rows, strict=True))
        bounds = (number, rows[0][0], rows[-1][0])
        yield Command(
            self._sql["settle"], (number, page, positions, statuses, outcomes, *bounds, *bounds, number, page)
        )

    def reopen(self, operation: ReopenItems) -> Asking[None]:
        """Rows, counts and the batch, in one statement."""
        number, page, status = operation.number, operation.page, int(operation.status)
        items = (number, list(operation.positions), status, number)
        yield Command(self._sql["reopen"], (number, page, *items, number, status, status, number, page, number))

    def reserve(self, number: int, amount_us: int) -> Asking[tuple[int, int]]:
        """Time behind what others have reserved."""
        rows = yield Command(self._sql["reserve"], (amount_us, number))
        return rows[0] if rows else (0, 0)
