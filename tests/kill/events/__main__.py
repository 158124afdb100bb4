"""Kill consumers, relays and the broker between an outbox and two inboxes on PostgreSQL, and check what is left.

    python -m tests.kill.events rabbitmq                                   as in `make test`
    python -m tests.kill.events nats 1000 200 50 --seed 7                  kills of consumers, of relays, of the broker

Run it from the root of the checkout, in the environment that `make test` makes. It starts servers of its own, shows its
progress, prints the report, and exits with 1 if an event was lost or had its effect twice, or if a position was never
hit.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final

from tests.kill.events.places import FASTSTREAM
from tests.kill.events.run import SMALL, EventKiller, Plan, demand_each_once
from tests.kill.outages import Broker
from tests.servers import nats, postgresql, rabbitmq, redis, sqs

_STARTS: Final[Mapping[str, Callable[[], AbstractContextManager[Broker]]]] = {
    "rabbitmq": partial(rabbitmq.running, fsync=True),
    "nats": partial(nats.running, fsync=True),
    "redis": partial(redis.running, fsync=True),
    "sqs": sqs.cut_off,
}


def _progress(text: str) -> None:
    sys.stderr.write(f"\r{text} ")


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.kill.events", description=__doc__.partition("\n")[0])
    parser.add_argument("broker", choices=[*sorted(_STARTS), *(f"{FASTSTREAM}{kind}" for kind in sorted(_STARTS))])
    parser.add_argument("consumers", type=int, nargs="?", default=SMALL.consumers)
    parser.add_argument("relays", type=int, nargs="?", default=SMALL.relays)
    parser.add_argument("brokers", type=int, nargs="?", default=SMALL.brokers)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    plan = Plan(options.consumers, options.relays, options.brokers, options.seed)
    with (
        tempfile.TemporaryDirectory(prefix="semel-kill-") as folder,
        postgresql.running() as database,
        _STARTS[options.broker.removeprefix(FASTSTREAM)]() as broker,
    ):
        where = Path(folder), database.new_database(), options.broker, broker
        outcome = EventKiller(*where, plan=plan, tell=_progress).run()
    print(f"\n{outcome.text}")
    try:
        demand_each_once(outcome, plan)
    except AssertionError as error:
        print(f"FAILED: {str(error).partition(chr(10))[0]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
