"""The audit chain and tokens on SQLite: what follows a statement is part of its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from semel.core.operators.chain import ChainHead, Seal
from semel.stores.sql.dialect import Asking, Row
from semel.stores.sql.errors import RowError
from semel.stores.sql.operators.plan import ENTRY_COLUMNS, SEAL_COLUMNS, seal_row, shared_statements
from semel.stores.sqlite.commands import SqliteCommand, positional, whether_changed

_SHARED: Final = shared_statements(
    {
        "audit_table": "semel_audit",
        "audit_head_table": "semel_audit_head",
        "audit_seal_table": "semel_audit_seal",
        "token_table": "semel_token",
        "insert_ignore": "INSERT INTO",
        "or_nothing": "ON CONFLICT DO NOTHING",
        "clock": ":now",
    }
)
# Rows first: if an entry of that number is there already, nothing has changed. They are added only behind the head that
# was seen; then nothing else can have moved it before the statement that does, because there is one writer.
_ADD: Final = "INSERT INTO semel_audit (chain, {columns}) SELECT * FROM ({rows}) WHERE EXISTS ({seen})".replace(
    "{seen}", "SELECT 1 FROM semel_audit_head WHERE chain = :chain AND seq = :seen_seq AND hash = :seen_hash"
).replace("{columns}", ", ".join(ENTRY_COLUMNS))
_MOVE: Final = "UPDATE semel_audit_head SET seq = :seq, hash = :hash, at_us = :at_us WHERE chain = :chain"
_SEAL: Final = (
    f"INSERT INTO semel_audit_seal (chain, {', '.join(SEAL_COLUMNS)}) "  # noqa: S608 - names above
    f"SELECT :chain, {', '.join(f':{name}' for name in SEAL_COLUMNS)} "
    f"WHERE EXISTS (SELECT 1 FROM semel_audit_head WHERE chain = :chain AND sealed = :first - 1)"
)
_MOVE_SEALED: Final = (
    "UPDATE semel_audit_head SET sealed = :last, sealed_us = :at_us, seal_hash = :hash WHERE chain = :chain"
)


class SqliteAudit:
    """The statements."""

    def command(self, name: str, *values: Any) -> SqliteCommand:
        """A statement that all databases understand."""
        return positional(_SHARED[name], values)

    def command_among(self, name: str, among: Sequence[bytes], *values: Any) -> SqliteCommand:
        """The same with a list, as so many values."""
        return positional(_SHARED[name].replace("{among}", f"IN ({', '.join('?' * len(among))})"), (*values, *among))

    def command_where(self, name: str, condition: str, *values: Any) -> SqliteCommand:
        """The same with a condition."""
        return positional(_SHARED[name].replace("{condition}", condition), values)

    def append(self, seen: ChainHead, moved: ChainHead, rows: Sequence[Row]) -> Asking[bool]:
        """Entries, and then the head."""
        named: dict[str, Any] = {"chain": seen.chain, "seen_seq": seen.seq, "seen_hash": seen.hash}
        named |= {"seq": moved.seq, "hash": moved.hash, "at_us": moved.at_us}
        selects: list[str] = []
        for number, row in enumerate(rows):
            marks = [f"r{number}_{place}" for place in range(len(row))]
            named |= dict(zip(marks, row, strict=True))
            selects.append("SELECT " + ", ".join(f":{mark}" for mark in marks))
        text = _ADD.replace("{rows}", " UNION ALL ".join(selects))
        try:
            return bool((yield SqliteCommand(text, named=named, follow=(_MOVE,), to_rows=whether_changed)))
        except sqlite3.IntegrityError as error:
            raise RowError(error) from None

    def seal(self, chain: bytes, seal: Seal) -> Asking[bool]:
        """The seal, and then the head."""
        named = dict(zip(("chain", *SEAL_COLUMNS), seal_row(chain, seal), strict=True))
        return bool((yield SqliteCommand(_SEAL, named=named, follow=(_MOVE_SEALED,), to_rows=whether_changed)))
