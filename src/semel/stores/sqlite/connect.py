"""Connections of the store's own: opened, set up and begun in one way.

What always holds: WAL; our connections never begin by themselves (`isolation_level=None`); a write transaction begins
with IMMEDIATE, so that it never reads first and fails on its first write; waiting for the write lock is bounded and
jittered, so that processes do not wait in step.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from typing import Final, TypeVar

from semel.errors import StoreUnavailable, UsageError
from semel.stores.sqlite.place import check_place, create_private
from semel.stores.sqlite.settings import Settings
from semel.stores.sqlite.translate import WriteLocked, is_locked, translated
from semel.stores.sqlite.versions import apply_pending, check_version, version_of

T = TypeVar("T")
OLDEST: Final = (3, 37, 0)  # STRICT tables; RETURNING came in 3.35
_STATEMENTS: Final = 256
_READ_WAIT: Final = 1.0  # seconds; readers of a WAL wait only while another process recovers it
_CACHE: Final = "PRAGMA cache_size = -16384"  # KiB, at most: keys are digests, so each claim needs another page
_SHORTEST: Final = 0.0005
_LONGEST: Final = 0.02
_SYNCHRONOUS: Final = {
    "FULL": "PRAGMA synchronous = FULL",
    "EXTRA": "PRAGMA synchronous = EXTRA",
    "NORMAL": "PRAGMA synchronous = NORMAL",
}


def connect_writer(settings: Settings, patience: float) -> tuple[sqlite3.Connection, list[int]]:
    """A connection for writing, to a database that has the schema of this release when this returns.

    Given back with the versions that had to be applied for that.

    Raises:
        StoreUnavailable: the place cannot work, or the write lock was not to be had within `patience` seconds.
        SchemaOutdated: the schema is newer than this release, or older and may not be migrated now.
        RecordUnreadable: the file is not a database.
    """
    _check_library()
    check_place(settings.path)
    create_private(settings.path)
    try:
        connection = _connect(settings.path, timeout=0.0)
        deadline = time.monotonic() + patience
        try:
            # Even a reading can find the file locked here: another process may be turning it to WAL, or closing it.
            applied = _patiently(lambda: _set_up(connection, settings, deadline), settings.name, deadline)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise translated(error, settings.name) from error
    return connection, applied


def connect_reader(settings: Settings) -> sqlite3.Connection:
    """A connection for reading, to a database that is known to be ready.

    Raises:
        StoreUnavailable: the file cannot be opened any more.
    """
    try:
        connection = _connect(settings.path, timeout=_READ_WAIT)
        connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        raise translated(error, settings.name) from error
    return connection


def begin(connection: sqlite3.Connection, name: str, deadline: float) -> None:
    """Begin a write transaction, waiting for the write lock until `deadline` (monotonic).

    Raises:
        StoreUnavailable: another process held the lock all that time; nothing was written.
    """
    _patiently(lambda: connection.execute("BEGIN IMMEDIATE"), name, deadline)


def _patiently(act: Callable[[], T], name: str, deadline: float) -> T:
    longest = _SHORTEST
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if not is_locked(error):
                raise
            left = deadline - time.monotonic()
            if left <= 0:
                message = (
                    f"{name} was locked for too long, by another process or by a transaction of your own that is "
                    f"still open; nothing was recorded. Commit it, or try again; "
                    f"look for a long transaction on the file, or raise busy_for."
                )
                raise WriteLocked(message) from error
        time.sleep(min(left, random.uniform(0, longest)))  # noqa: S311 - jitter, not a secret
        longest = min(longest * 1.5, _LONGEST)


def _connect(path: str, *, timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=timeout, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS
    )


def _set_up(connection: sqlite3.Connection, settings: Settings, deadline: float) -> list[int]:
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != "wal":
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        message = (
            f"{settings.name} cannot use a write-ahead log (journal_mode stays {mode!r}); nothing ran. "
            f"Put the file on a local disk."
        )
        raise StoreUnavailable(message)
    connection.execute(_CACHE)
    connection.execute(_SYNCHRONOUS[settings.synchronous])
    if not check_version(version_of(connection), settings.name, may_migrate=settings.migrate):
        return []
    begin(connection, settings.name, deadline)
    applied = apply_pending(connection, settings.name, settings.clock)
    connection.execute("COMMIT")  # an error before this closes the connection, and with it the transaction
    return applied


def _check_library() -> None:
    if sqlite3.sqlite_version_info < OLDEST:
        needed = ".".join(map(str, OLDEST))
        message = (
            f"semel needs SQLite {needed} or newer, and this Python was built with {sqlite3.sqlite_version}; "
            f"nothing ran. Use a Python with a newer SQLite."
        )
        raise UsageError(message)
