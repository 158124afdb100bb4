"""Administration of an SQLite file: migrations and `semel doctor`, which opens the file for reading only."""

from __future__ import annotations

import re
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Final

from semel.errors import SchemaOutdated
from semel.stores.admin import MOST_COUNTED, Admin, Finding, Half, Numbers, about_records
from semel.stores.settings import StoreClock, machine_clock
from semel.stores.sqlite.database import connect_writer
from semel.stores.sqlite.errors import translate_error
from semel.stores.sqlite.migrations import is_pending, schema, version_of
from semel.stores.sqlite.settings import MOUNTS, NETWORK, Settings, check_place, filesystem_of

_WAIT = timedelta(seconds=10)


def migrate(path: str | PathLike[str], *, busy_for: timedelta = _WAIT, clock: StoreClock = machine_clock) -> list[str]:
    """Apply every pending migration, creating the file where there is none; answers the numbers of those applied.

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
        return schema().creation_sql()
    try:
        connection = sqlite3.connect(f"{Path(settings.path).as_uri()}?mode=ro", uri=True, timeout=settings.busy_for)
        try:
            version = version_of(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise translate_error(error, settings.name) from error
    return schema().pending_sql(version) if is_pending(version, settings.name, may_migrate=True) else ""


class FileRows:
    """Rows of a file. A page of them is committed together: each commit waits for the disk."""

    step_key = ("step",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def fill(self, text: str) -> str:
        """`text` with the names of the tables in it."""
        return re.sub(r"\{(\w+)_table\}", r"semel_\1", text)

    def execute(self, text: str, values: tuple[Any, ...] = ()) -> list[Sequence[Any]]:
        """Run one statement; answers its rows."""
        return self._connection.execute(text, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction, which is rolled back where something goes wrong."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


class SqliteAdmin(Admin):
    """What operators do to one file; in messages it is its path."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.path)
        self._settings = settings

    def migrate(self, half: Half | None = None, *, search: bool = False, partitions: int = 0) -> list[str]:
        """Apply every pending migration; answers their numbers."""
        del half, search, partitions  # a file is migrated as a whole, in one transaction
        return migrate(self._settings.path)

    def pending_sql(self, half: Half | None = None, *, search: bool = False, partitions: int = 0) -> str:
        """The SQL that `migrate` would run on this file now."""
        del half, search, partitions
        return pending_sql(self._settings.path)

    @contextmanager
    def sealed_rows(self) -> Iterator[FileRows]:
        """The rows that may hold sealed values."""
        connection, _ = connect_writer(self._settings, self._settings.busy_for)
        try:
            connection.execute("PRAGMA busy_timeout = 10000")  # a worker that writes is waited for
            yield FileRows(connection)
        except sqlite3.Error as error:
            raise translate_error(error, self._settings.name) from error
        finally:
            connection.close()

    def examine(self, horizon: timedelta) -> list[Finding]:
        """What is found in the file."""
        return examine(self._settings, horizon)


# By index, and no more of each than says what is to be done: the file may hold millions.
_NUMBERS: Final = """
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM semel_record WHERE expires_us <= :now AND status NOT IN ('running', 'in_doubt') LIMIT :most + 1
    )),
    (SELECT count(*) FROM (
        SELECT 1 FROM semel_record WHERE status IN ('running', 'in_doubt') AND status = 'in_doubt' LIMIT :most + 1
    )),
    (SELECT count(*) FROM (
        SELECT 1 FROM semel_record
        WHERE status IN ('running', 'in_doubt') AND status = 'running' AND lease_us <= :now LIMIT :most + 1
    )),
    min(n.keep_us), NULL, CASE WHEN count(*) = :most THEN :most END
FROM (SELECT keep_us FROM semel_record ORDER BY created_us DESC, digest DESC LIMIT :most) AS n
"""


def examine(settings: Settings, horizon: timedelta) -> list[Finding]:
    """What is found in the file.

    Raises:
        StoreUnavailable: it cannot be opened.
        RecordUnreadable: it is no database.
    """
    if Path(settings.path).is_dir():
        check_place(settings.path)  # refuses it in words; SQLite would speak of a broken disk
    try:
        connection = sqlite3.connect(
            f"{Path(settings.path).as_uri()}?mode=ro", uri=True, timeout=settings.busy_for, isolation_level=None
        )
        try:
            return list(_findings(connection, settings, horizon))
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise translate_error(error, settings.name) from error


def _findings(connection: sqlite3.Connection, settings: Settings, horizon: timedelta) -> list[Finding]:
    findings = [
        Finding("version", f"SQLite {sqlite3.sqlite_version}"),
        _synchronous(settings),
        journal(connection.execute("PRAGMA journal_mode").fetchone()[0]),
        disk(_filesystem(settings.path)),
        permissions(stat.S_IMODE(Path(settings.path).stat().st_mode)),
        Finding("role", "one file for the processes of one machine, whose clock decides"),
        _schema(connection, settings),
    ]
    if findings[-1].verdict != "fix":
        numbers = connection.execute(_NUMBERS, {"now": settings.clock(), "most": MOST_COUNTED}).fetchone()
        findings += about_records(Numbers(*numbers), horizon)
    return findings


def _synchronous(settings: Settings) -> Finding:
    """What this URL asks for; other processes may have been given another word."""
    if settings.synchronous == "NORMAL":
        advice = "a power failure may take the last commits: leave ?synchronous=NORMAL out, in every process"
        return Finding("synchronous", "NORMAL", "fix", advice, ("durable",))
    return Finding("synchronous", f"{settings.synchronous}, by this URL")


def journal(mode: str) -> Finding:
    """The write-ahead log is switched on by the first worker."""
    if mode == "wal":
        return Finding("journal", mode)
    return Finding("journal", mode, "note", "no worker has used the file yet: the first one turns it to wal")


def disk(kind: str) -> Finding:
    """Whether locks hold on this file system."""
    if kind in NETWORK:
        advice = "SQLite's locks do not hold there: use a local disk, or a database server"
        return Finding("disk", kind, "fix", advice, ("durable",))
    return Finding("disk", kind or "not known")


def permissions(mode: int) -> Finding:
    """Whether other users of the machine can read outcomes and what they are about."""
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        advice = "other users can open the file: chmod 600, also the -wal and -shm beside it, unless they share it"
        return Finding("permissions", f"{mode:o}", "note", advice)
    return Finding("permissions", f"{mode:o}")


def _filesystem(path: str) -> str:
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""  # not Linux: nothing to ask
    return filesystem_of(path, mounts)


def _schema(connection: sqlite3.Connection, settings: Settings) -> Finding:
    version, newest = version_of(connection), schema().newest
    try:
        is_pending(version, settings.name, may_migrate=False)
    except SchemaOutdated:
        advice = "use the newer release" if version > newest else "run `semel migrate`"
        return Finding("schema", f"version {version}, this release knows {newest}", "fix", advice, ("schema",))
    return Finding("schema", f"version {version}, nothing pending")
