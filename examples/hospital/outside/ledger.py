"""The ledger of a system around the hospital: one row for each key, in an SQLite file that outlives the process."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

_TABLE = """
CREATE TABLE IF NOT EXISTS entry (
    position INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
    asked TEXT NOT NULL, number TEXT NOT NULL, asked_for INTEGER NOT NULL DEFAULT 1,
    day TEXT NOT NULL DEFAULT CURRENT_DATE)
"""


@dataclass(frozen=True)
class Entry:
    """What was done under a key.

    Attributes:
        kind: what: a claim, a refusal of one (a glosa), an appeal, a posting.
        asked: the request, as it came first.
        number: what the caller got for it.
        asked_for: how often it was asked for; it was done once.
        day: when it was done.
    """

    kind: str
    asked: str
    number: str
    asked_for: int
    day: str


_ENTRY = "SELECT kind, asked, number, asked_for, day FROM entry"


class Ledger:
    """All entries, in the file at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as rows:
            rows.execute(_TABLE)

    def enter(self, key: str, kind: str, prefix: str, asked: str) -> Entry:
        """The entry of a key; made if there is none, and otherwise as it is."""
        with self._open() as rows:
            rows.execute("BEGIN IMMEDIATE")
            (number,) = rows.execute("SELECT count(*) + 1 FROM entry WHERE kind = ?", (kind,)).fetchone()
            rows.execute(
                "INSERT INTO entry (key, kind, asked, number) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (key) DO UPDATE SET asked_for = asked_for + 1",
                (key, kind, asked, f"{prefix}-{number}"),
            )
            found = rows.execute(f"{_ENTRY} WHERE key = ?", (key,)).fetchone()
        return Entry(*found)

    def entries(self, kind: str) -> list[Entry]:
        """All of a kind, the oldest first."""
        with self._open() as rows:
            return [Entry(*row) for row in rows.execute(f"{_ENTRY} WHERE kind = ? ORDER BY position", (kind,))]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30)) as rows, rows:
            yield rows
