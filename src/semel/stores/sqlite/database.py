"""Connections of this process to database files: one writer each, a few readers, the writer thread, and forks.

- Drivers on the same file share one writer connection; holding `lock` is the right to write. A file is closed when the
  last driver releases it.
- **No connection is open while the process forks**: SQLite keeps its locks per process and its account of them in
  memory, so a child that inherits an open connection believes in locks that it does not hold, even on connections of
  its own (seen: a child that is refused forever, and one without any lock in /proc/locks). Where a batch does not end
  in time, its connections are inherited after all; the child then neither uses nor closes them.
- Connections use WAL and never begin by themselves (`isolation_level=None`). A write transaction begins with IMMEDIATE,
  so that it never reads first and fails on its first write. Waiting for the write lock is bounded and jittered, so that
  processes do not wait in step.
- The writer thread, one per database and process and started on first use, runs the batches of event loops, so that no
  loop waits for the disk. A caller that is gone (cancelled, or its loop closed) does not disturb its batch: the result
  is dropped.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar, cast

from semel.errors import StoreUnavailable, UsageError
from semel.stores.sqlite.dialect import SQL
from semel.stores.sqlite.errors import WriteLocked, is_locked, translate_error
from semel.stores.sqlite.migrations import is_pending, migrate_file, version_of
from semel.stores.sqlite.settings import Settings, check_place, create_private

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


def connect_writer(settings: Settings, patience: float) -> tuple[sqlite3.Connection, list[str]]:
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
        raise translate_error(error, settings.name) from error
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
        raise translate_error(error, settings.name) from error
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


def _set_up(connection: sqlite3.Connection, settings: Settings, deadline: float) -> list[str]:
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
    if not is_pending(version_of(connection), settings.name, may_migrate=settings.migrate):
        return []
    begin(connection, settings.name, deadline)
    applied = migrate_file(connection, settings.name)
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


_Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Worker:
    """Runs jobs on a thread of its own and hands results back to the loops they came from."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run `job` on the thread; await the future for what it returns."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._jobs.put((job, loop, future))
        return future

    def stop(self) -> None:
        """End the thread after what was submitted before."""
        with self._starting:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._jobs.put(None)
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._carry_out(*job)
            del job  # a result may be large, and the next job may be long in coming

    def _carry_out(self, job: Callable[[], Any], loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
        result, error = None, None
        try:
            result = job()
        except BaseException as problem:  # noqa: BLE001 - it is raised in the waiting caller, not in this thread
            error = problem
        with suppress(RuntimeError):  # the loop was closed meanwhile; nobody is left to tell
            loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return  # cancelled: what was recorded stays recorded
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


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
        if not self._lock.acquire(timeout=_remaining(deadline)):
            message = f"{settings.name} was written by other threads for too long; nothing was recorded. Try again."
            raise WriteLocked(message)
        try:
            if self._writer is None:  # only a holder of the lock closes it, so it stays as it is now
                self.ready(settings, _remaining(deadline))
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
        if not self._lock.acquire(timeout=_remaining(deadline)):
            return
        if not self._guard.acquire(timeout=_remaining(deadline)):
            self._lock.release()
            return
        self._shut = True
        self._change.wait_for(lambda: not self._lent, timeout=_remaining(deadline))
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


def _remaining(deadline: float) -> float:
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


def known_install_id(settings: Settings) -> bytes | None:
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
