"""A pool of processes that do pieces of work, for runs that may be interrupted or killed at any moment.

Invariants: when the pool is left, for whatever reason, none of its processes is alive; when this process is killed,
they end by themselves; a Ctrl-C on the terminal is heard by this process alone.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, Self, TypeVar

_JOIN_SECONDS: Final = 30
_T = TypeVar("_T")


class WorkerDied(Exception):
    """A process of the pool ended before its piece of work was done."""


class PieceFailed(Exception):
    """A piece of work raised an error; the message has its traceback."""


class WorkerPool:
    """Spreads pieces of work over processes of its own; used with `with`.

    Args:
        workers: how many processes; with 0 the work is done in this process.
    """

    def __init__(self, workers: int) -> None:
        self._count = workers
        self._workers: dict[Connection, BaseProcess] = {}
        self._is_open = True

    def __enter__(self) -> Self:
        try:
            with _interrupts_deferred():
                for _ in range(self._count):
                    self._start_worker()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill every process of the pool, whatever it does; nothing more is begun."""
        self._is_open = False
        for process in self._workers.values():
            process.kill()
        for connection, process in self._workers.items():
            process.join(_JOIN_SECONDS)
            connection.close()
        self._workers.clear()

    def results(self, pieces: Iterable[Callable[[], _T]]) -> Iterator[_T]:
        """Do the pieces, and yield what each returned as soon as it is done; ends early when the pool is closed.

        Raises:
            PieceFailed: a piece raised an error in a process of the pool.
            WorkerDied: a process ended in the middle of its piece.
        """
        waiting = deque(pieces)
        while self._count == 0 and self._is_open and waiting:
            yield waiting.popleft()()
        busy: list[Connection] = []
        for connection in list(self._workers)[: len(waiting)]:
            connection.send(waiting.popleft())
            busy.append(connection)
        while self._is_open and busy:
            for connection in _readable(busy):
                result: _T = self._receive(connection)
                if waiting:
                    connection.send(waiting.popleft())
                else:
                    busy.remove(connection)
                yield result
                if not self._is_open:
                    return

    def _start_worker(self) -> None:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        # A daemon: should this process end without leaving the pool, the interpreter ends it instead of waiting for it.
        process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._workers[ours] = process
        process.start()
        theirs.close()  # the worker holds the only other end, so that its death is read as the end of the pipe

    def _receive(self, connection: Connection) -> Any:
        try:
            succeeded, content = connection.recv()
        except (EOFError, ConnectionError):
            process = self._workers[connection]
            process.join(_JOIN_SECONDS)
            message = (
                f"A process of the pool ended with exit code {process.exitcode} before its piece of work was done; "
                "the run is not complete. Run it again; with workers=1 less memory is used."
            )
            raise WorkerDied(message) from None
        if not succeeded:
            raise PieceFailed(f"A piece of work failed in a process of the pool; the run is not complete.\n{content}")
        return content


def _readable(connections: list[Connection]) -> list[Connection]:
    return [each for each in wait(connections) if isinstance(each, Connection)]


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Start processes that never hear a SIGINT; one that comes meanwhile strikes here when this is left.

    The signal is blocked for the processes, which inherit that. It is also kept from the main thread, where it would be
    raised even so if another thread took it: a process half started would complain about its missing parent.
    """
    struck: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    is_handled_here = threading.current_thread() is threading.main_thread() and handler is not None
    if is_handled_here:
        signal.signal(signal.SIGINT, lambda number, _frame: struck.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        resource_tracker.ensure_running()  # started later, it would unblock the signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if is_handled_here:
            signal.signal(signal.SIGINT, handler)
        if struck:
            signal.raise_signal(signal.SIGINT)


def _work(connection: Connection) -> None:
    """What a process of the pool does: pieces of work, until the other end of the pipe is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, ConnectionError):
        while True:
            piece: Callable[[], object] = connection.recv()
            connection.send(_outcome(piece))


def _outcome(piece: Callable[[], object]) -> tuple[bool, object]:
    """Whether the piece was done, and what it returned or the text of its traceback: not every error can be sent."""
    try:
        return True, piece()
    except Exception:  # noqa: BLE001 - raised again by the process that asked for the piece
        return False, traceback.format_exc()


def _end_with_parent() -> None:
    """End this process when its parent ends, even in the middle of a piece."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
