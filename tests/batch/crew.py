"""Workers that die one after the other: `python -m tests.batch.crew URL COMMIT KIND WORKERS LIFE...`.

Each LIFE is `WHERE:AT`, and KIND is that of the engine. So many of them work at the same time, and whoever dies is
followed by the next. Each is forked from this process, which has everything imported and nothing opened: a worker costs
a fork instead of an interpreter. It prints how each ended.
"""

from __future__ import annotations

import os
import sys
import traceback

from semel import Semel
from tests.batch import worker


def main(url: str, commit: str, kind: str, workers: str, *lives: str) -> None:
    """Let all of them live and die."""
    with Semel(url):
        pass  # opens nothing, and has imported what is imported on first use
    waiting, working = list(lives), 0
    while waiting or working:
        if waiting and working < int(workers):
            begin(url, commit, kind, *waiting.pop(0).split(":"))
            working += 1
            continue
        _, status = os.wait()
        working -= 1
        print(os.waitstatus_to_exitcode(status), flush=True)


def begin(url: str, commit: str, kind: str, where: str, at: str) -> None:
    """Begin the life of a worker."""
    if os.fork():
        return
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        worker.main(url, commit, kind, where, at)
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, whoever runs the crew has to see it
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
