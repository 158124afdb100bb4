"""Kill workers of Celery and its broker while tasks pay orders, and check what is left on PostgreSQL.

    python -m tests.kill.celery rabbitmq                     as in `make test`
    python -m tests.kill.celery redis 200 20 --seed 7        kills of workers, of the broker

Run it from the root of the checkout, in the environment that `make test` makes. It starts servers of its own, shows its
progress, prints the report, and exits with 1 if an order was not paid or paid twice, or if a position was never hit.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests.kill.celery.run import CeleryKiller, Plan, demand_each_once
from tests.kill.celery.workers import At
from tests.servers import postgresql, rabbitmq, redis
from tests.servers.server import Server

_STARTS: Final[Mapping[str, Callable[..., AbstractContextManager[Server]]]] = {
    "rabbitmq": rabbitmq.running,
    "redis": redis.running,
}


def _progress(text: str) -> None:
    sys.stderr.write(f"\r{text} ")


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.kill.celery", description=__doc__.partition("\n")[0])
    parser.add_argument("broker", choices=sorted(_STARTS))
    parser.add_argument("workers", type=int, nargs="?", default=len(At))
    parser.add_argument("brokers", type=int, nargs="?", default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    plan = Plan(options.workers, options.brokers, options.seed)
    with (
        tempfile.TemporaryDirectory(prefix="semel-kill-") as folder,
        postgresql.running() as database,
        _STARTS[options.broker](fsync=True) as broker,
    ):
        where = Path(folder), database.new_database(), options.broker, broker
        outcome = CeleryKiller(*where, plan=plan, tell=_progress).run()
    print(f"\n{outcome.text}")
    try:
        demand_each_once(outcome, plan, options.broker)
    except AssertionError as error:
        print(f"FAILED: {str(error).partition(chr(10))[0]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
