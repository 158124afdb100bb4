"""The systems around the hospital, each with a ledger in a file: the insurer, the financial system, the coder.

They do what they are asked for under a key once, and can lose an answer after they have done it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path

_TABLES = """
CREATE TABLE IF NOT EXISTS claim (key TEXT PRIMARY KEY, claim TEXT NOT NULL, protocol TEXT NOT NULL, guide BLOB);
CREATE TABLE IF NOT EXISTS appeal (key TEXT PRIMARY KEY, glosa TEXT NOT NULL, protocol TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS posting (key TEXT PRIMARY KEY, claim TEXT NOT NULL, amount TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS coding (record TEXT PRIMARY KEY, codes TEXT NOT NULL, validated INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS suggestion (record TEXT NOT NULL);
"""


class AnswerLost(Exception):
    """It may have happened: the answer did not arrive."""


class ClaimDenied(Exception):
    """The insurer has the claim, and refuses to pay it."""


class Outside:
    """All of them, in one file.

    Attributes:
        loses_answers: how many answers are lost from now on.
        denies: guides that the insurer refuses.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.loses_answers = 0
        self.denies: set[str] = set()
        with self._open() as ledger:
            ledger.executescript(_TABLES)

    def submit(self, key: str, claim: str, guide_number: str, guide: bytes) -> str:
        """The insurer takes a claim, and gives the number of its protocol.

        Raises:
            ClaimDenied: it refuses the guide.
            AnswerLost: it has it, and its answer was lost.
        """
        if guide_number in self.denies:
            raise ClaimDenied(f"glosa for guide {guide_number}")
        with self._open() as ledger:
            number = ledger.execute("SELECT count(*) FROM claim").fetchone()[0] + 1
            ledger.execute("INSERT OR IGNORE INTO claim VALUES (?, ?, ?, ?)", (key, claim, f"P-{number}", guide))
            (protocol,) = ledger.execute("SELECT protocol FROM claim WHERE key = ?", (key,)).fetchone()
        self._answer()
        return str(protocol)

    def appeal(self, key: str, glosa: str) -> str:
        """The insurer takes an appeal."""
        with self._open() as ledger:
            ledger.execute("INSERT OR IGNORE INTO appeal VALUES (?, ?, ?)", (key, glosa, f"A-{glosa}"))
        self._answer()
        return f"A-{glosa}"

    def post(self, key: str, claim: str, amount: Decimal) -> None:
        """The financial system books a payment."""
        with self._open() as ledger:
            ledger.execute("INSERT OR IGNORE INTO posting VALUES (?, ?, ?)", (key, claim, str(amount)))
        self._answer()

    def suggest_codes(self, record: str) -> tuple[str, ...]:
        """The coder, a language model, looks at a record. Asked again it has another opinion."""
        with self._open() as ledger:
            ledger.execute("INSERT INTO suggestion VALUES (?)", (record,))
            (number,) = ledger.execute("SELECT count(*) FROM suggestion WHERE record = ?", (record,)).fetchone()
        return ("10101012", f"4030{number:04}")

    def keep_codes(self, record: str, codes: tuple[str, ...]) -> tuple[str, ...]:
        """Keep codes, unless a person has validated others; gives those that hold."""
        with self._open() as ledger:
            ledger.execute(
                "INSERT INTO coding (record, codes) VALUES (?, ?) "
                "ON CONFLICT (record) DO UPDATE SET codes = excluded.codes WHERE validated = 0",
                (record, " ".join(codes)),
            )
            (held,) = ledger.execute("SELECT codes FROM coding WHERE record = ?", (record,)).fetchone()
        return tuple(held.split())

    def validate_codes(self, record: str, codes: tuple[str, ...]) -> None:
        """A person says which codes hold."""
        with self._open() as ledger:
            ledger.execute("INSERT OR REPLACE INTO coding VALUES (?, ?, 1)", (record, " ".join(codes)))

    def count(self, table: str) -> int:
        """How many rows a ledger has."""
        if table not in ("claim", "appeal", "posting", "suggestion"):
            raise ValueError(table)
        with self._open() as ledger:
            return int(ledger.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - a name from above

    def _answer(self) -> None:
        if self.loses_answers > 0:
            self.loses_answers -= 1
            raise AnswerLost("the connection was closed before the answer")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30)) as ledger, ledger:
            yield ledger
