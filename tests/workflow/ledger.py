"""A bank in a file: takes a payment once for its key, and counts how often it was asked. Outlives its processes."""

from __future__ import annotations

import sqlite3
from pathlib import Path


class Ledger:
    """Payments by key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._open() as database:
            database.execute("CREATE TABLE IF NOT EXISTS payment (key TEXT PRIMARY KEY, claim TEXT NOT NULL)")
            database.execute("CREATE TABLE IF NOT EXISTS request (key TEXT NOT NULL)")

    def pay(self, key: str, claim: str) -> str:
        """Take a payment; the same key is the same payment."""
        with self._open() as database:
            database.execute("INSERT INTO request VALUES (?)", (key,))
            database.execute("INSERT OR IGNORE INTO payment VALUES (?, ?)", (key, claim))
        return f"R-{key[:8]}"

    def payments(self, claim: str) -> int:
        """How many payments there are for a claim."""
        with self._open() as database:
            (number,) = database.execute("SELECT count(*) FROM payment WHERE claim = ?", (claim,)).fetchone()
        return int(number)

    def requests(self) -> int:
        """How often it was asked."""
        with self._open() as database:
            (number,) = database.execute("SELECT count(*) FROM request").fetchone()
        return int(number)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)
