"""`python -m tests.hotel.load --database postgresql`: one run with its table, on a server of its own or on yours.

What always holds: a URL has to name an empty database; nothing else on that server is touched. The exit code is 1 if
anything was wrong.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hotel.load.run import Ended, Run
from tests.hotel.load.verdict import complaints, figures
from tests.servers import mariadb, postgresql


def main() -> None:
    """Run once, and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.hotel.load", description=__doc__.partition("\n")[0])
    parser.add_argument("--database", default="postgresql", help="postgresql, mariadb, or the URL of an empty database")
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--overbooking", type=int, default=0)
    options = parser.parse_args()
    began = time.monotonic()
    logging.getLogger("semel").addHandler(logging.NullHandler())  # what is in doubt here is counted at the end

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    with _database(options.database) as url, tempfile.TemporaryDirectory() as folder:
        run = Run(url, Path(folder), users=options.users, overbooking=options.overbooking, say=say)
        ended = asyncio.run(run())
        wrong = complaints(ended)
    _print_table(ended)
    print(figures(ended), *wrong, sep="\n")
    sys.exit(1 if wrong else 0)


@contextmanager
def _database(asked: str) -> Iterator[str]:
    if asked == "postgresql":
        with postgresql.running() as server:
            yield server.new_database()
    elif asked == "mariadb":
        with mariadb.running() as other:
            yield other.new_database()
    else:
        yield asked


def _print_table(ended: Ended) -> None:
    routes = sorted({route for route, _ in ended.ways.answers})
    statuses = sorted({status for _, status in ended.ways.answers})
    print(f"\n{'':18}" + "".join(f"{status:>7}" for status in statuses))
    for route in routes:
        print(f"{route:18}" + "".join(f"{ended.ways.answers[route, status]:7}" for status in statuses))
    for server in ended.servers:
        print(f"server {server.number}: {ended.ways.lost[server.number]} lost{', killed' if server.killed else ''}")
    print()


if __name__ == "__main__":
    main()
