"""How often a call goes to the server and back, as the servers themselves count it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import redis_server
from bench.callers import alone, alone_async, event_loop
from bench.command_log import sent_during
from bench.harness import Case, Effort
from bench.postgresql_server import database, server
from bench.site import Fact
from bench.statement_log import StatementLog
from bench.workload import once, once_async
from semel import AsyncSemel, Semel

_CALLS = 20
_WARM = list(range(1, 21))
_NUMBERS = list(range(100, 100 + _CALLS))
Work = Callable[[list[int]], object]


@contextmanager
def _sync(url: str) -> Iterator[Work]:
    with Semel(url) as semel:
        call = once(semel)
        yield lambda numbers: alone(numbers, call)


@contextmanager
def _async(url: str) -> Iterator[Work]:
    with event_loop() as loop:
        semel = AsyncSemel(url)
        call = once_async(semel)
        yield lambda numbers: loop.run(alone_async(numbers, call))
        loop.run(semel.close())


def _statements(folder: Path, effort: Effort) -> Sequence[Fact]:
    facts: list[Fact] = []
    for colour, opened in (("psycopg", _sync), ("asyncpg", _async)):
        with database(folder, f"trips_{colour}") as url:
            log = StatementLog.of(folder, url)
            with opened(url) as work:
                work(_WARM)  # until everything is opened and prepared
                first, again = (len(log.during(lambda: work(_NUMBERS))) / _CALLS for _ in range(2))
        facts.append(Fact(f"PostgreSQL, {colour}, first run", first, "statements a call", 2, "exactly"))
        facts.append(Fact(f"PostgreSQL, {colour}, replay", again, "statements a call", 1, "exactly"))
    return facts


def _commands(folder: Path, effort: Effort) -> Sequence[Fact]:
    facts: list[Fact] = []
    for colour, opened in (("threads", _sync), ("tasks", _async)):
        with redis_server.database(folder, f"trips-{colour}") as url, opened(url) as work:
            work(_WARM)
            at = redis_server.address(folder)
            first, again = (len(sent_during(at, lambda: work(_NUMBERS))) / _CALLS for _ in range(2))
        facts.append(Fact(f"Redis, {colour}, first run", first, "commands a call", 2, "exactly"))
        facts.append(Fact(f"Redis, {colour}, replay", again, "commands a call", 1, "exactly"))
    return facts


ROUND_TRIPS = Case(
    "round-trips",
    "Round trips of a call, counted in the server's log of statements",
    notes=("One caller. Each statement is sent, carried out, committed and answered by itself.",),
    site=server,
    facts=_statements,
)

REDIS_ROUND_TRIPS = Case(
    "redis-round-trips",
    "Round trips of a call, counted by the server's MONITOR",
    notes=("One caller. Each command is sent, carried out and answered by itself.",),
    site=redis_server.server,
    facts=_commands,
)
