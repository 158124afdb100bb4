"""The audit chain and tokens on MySQL and MariaDB: the head and its entries change in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from semel.core.operators.chain import ChainHead, Seal
from semel.stores.sql.dialect import Asking, Command, Row
from semel.stores.sql.operators.plan import ENTRY_COLUMNS, SEAL_COLUMNS, seal_row, shared_statements

_ENTRY: Final = ("chain", *ENTRY_COLUMNS)
_SEAL: Final = ("chain", *SEAL_COLUMNS)
# Of two that saw the same head the second waits for the first, finds the head moved, and adds nothing.
_MOVE: Final = "UPDATE {audit_head_table} SET seq = ?, hash = ?, at_us = ? WHERE chain = ? AND seq = ? AND hash = ?"
_MOVE_SEALED: Final = (
    "UPDATE {audit_head_table} SET sealed = ?, sealed_us = ?, seal_hash = ? WHERE chain = ? AND sealed = ?"
)
_ADD: Final = "INSERT INTO {table} ({columns}) SELECT {e_columns} FROM ({rows}) AS e WHERE ROW_COUNT() > 0"
_CHANGED: Final = Command("SELECT ROW_COUNT()")


class MysqlAudit:
    """The statements for one place.

    Args:
        names: of the tables, as parts of statements.
        clock: the store's now, as part of statements.
    """

    def __init__(self, names: dict[str, str], clock: str) -> None:
        words = {"insert_ignore": "INSERT IGNORE INTO", "or_nothing": ""}
        self._shared = shared_statements({**names, **words, "clock": clock})
        self._names = names

    def command(self, name: str, *values: Any) -> Command:
        """A statement that all databases understand."""
        return Command(self._shared[name], values, patient=True)

    def command_among(self, name: str, among: Sequence[bytes], *values: Any) -> Command:
        """The same with a list, as so many values."""
        text = self._shared[name].replace("{among}", f"IN ({', '.join('?' * len(among))})")
        return Command(text, (*values, *among), patient=True)

    def command_where(self, name: str, condition: str, *values: Any) -> Command:
        """The same with a condition."""
        return Command(self._shared[name].replace("{condition}", condition), values, patient=True)

    def append(self, seen: ChainHead, moved: ChainHead, rows: Sequence[Row]) -> Asking[bool]:
        """The head, and if it was moved, entries."""
        head = (moved.seq, moved.hash, moved.at_us, seen.chain, seen.seq, seen.hash)
        return (yield from self._add(_MOVE, head, "audit_table", _ENTRY, rows))

    def seal(self, chain: bytes, seal: Seal) -> Asking[bool]:
        """The head, and if it was moved, the seal."""
        head = (seal.last, seal.at_us, seal.hash, chain, seal.first - 1)
        return (yield from self._add(_MOVE_SEALED, head, "audit_seal_table", _SEAL, [seal_row(chain, seal)]))

    def _add(self, move: str, head: Row, table: str, columns: Sequence[str], rows: Sequence[Row]) -> Asking[bool]:
        named = ", ".join(f"`{column}`" for column in columns)
        first = "SELECT " + ", ".join(f"? AS `{column}`" for column in columns)
        text = (
            _ADD.replace("{table}", self._names[table])
            .replace("{columns}", named)
            .replace("{e_columns}", ", ".join(f"e.`{column}`" for column in columns))
            .replace("{rows}", first + f" UNION ALL SELECT {', '.join('?' * len(columns))}" * (len(rows) - 1))
        )
        added = Command(text, tuple(value for row in rows for value in row), _CHANGED)
        moving = move.replace("{audit_head_table}", self._names["audit_head_table"])
        ((changed,),) = yield Command(moving, head, added, atomic=True, patient=True)
        return bool(changed > 0)
