"""The coder, a language model that reads medical records, and the codes that hold: those of a person before its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_TABLES = """
CREATE TABLE IF NOT EXISTS coding (record TEXT PRIMARY KEY, codes TEXT NOT NULL, validated INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS suggestion (record TEXT NOT NULL);
"""


class Coder:
    """Codes of medical records, in the file at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as rows:
            rows.executescript(_TABLES)

    def suggest(self, record: str) -> tuple[str, ...]:
        """Look at a record. Asked again it has another opinion."""
        with self._open() as rows:
            rows.execute("INSERT INTO suggestion VALUES (?)", (record,))
        return ("10101012", f"4030{self.count_suggestions(record):04}")

    def keep(self, record: str, codes: tuple[str, ...]) -> tuple[str, ...]:
        """Keep codes, unless a person has validated others; gives those that hold."""
        with self._open() as rows:
            rows.execute(
                "INSERT INTO coding (record, codes) VALUES (?, ?) "
                "ON CONFLICT (record) DO UPDATE SET codes = excluded.codes WHERE validated = 0",
                (record, " ".join(codes)),
            )
            (held,) = rows.execute("SELECT codes FROM coding WHERE record = ?", (record,)).fetchone()
        return tuple(held.split())

    def validate(self, record: str, codes: tuple[str, ...]) -> None:
        """A person says which codes hold."""
        with self._open() as rows:
            rows.execute("INSERT OR REPLACE INTO coding VALUES (?, ?, 1)", (record, " ".join(codes)))

    def count_suggestions(self, record: str) -> int:
        """How often it has looked at a record."""
        with self._open() as rows:
            (number,) = rows.execute("SELECT count(*) FROM suggestion WHERE record = ?", (record,)).fetchone()
        return int(number)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30)) as rows, rows:
            yield rows
