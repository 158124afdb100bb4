"""Pieces of work for the tests of the pool: they are found by name in another process."""

import os
import sys
import threading

from semel_lab.simulate.verify import WorkerPool


class Unpicklable(Exception):
    """An error that cannot be sent to another process."""

    def __init__(self, _first: object, _second: object) -> None:
        super().__init__("only one argument")


def process_id() -> int:
    """The process that does the piece."""
    return os.getpid()


def work_for_ever() -> int:
    """Do not end."""
    threading.Event().wait()
    return 0


def die() -> int:
    """End the process in the middle of the piece."""
    os._exit(3)


def fail() -> int:
    """Raise."""
    raise ZeroDivisionError("by nothing")


def fail_unpicklably() -> int:
    """Raise what cannot be sent."""
    raise Unpicklable(1, 2)


def main() -> None:
    """A pool whose two processes do not end: prints their ids once both work."""
    with WorkerPool(2) as pool:
        found = sorted(set(pool.results([process_id] * 20)))
        sys.stdout.write(f"{found}\n")
        sys.stdout.flush()
        list(pool.results([work_for_ever] * 2))


if __name__ == "__main__":
    main()
