"""A pool of processes that repeats tasks by design, and a task that makes an item of a batch safe in it.

Every task is submitted several times, and all that has not ended is submitted again when a process dies. Each task
writes a row in the transaction of its item's record.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from functools import cache
from multiprocessing import get_context
from typing import Any

from semel import Semel
from semel.batch import Batch, Batches, Item, item
from tests.batch.worker import INSERT, committing, connect

Place = tuple[str, str]
"""The id of an item, and at which point of its task a process dies."""


@cache
def batch_at(url: str) -> Batch[Semel]:
    """The batch, found once in each process."""
    return Batches(Semel(url)).get("pool")


class Deaths:
    """Kills this process at each of these places, unless one has died there before."""

    def __init__(self, folder: str, places: Sequence[Place]) -> None:
        self._folder = folder
        self._places = places

    def meet(self, id_: str, where: str) -> None:
        """Die here, if nobody has."""
        if (id_, where) not in self._places:
            return
        try:
            os.close(os.open(f"{self._folder}/{id_}-{where}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def pay_item(url: str, id_: str, folder: str, places: Sequence[Place]) -> Any:
    """The task."""
    deaths = Deaths(folder, places)

    @contextmanager
    def transaction() -> Iterator[Any]:
        with closing(connect(url)) as connection:
            with committing(connection):
                yield connection
            deaths.meet(id_, "committed")

    def pay(item: Item, session: Any) -> str:
        deaths.meet(item.id, "before")
        session.cursor().execute(INSERT.format(item.id))
        deaths.meet(item.id, "after")
        return f"paid {item.id} by {os.getpid()}"

    batch = batch_at(url)
    return item(batch, id_, transaction=transaction, lease_for=1, wait_for=60)(pay)()


def run_repeating(
    arguments: Callable[[str], tuple[Any, ...]], ids: Sequence[str], *, times: int
) -> tuple[dict[str, set[Any]], int]:
    """Run the task for each id so many times; gives all that they gave, and how often the pool broke."""
    processes = get_context("forkserver")
    processes.set_forkserver_preload([__name__])  # else each process would import all of it again
    todo = [id_ for id_ in ids for _ in range(times)]
    given: dict[str, set[Any]] = {id_: set() for id_ in ids}
    broken = 0
    while todo:
        with ProcessPoolExecutor(2, mp_context=processes) as pool:
            futures = [(id_, pool.submit(pay_item, *arguments(id_))) for id_ in todo]
            left = []
            for id_, future in futures:
                try:
                    given[id_].add(future.result())
                except BrokenProcessPool:
                    left.append(id_)
        broken += bool(left)
        todo = left
    return given, broken
