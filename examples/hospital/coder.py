"""The coder, a language model that reads medical records, and the codes that hold: those of a person before its own.

Codes belong to one procedure: to a record and a day. A record has many.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date
from pathlib import Path
from typing import Final

from examples.hospital.domain import Codes

CODER: Final = "coder"
PERSON: Final = "person"

_TABLES = """
CREATE TABLE IF NOT EXISTS coding (
    record TEXT NOT NULL, day TEXT NOT NULL, codes TEXT NOT NULL, chosen_by TEXT NOT NULL, PRIMARY KEY (record, day));
CREATE TABLE IF NOT EXISTS suggestion (record TEXT NOT NULL, day TEXT NOT NULL);
"""


class Coder:
    """Codes of procedures, in the file at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as rows:
            rows.executescript(_TABLES)

    def suggest(self, record: str, day: date) -> tuple[str, ...]:
        """Look at a record. Asked again it has another opinion."""
        with self._open() as rows:
            rows.execute("INSERT INTO suggestion VALUES (?, ?)", (record, day.isoformat()))
        return ("10101012", f"4030{self.count_suggestions(record, day):04}")

    def keep(self, record: str, day: date, codes: tuple[str, ...]) -> Codes:
        """Keep codes of the coder, unless a person has validated others; gives those that hold."""
        with self._open() as rows:
            rows.execute(
                "INSERT INTO coding VALUES (?, ?, ?, ?) ON CONFLICT (record, day) "
                "DO UPDATE SET codes = excluded.codes WHERE chosen_by = excluded.chosen_by",
                (record, day.isoformat(), " ".join(codes), CODER),
            )
        held = self.find(record, day)
        assert held is not None
        return held

    def validate(self, record: str, day: date, codes: tuple[str, ...]) -> None:
        """A person says which codes hold."""
        with self._open() as rows:
            values = (record, day.isoformat(), " ".join(codes), PERSON)
            rows.execute("INSERT OR REPLACE INTO coding VALUES (?, ?, ?, ?)", values)

    def find(self, record: str, day: date) -> Codes | None:
        """The codes that hold; None where a procedure has none yet."""
        with self._open() as rows:
            chosen = "SELECT codes, chosen_by FROM coding WHERE record = ? AND day = ?"
            found = rows.execute(chosen, (record, day.isoformat())).fetchone()
        return None if found is None else Codes(tuple(found[0].split()), found[1])

    def count_suggestions(self, record: str, day: date) -> int:
        """How often it has looked at a procedure."""
        with self._open() as rows:
            counted = "SELECT count(*) FROM suggestion WHERE record = ? AND day = ?"
            (number,) = rows.execute(counted, (record, day.isoformat())).fetchone()
        return int(number)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30)) as rows, rows:
            yield rows
