"""Bringing a database file to the schema of this release: what `semel migrate` does, and what it would do."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from os import PathLike
from pathlib import Path

from semel.stores.clock import StoreClock, machine_clock
from semel.stores.sqlite.connect import connect_writer
from semel.stores.sqlite.settings import Settings
from semel.stores.sqlite.translate import translated
from semel.stores.sqlite.versions import check_version, schema_sql, version_of

_WAIT = timedelta(seconds=10)


def migrate(path: str | PathLike[str], *, busy_for: timedelta = _WAIT, clock: StoreClock = machine_clock) -> list[int]:
    """Apply every pending migration, creating the file where there is none; answers the versions applied.

    Raises:
        StoreUnavailable: the place cannot work, or the write lock was not to be had within `busy_for`.
        SchemaOutdated: the database is newer than this release.
        RecordUnreadable: the file is not a database.
    """
    settings = Settings.of(path, "FULL", busy_for, clock, migrate=True)
    connection, applied = connect_writer(settings, settings.busy_for)
    connection.close()
    return applied


def pending_sql(path: str | PathLike[str]) -> str:
    """The SQL that `migrate` would run on this file now; empty where it is up to date. Changes nothing.

    Raises:
        SchemaOutdated: the database is newer than this release.
        RecordUnreadable: the file is not a database.
    """
    settings = Settings.of(path, "FULL", _WAIT, machine_clock, migrate=True)
    if not Path(settings.path).exists():
        return schema_sql()
    try:
        connection = sqlite3.connect(f"{Path(settings.path).as_uri()}?mode=ro", uri=True, timeout=settings.busy_for)
        try:
            version = version_of(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise translated(error, settings.name) from error
    check_version(version, settings.name, may_migrate=True)
    return schema_sql(after=version)
