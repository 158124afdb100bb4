"""Batches on MySQL and MariaDB, from `statements.sql`: rows and their counts change in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from semel.core.batch.operations import AddItems, ReopenItems
from semel.core.batch.values import ItemStatus, State
from semel.stores.rows import load_statements, storable
from semel.stores.sql.batch.plan import shared_statements
from semel.stores.sql.dialect import Asking, Command

_ADDED: Final = ("batch", "position", "id", "data", "about", "subject")
_SETTLED: Final = ("batch", "position", "status", "outcome")


class MysqlBatch:
    """The statements for one place.

    Args:
        names: of the tables, as parts of statements.
        clock: the store's now, as part of statements.
    """

    def __init__(self, names: dict[str, str], clock: str) -> None:
        words = {"insert_ignore": "INSERT IGNORE INTO", "or_nothing": "", "true": "TRUE"}
        later = {"input": "{input}", "among": "{among}"}
        self._shared = shared_statements({**names, **words, "clock": clock})
        self._sql = load_statements("semel.stores.mysql.batch", "statements.sql", {**names, **later, "clock": clock})

    def command(self, name: str, *values: Any) -> Command:
        """A statement that all databases understand."""
        return Command(self._shared[name], values, patient=True)

    def command_among(self, name: str, kind: str, among: Sequence[Any], *values: Any) -> Command:
        """The same with a list, as so many values."""
        del kind
        return Command(_among(self._shared[name], among), (*values, *among), patient=True)

    def add(self, operation: AddItems) -> Asking[bool]:
        """Items as the rows of one statement."""
        rows = [
            (operation.number, item.position, storable(item.id), item.data, item.about, storable(item.subject))
            for item in operation.items
        ]
        end = Command(self._sql["changed"])
        if rows:
            end = Command(_rows(self._sql["add"], _ADDED, len(rows)), _flat(rows), end)
        place = (operation.count, operation.number, operation.token, operation.offset)
        ((changed,),) = yield Command(self._sql["move_on"], place, end, atomic=True, patient=True)
        return bool(changed > 0)

    def take(self, number: int) -> Asking[tuple[int | None, State]]:
        """The next page."""
        taken = Command(self._sql["taken"], (number,))
        made = Command(self._sql["make_page"], (number,), taken)
        chain = Command(self._sql["reset"], (), Command(self._sql["take"], (number,), made), atomic=True, patient=True)
        rows = yield chain
        if not rows:
            return None, "expired"
        ((after, state),) = rows
        return (after - 1 if after else None), state

    def settle(
        self, number: int, page: int, rows: Sequence[tuple[int, int, bytes | None]], *, joined: bool
    ) -> Asking[None]:
        """Rows, and then their counts, under the lock of the page."""
        noted = [(number, *row) for row in rows]
        if all(status == ItemStatus.COMPLETED for _, status, _ in rows):
            end = Command(self._sql["add_completed"], (number, page), Command(self._sql["added"]))
            ended = Command(_rows(self._sql["settle_pending"], _SETTLED, len(noted)), _flat(noted), end)
            found = yield Command(self._sql["touch"], (number, page), ended, atomic=not joined, patient=not joined)
            if found and found[0][0] == len(rows):
                return
        counted = Command(self._sql["count"], (number, page))
        settled = Command(_rows(self._sql["settle"], _SETTLED, len(noted)), _flat(noted), counted)
        yield Command(self._sql["touch"], (number, page), settled, atomic=not joined, patient=not joined)

    def reopen(self, operation: ReopenItems) -> Asking[None]:
        """Rows, counts and the batch, under the lock of the page."""
        number, page, positions = operation.number, operation.page, operation.positions
        batch = Command(self._sql["open_batch"], (number, number, page))
        opened = Command(self._sql["open_page"], (number, page), batch)
        counted = Command(self._sql["count"], (number, page), opened)
        values = (number, *positions, int(operation.status), number)
        items = Command(_among(self._sql["reopen"], positions), values, counted)
        yield Command(self._sql["touch"], (number, page), items, atomic=True, patient=True)

    def reserve(self, number: int, amount_us: int) -> Asking[tuple[int, int]]:
        """Time behind what others have reserved."""
        back = Command(self._sql["reserved"], (number,))
        rows = yield Command(self._sql["reserve"], (amount_us, number), back, atomic=True, patient=True)
        return rows[0] if rows else (0, 0)


def _among(text: str, among: Sequence[Any]) -> str:
    return text.replace("{among}", f"IN ({', '.join('?' * len(among))})")


def _rows(text: str, columns: Sequence[str], count: int) -> str:
    first = f"SELECT {', '.join(f'? AS {column}' for column in columns)}"
    return text.replace("{input}", first + f" UNION ALL SELECT {', '.join('?' * len(columns))}" * (count - 1))


def _flat(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(value for row in rows for value in row)
