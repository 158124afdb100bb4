"""The zygote: a process that has everything imported and nothing opened, and forks workers on demand.

A worker costs a fork (some 2 ms) instead of an interpreter (some 300 ms). It reads orders from its standard input:
`spawn SLOT LIFE` answers with a process id, `reap PID` waits for that process and answers with its exit status. What
always holds: nobody is reaped unasked, so an id that the killer knows still names the process it meant; when the killer
is gone, everybody ends. Every second worker asks from threads, the others from tasks of an event loop.
"""

import asyncio
import functools
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from semel import AsyncSemel, Semel
from semel.core.record import Lease
from semel.engine.engine import engine_of
from tests.kill.asker import Asker
from tests.kill.board import Board
from tests.kill.grounds.ground import Ground, ground_of
from tests.kill.ledger import ANSWERS, Ledger, Line
from tests.kill.positions import Mode
from tests.kill.tasks import ask_in_task
from tests.kill.threads import ask_in_thread
from tests.kill.watched import WatchedStore
from tests.kill.watched_tiers import WatchedTiers

BOARD, ERRORS = "board", "errors.txt"
ASKERS = 2
"""How many threads or tasks of a worker ask, so that a lane has something to gather."""

Watched = WatchedStore | WatchedTiers


def main(folder: Path, ground: Ground, processes: int, keys: int) -> None:
    """Serve until the input ends."""
    board = Board(folder / BOARD, askers=processes * ASKERS, keys=keys)
    logging.basicConfig(level=logging.ERROR, handlers=[logging.FileHandler(folder / ERRORS, delay=True)])
    _store(folder, ground, 0)  # opens nothing, and has imported what is imported on first use
    children: set[int] = set()
    try:
        for order in sys.stdin:
            word, *numbers = order.split()
            first, *rest = map(int, numbers)
            if word == "spawn":
                child = os.fork()
                if child == 0:
                    _worker(folder, ground, board, first, rest[0])
                children.add(child)
                print(child, flush=True)
            else:
                _, status = os.waitpid(first, 0)
                children.discard(first)
                print(status, flush=True)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def _store(folder: Path, ground: Ground, life: int) -> Watched:
    note_return = functools.partial(_note_return, Ledger(folder / ANSWERS, durable=False), life)
    watched = WatchedStore(ground.store(), note_return, commits_rounds=ground.commits_rounds)
    return watched if ground.cache is None else WatchedTiers(watched, ground.cache)


def _note_return(ledger: Ledger, life: int, lease: Lease) -> None:
    """A claim that came too late is about to be given back."""
    key, mode = int(lease.key.value), Mode[lease.key.operation]
    ledger.append(Line("returned", mode, key, 0, lease.fence, 0, 0, life, 0, 0, time.monotonic_ns() // 1000, ""))


def _worker(folder: Path, ground: Ground, board: Board, process: int, life: int) -> None:
    """The life of a worker, up to its end."""
    status = 1
    try:
        parent = os.getppid()
        askers = [Asker(folder, board, process * ASKERS + turn, life, ground.modes) for turn in range(ASKERS)]
        store = _store(folder, ground, life)
        if process % 2:
            asyncio.run(_ask_in_tasks(askers, store, ground, lambda: os.getppid() != parent))
        else:
            _ask_in_threads(askers, store, ground, lambda: os.getppid() != parent)
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the killer has to see it
        with (folder / ERRORS).open("a") as file:
            file.write(f"worker {life}:\n{traceback.format_exc()}\n")
    finally:
        os._exit(status)


async def _ask_in_tasks(askers: list[Asker], store: Watched, ground: Ground, orphaned: Callable[[], bool]) -> None:
    async with AsyncSemel(store) as semel, asyncio.TaskGroup() as tasks:
        engine_of(semel).new_nonce = store.new_nonce
        for asker in askers:
            tasks.create_task(ask_in_task(asker, semel, ground, orphaned))


def _ask_in_threads(askers: list[Asker], store: Watched, ground: Ground, orphaned: Callable[[], bool]) -> None:
    problems: list[BaseException] = []

    def ask(asker: Asker) -> None:
        try:
            ask_in_thread(asker, semel, ground, lambda: bool(problems) or orphaned())
        except BaseException as problem:  # noqa: BLE001 - raised again where it can be seen
            problems.append(problem)

    with Semel(store) as semel:
        engine_of(semel).new_nonce = store.new_nonce
        threads = [threading.Thread(target=ask, args=[asker]) for asker in askers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for problem in problems:
        raise problem


if __name__ == "__main__":
    main(Path(sys.argv[1]), ground_of(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
