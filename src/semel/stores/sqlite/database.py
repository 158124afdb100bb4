"""The connections of this process to database files: one writer each, a few readers, and what a fork does to them.

What always holds: drivers on the same file share one writer connection, and whoever holds `lock` writes. A file is
closed when the last driver lets go of it. **No connection is open while the process forks**: SQLite keeps its locks by
process and its account of them in memory, so a child that inherits an open connection believes in locks that it does
not hold, even on connections of its own (seen: a child that is refused for ever, and one without any lock in
/proc/locks). Where a round does not end in time, its connections are inherited after all; the child then neither uses
nor closes them.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

from semel.stores.sqlite.commands import SQL
from semel.stores.sqlite.connect import connect_reader, connect_writer
from semel.stores.sqlite.settings import Settings
from semel.stores.sqlite.translate import WriteLocked
from semel.stores.sqlite.worker import Worker

_FORK_WAIT: Final = 2.0  # seconds that a fork waits for a round to end
_IDLE_READERS: Final = 8


class Database:
    """One file, as this process has it open."""

    def __init__(self, settings: Settings) -> None:
        self.pid = os.getpid()
        self.users = 0
        self.worker = Worker(f"semel writer {settings.path}")
        self._lock = threading.Lock()
        self._guard = threading.Lock()  # guards what follows; taken after _lock where both are
        self._change = threading.Condition(self._guard)
        self._install: bytes | None = None
        self._writer: sqlite3.Connection | None = None
        self._idle: list[sqlite3.Connection] = []
        self._lent = 0
        self._shut = False

    @property
    def is_open(self) -> bool:
        """Whether the next use need not wait for an opening; a guess, for event loops."""
        return self._writer is not None

    @property
    def install_id(self) -> bytes | None:
        """Which database the file holds, where that was read by now."""
        return self._install

    def ready(self, settings: Settings, patience: float | None = None) -> bytes:
        """Open and set up the file where that has not been done; answers its install_id.

        Raises:
            StoreUnavailable: the place cannot work, or the file stayed locked for `patience` seconds.
            SchemaOutdated: the schema is newer than this release, or older and may not be migrated now.
            RecordUnreadable: the file is not a database.
        """
        with self._guard:
            return self._opened(settings, settings.busy_for if patience is None else patience)

    def _opened(self, settings: Settings, patience: float) -> bytes:
        self._change.wait_for(lambda: not self._shut)
        if self._writer is None or self._install is None:
            self._writer, _ = connect_writer(settings, patience)
            self._install = self._writer.execute(SQL["install_id"]).fetchone()[0]
        return cast("bytes", self._install)

    @contextmanager
    def writer(self, settings: Settings, deadline: float) -> Iterator[sqlite3.Connection]:
        """The one connection that writes, for as long as it is held.

        Raises:
            StoreUnavailable: another thread wrote until `deadline` (monotonic), or the file cannot be opened.
        """
        if not self._lock.acquire(timeout=_left(deadline)):
            message = f"{settings.name} was written by other threads for too long; nothing was recorded. Try again."
            raise WriteLocked(message)
        try:
            if self._writer is None:  # only a holder of the lock closes it, so it stays as it is now
                self.ready(settings, _left(deadline))
            yield cast("sqlite3.Connection", self._writer)
        finally:
            self._lock.release()

    def lend(self, settings: Settings, *, short: bool) -> sqlite3.Connection:
        """A connection for reading, for one thread at a time; to be given back. It waits for no writer.

        For a `short` look-up it is the writer's own, where nobody writes right now: a reader has to fetch every page
        again after each commit, and the writer needs the same pages next.

        Raises:
            StoreUnavailable: the file cannot be opened.
        """
        if short and self._lock.acquire(blocking=False):
            if self._writer is not None:
                return self._writer
            self._lock.release()
        with self._guard:
            if self._writer is None or self._shut:
                self._opened(settings, settings.busy_for)
            connection = self._idle.pop() if self._idle else connect_reader(settings)
            self._lent += 1
        return connection

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Take a lent connection back."""
        if connection is self._writer:
            self._lock.release()
            return
        with self._guard:
            self._lent -= 1
            if self._writer is None or self._shut or len(self._idle) >= _IDLE_READERS:
                connection.close()
                self._change.notify_all()
            else:
                self._idle.append(connection)

    def close(self) -> None:
        """Close every connection, after the rounds that are under way."""
        self.worker.stop()
        with self._lock, self._guard:
            self._close_all()

    def shut(self, deadline: float) -> None:
        """Before a fork: wait for what is under way, close everything, and hold it closed."""
        if not self._lock.acquire(timeout=_left(deadline)):
            return
        if not self._guard.acquire(timeout=_left(deadline)):
            self._lock.release()
            return
        self._shut = True
        self._change.wait_for(lambda: not self._lent, timeout=_left(deadline))
        self._close_all()
        self._guard.release()

    def reopen(self) -> None:
        """After a fork, in the parent: go on; connections open again on their next use."""
        if self._shut:
            with self._guard:
                self._shut = False
                self._change.notify_all()
            self._lock.release()

    def _close_all(self) -> None:
        writer, self._writer = self._writer, None
        for connection in [*self._idle, *([writer] if writer else [])]:
            connection.close()
        self._idle.clear()


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


class Process:
    """The files that this process has open, by path and durability."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.open: dict[tuple[str, str], Database] = {}
        self.forking = False


_process = Process()
_inherited: list[Process] = []  # kept for ever, so that no collection closes what belongs to the parent
_abandoned: deque[Database] = deque()  # let go of by drivers that were collected without being closed


def attach(settings: Settings, held: Database | None = None) -> Database:
    """The database at the path of `settings`, for one more user; `held` itself, where this process has it already."""
    process = _current()
    if held is not None and held.pid == process.pid:
        return held
    key = (settings.path, settings.synchronous)
    with process.lock:
        database = process.open.get(key)
        if database is None:
            database = process.open[key] = Database(settings)
        database.users += 1
    while _abandoned:
        detach(_abandoned.popleft())
    return database


def known_install(settings: Settings) -> bytes | None:
    """Which database the file at the path of `settings` holds, where this process has it open; nothing is opened."""
    database = _current().open.get((settings.path, settings.synchronous))
    return None if database is None else database.install_id


def detach(database: Database) -> None:
    """One user less; the last one closes. A forked child does nothing to what its parent opened."""
    process = _current()
    if database.pid != process.pid:
        return
    with process.lock:
        database.users -= 1
        if database.users:
            return
        process.open = {key: other for key, other in process.open.items() if other is not database}
    database.close()


def abandon(database: Database) -> None:
    """One user less, said by a garbage collection: no lock may be taken there, so it is done at the next `attach`."""
    _abandoned.append(database)


def _current() -> Process:
    if _process.pid != os.getpid():  # a fork that did not call Python's hooks
        _start_over()
    return _process


def _start_over() -> None:
    global _process  # noqa: PLW0603 - the one thing that is per process
    _inherited.append(_process)
    _abandoned.clear()
    _process = Process()


def _before_fork() -> None:
    deadline = time.monotonic() + _FORK_WAIT
    _process.forking = _process.lock.acquire(timeout=_FORK_WAIT)  # nothing is opened for the first time meanwhile
    for database in list(_process.open.values()):
        database.shut(deadline)


def _after_fork_in_parent() -> None:
    for database in list(_process.open.values()):
        database.reopen()
    if _process.forking:
        _process.forking = False
        _process.lock.release()


def _close_all() -> None:
    if _process.pid == os.getpid():
        for database in list(_process.open.values()):
            database.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_start_over)
atexit.register(_close_all)
