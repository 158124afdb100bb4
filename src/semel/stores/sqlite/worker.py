"""The writer thread: rounds of event loops run on it, one after the other, so that no loop waits for the disk.

What always holds: one thread per database and process, started on first use. A caller who is gone (cancelled, or its
loop closed) does not disturb the round: it goes on and its result is dropped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
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
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever waits, not to this thread
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
