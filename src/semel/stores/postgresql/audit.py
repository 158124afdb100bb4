"""The audit chain and tokens on PostgreSQL: the head moves and its entries are added in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from semel.core.operators.chain import ChainHead, Seal
from semel.stores.sql.dialect import Asking, Command, Row
from semel.stores.sql.operators.plan import ENTRY_COLUMNS, SEAL_COLUMNS, seal_row, shared_statements

_KINDS: Final = {
    **dict.fromkeys(("chain", "id", "written", "written_hash", "previous", "hash", "last_hash", "range_hash"), "bytea"),
    **dict.fromkeys(("scope", "actor", "action", "target", "outcome"), "text"),
    **dict.fromkeys(("seq", "at_us", "ends", "first", "last"), "bigint"),
    "phase": "smallint",
}
_ENTRY: Final = ("chain", *ENTRY_COLUMNS)
_SEAL: Final = ("chain", *SEAL_COLUMNS)
# Of two that saw the same head the second waits for the first, finds the head moved, and adds nothing.
_APPEND: Final = """
WITH h AS (
    UPDATE {audit_head_table} SET seq = ?::bigint, hash = ?::bytea, at_us = ?::bigint
    WHERE chain = ?::bytea AND seq = ?::bigint AND hash = ?::bytea RETURNING chain
), added AS (
    INSERT INTO {audit_table} ({columns}) SELECT u.* FROM h CROSS JOIN unnest({arrays}) AS u({columns})
)
SELECT chain FROM h
"""
_ADD_SEAL: Final = """
WITH h AS (
    UPDATE {audit_head_table} SET sealed = ?::bigint, sealed_us = ?::bigint, seal_hash = ?::bytea
    WHERE chain = ?::bytea AND sealed = ?::bigint RETURNING chain
), added AS (
    INSERT INTO {audit_seal_table} ({columns}) SELECT {values} FROM h
)
SELECT chain FROM h
"""


class PostgresAudit:
    """The statements for one place.

    Args:
        names: of the tables, as parts of statements.
        clock: the store's now, as part of statements.
    """

    def __init__(self, names: dict[str, str], clock: str) -> None:
        words = {"insert_ignore": "INSERT INTO", "or_nothing": "ON CONFLICT DO NOTHING"}
        self._shared = shared_statements({**names, **words, "clock": clock})
        self._append = _APPEND.strip().format(
            **names, columns=", ".join(_ENTRY), arrays=", ".join(f"?::{_KINDS[name]}[]" for name in _ENTRY)
        )
        self._seal = _ADD_SEAL.strip().format(
            **names, columns=", ".join(_SEAL), values=", ".join(f"?::{_KINDS[name]}" for name in _SEAL)
        )

    def command(self, name: str, *values: Any) -> Command:
        """A statement that all databases understand."""
        return Command(self._shared[name], values)

    def command_among(self, name: str, among: Sequence[bytes], *values: Any) -> Command:
        """The same with a list, which travels as an array."""
        return Command(self._shared[name].replace("{among}", "= ANY(?::bytea[])"), (*values, list(among)))

    def command_where(self, name: str, condition: str, *values: Any) -> Command:
        """The same with a condition."""
        return Command(self._shared[name].replace("{condition}", condition), values)

    def append(self, seen: ChainHead, moved: ChainHead, rows: Sequence[Row]) -> Asking[bool]:
        """The head and entries, in one statement."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        head = (moved.seq, moved.hash, moved.at_us, seen.chain, seen.seq, seen.hash)
        return bool((yield Command(self._append, (*head, *columns))))

    def seal(self, chain: bytes, seal: Seal) -> Asking[bool]:
        """The head and a seal, in one statement."""
        head = (seal.last, seal.at_us, seal.hash, chain, seal.first - 1)
        return bool((yield Command(self._seal, (*head, *seal_row(chain, seal)))))
