"""Database files to measure on: filled with records before, and analysed, one copy for each variant."""

from __future__ import annotations

import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path

from bench.harness import Effort
from bench.workload import once
from semel import Semel
from semel.stores.settings import machine_clock
from semel.stores.sqlite.database import connect_reader, connect_writer
from semel.stores.sqlite.settings import Settings

_COPIES = 1_000
_DIFFERENT = {
    "digest": "randomblob(32)",
    "nonce": "randomblob(16)",
    "value": "'filled-' || n",
    "created_us": "created_us - n",
}


def filled(folder: Path, effort: Effort, name: str) -> Path:
    """A file of its own for the variant `name`, with `effort.rows` records in it."""
    template = folder / f"filled-{effort.rows}.db"
    if not template.exists():
        _fill(template, effort.rows)
    path = folder / f"{name}.db"
    shutil.copyfile(template, path)
    return path


def _fill(path: Path, rows: int) -> None:
    """One record made by semel, and copies of it under other keys."""
    with Semel(path) as semel:
        once(semel)(0)
    connection = sqlite3.connect(path, isolation_level=None)
    names = [row[1] for row in connection.execute("PRAGMA table_info(semel_record)")]
    columns = ", ".join(names)
    values = ", ".join(_DIFFERENT.get(name, name) for name in names)
    for first in range(1, rows, _COPIES):
        last = min(first + _COPIES, rows) - 1
        connection.execute(
            f"WITH RECURSIVE c(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM c WHERE n < {last}) "  # noqa: S608 - names of columns and whole numbers
            f"INSERT INTO semel_record ({columns}) SELECT {values} FROM semel_record, c "
            f"WHERE semel_record.rowid = (SELECT min(rowid) FROM semel_record)"
        )
    connection.execute("ANALYZE")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def durability(path: Path) -> dict[str, object]:
    """How the connections that semel opens are set, as SQLite itself reports it."""
    connection = open_writer(path)
    try:
        asked = ("journal_mode", "synchronous", "wal_autocheckpoint", "cache_size", "page_size")
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in asked}
    finally:
        connection.close()


def open_writer(path: Path) -> sqlite3.Connection:
    """A connection for writing, opened and set as semel opens and sets its own."""
    settings = _settings(path)
    return connect_writer(settings, settings.busy_for)[0]


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection for reading, opened and set as semel opens and sets its own."""
    return connect_reader(_settings(path))


def _settings(path: Path) -> Settings:
    return Settings.of(path, "FULL", timedelta(seconds=10), machine_clock, migrate=True)
