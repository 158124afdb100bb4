"""PostgreSQL, 64 callers in one process: semel's lanes against pgbench."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.by_hand_postgresql import Pgbench
from bench.cases.served_many import ServedMany
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.postgresql_server import database, server

CALLERS = 64
FIRST = 1_920
REPLAY = 6_400
SEMEL = ServedMany(database, CALLERS, keys=2_000)
_TARGET = Comparison("faster", 2.0)


@contextmanager
def _pgbench(folder: Path, effort: Effort) -> Iterator[Measure]:
    with database(folder, "many-pgbench") as url:
        yield Pgbench(folder, url, CALLERS).first_runs


POSTGRESQL_64 = Case(
    "postgresql-64",
    "PostgreSQL, 64 callers in one process: a durable claim and a durable completion",
    (
        Variant("pgbench, 64 clients, first run", _pgbench, 1280),
        Variant("semel, threads, first run", SEMEL.first, FIRST, against="pgbench, 64 clients, first run", by=_TARGET),
        Variant(
            "semel, tasks, first run", SEMEL.first_async, FIRST, against="pgbench, 64 clients, first run", by=_TARGET
        ),
        Variant("semel, threads, replay", SEMEL.replay, REPLAY),
        Variant("semel, tasks, replay", SEMEL.replay_async, REPLAY),
    ),
    notes=(
        "pgbench: 64 connections, prepared statements, a plain insert and a plain update, each committed by itself.",
        "semel: threads through psycopg, tasks through asyncpg, at most four connections.",
    ),
    site=server,
)
