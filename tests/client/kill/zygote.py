"""The zygote: a process that has everything imported and nothing opened, and forks lives on demand.

It reads orders from its standard input: a task, which it answers with a process id, or such an id, for which it waits
and answers with the exit status. What always holds: nobody is reaped unasked, so an id that the killer knows still
names the process it meant; when the killer is gone, everybody ends.
"""

import importlib
import logging
import os
import signal
import socket
import sys
import traceback

from tests.client.kill.life import live
from tests.client.kill.task import Task

_LOADED_ON_FIRST_USE = ("httpcore", "anyio._backends._asyncio", "anyio.streams.tls", "anyio.to_thread")
"""Imported here, once, instead of in every life."""


def main() -> None:
    """Serve until the input ends."""
    children: set[int] = set()
    logging.basicConfig(level=logging.ERROR)  # that a life is in doubt is nothing to be warned of here
    for name in _LOADED_ON_FIRST_USE:
        importlib.import_module(name)
    try:
        for order in sys.stdin:
            if order.startswith("{"):
                children.add(child := _fork(Task.of(order)))
                print(child, flush=True)
            else:
                child, status = os.waitpid(int(order), 0)
                children.discard(child)
                print(status, flush=True)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def _fork(task: Task) -> int:
    """The id of a new life. Its line is open before it begins, so that its end can always be heard."""
    with socket.create_connection(("127.0.0.1", task.line)) as line:
        line.sendall(f"{task.name}\n".encode())
        child = os.fork()
        if child == 0:
            status = 1
            try:
                live(task, line)
                status = 0
            except BaseException:  # noqa: BLE001 - a child must not go on as a second zygote
                traceback.print_exc()
            finally:
                os._exit(status)
    return child


if __name__ == "__main__":
    main()
