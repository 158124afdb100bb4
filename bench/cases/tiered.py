"""A cache in front of PostgreSQL, 64 callers in one process: replays from each tier, and what they cost SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import postgresql_server, redis_server
from bench.callers import alone, event_loop, in_tasks, keys_of
from bench.cases.memory import Prepare
from bench.cases.postgresql_many import CALLERS, REPLAY, SEMEL
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.site import Fact, Site
from bench.statement_log import StatementLog
from bench.workload import once, once_async
from semel import AsyncSemel, Semel
from semel.stores.cache import Cache

KEYS = 500
_CALLS = 20
_PATIENT = 10.0
"""Seconds that Redis may take: on a busy machine a shorter time would have PostgreSQL asked instead."""
_LONG = 3600.0
"""Seconds that an entry of the process lives: a round is about the tier, not about filling it."""
Made = Callable[[Path, str], Cache]


def _in_redis(folder: Path, name: str) -> Cache:
    with redis_server.database(folder, name) as url:  # which lasts as long as the server
        return Cache(url, timeout=_PATIENT)


def _in_process(folder: Path, name: str) -> Cache:
    return Cache(None, local=2 * KEYS, local_for=_LONG)


def _replay(name: str, cache: Made) -> Prepare:
    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        keys = effort.keys(KEYS)
        with postgresql_server.database(folder, name) as url, event_loop() as loop:
            semel = AsyncSemel(url, cache=cache(folder, name))
            call = once_async(semel)
            for _ in range(2):  # runs, and the first replay, which fills
                loop.run(in_tasks(CALLERS, list(range(keys)), call))
            yield lambda calls: loop.run(in_tasks(CALLERS, keys_of(calls, keys), call))
            loop.run(semel.close())

    return prepare


def _facts(folder: Path, effort: Effort) -> Sequence[Fact]:
    """What reaches PostgreSQL when a replay is answered in front of it."""
    facts: list[Fact] = []
    numbers = list(range(100, 100 + _CALLS))
    for tier, made in (("Redis", _in_redis), ("the process", _in_process)):
        with postgresql_server.database(folder, f"tier_{made.__name__}") as url:
            log = StatementLog.of(folder, url)
            with Semel(url, cache=made(folder, f"counted-{made.__name__}")) as semel:
                call = once(semel)
                for _ in range(2):  # runs, and the first replay, which fills
                    alone(numbers, call)
                statements = len(log.during(lambda call=call: alone(numbers, call)))  # type: ignore[misc]
        facts.append(Fact(f"replay from {tier}, sent to PostgreSQL", statements, "statements", 0, "exactly"))
    return facts


@contextmanager
def _both(folder: Path, rows: int) -> Iterator[Site]:
    with postgresql_server.server(folder, rows) as behind, redis_server.server(folder, rows) as front:
        yield Site({**front.settings, **behind.settings}, behind.processes + front.processes)


TIERED = Case(
    "tiered",
    "A cache in front of PostgreSQL, 64 callers in one process: replay",
    (
        Variant("PostgreSQL alone, tasks, replay", SEMEL.replay_async, REPLAY),
        Variant(
            "in-process tier, tasks, replay",
            _replay("tier-process", _in_process),
            REPLAY,
            "PostgreSQL alone, tasks, replay",
            Comparison("faster", 2.0),
        ),
        Variant(
            "Redis in front, tasks, replay",
            _replay("tier-redis", _in_redis),
            REPLAY,
            "PostgreSQL alone, tasks, replay",
            Comparison("faster"),
        ),
    ),
    notes=("Redis in front is there for the load that it takes off PostgreSQL: no statement is sent for a replay.",),
    site=_both,
    facts=_facts,
)
