"""HTTP: one uvicorn process under wrk, bare, under semel's middleware and under idemkit's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import postgresql_server, redis_server
from bench.cases import postgresql_peers
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.machine import version_of
from bench.wrk import Kind, serving

Prepare = Callable[[Path, Effort], AbstractContextManager[Measure]]
KEYS = 500
SECONDS = 3.0
FULL = 6_000
"""Calls of a round at full scale: what a variant is asked for says for how long it is put under load."""


@dataclass(frozen=True)
class Served:
    """The store behind the applications: databases on a server, and what idemkit has made and filled there."""

    database: Callable[[Path, str], AbstractContextManager[str]]
    make: Callable[[str], object] = lambda url: None
    fill: Callable[[str, Effort], object] = lambda url, effort: None

    def under(self, which: str, kind: Kind) -> Prepare:
        """One application, and what is asked of it."""

        @contextmanager
        def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
            keys = effort.keys(KEYS)
            with self.database(folder, f"http-{which}-{kind}") as url, ExitStack() as stack:
                if which == "idemkit":
                    self.make(url)
                running = stack.enter_context(serving(which, url, folder))
                if which == "idemkit":
                    running.complete(1)
                    self.fill(url, effort)
                if kind == "replay":
                    running.complete(keys)

                def measure(calls: int) -> float:
                    return calls * running.seconds_per_request(kind, keys=keys, seconds=SECONDS * calls / FULL)

                yield measure

        return prepare

    def beside_idemkit(self, target: Comparison) -> tuple[Variant, ...]:
        """Both middlewares."""
        return (
            Variant("idemkit, first run", self.under("idemkit", "first"), FULL),
            Variant("semel, first run", self.under("semel", "first"), FULL, "idemkit, first run", target),
            Variant("idemkit, replay", self.under("idemkit", "replay"), FULL),
            Variant("semel, replay", self.under("semel", "replay"), FULL, "idemkit, replay", target),
        )


_POSTGRESQL = Served(postgresql_server.database, postgresql_peers.make_table, postgresql_peers.fill)
_REDIS = Served(redis_server.database)

HTTP = Case(
    "http",
    "HTTP on PostgreSQL: uvicorn, one process, wrk with 64 connections",
    (
        Variant("bare app, POST", _POSTGRESQL.under("bare", "first"), FULL),
        Variant(
            "semel, first run", _POSTGRESQL.under("semel", "first"), FULL, "bare app, POST", Comparison("faster", 0.4)
        ),
        Variant(
            "semel, replay", _POSTGRESQL.under("semel", "replay"), FULL, "bare app, POST", Comparison("faster", 0.55)
        ),
        Variant("bare app, GET", _POSTGRESQL.under("bare", "get"), FULL),
        Variant("semel, GET", _POSTGRESQL.under("semel", "get"), FULL, "bare app, GET", Comparison("faster", 0.97)),
    ),
    notes=(
        "The view reads JSON and answers JSON. Every answer is 2xx, or the measurement fails.",
        "PostgreSQL, wrk and uvicorn share the machine: what the store works is taken from the application.",
    ),
    site=postgresql_server.server,
)

HTTP_IDEMKIT = Case(
    "http-idemkit",
    f"HTTP on PostgreSQL under wrk, 64 connections, beside idemkit's middleware {version_of('idemkit') or ''}",
    _POSTGRESQL.beside_idemkit(Comparison("faster", 4.0)),
    needs="idemkit",
    site=postgresql_server.server,
)

HTTP_REDIS = Case(
    "http-redis",
    f"HTTP on Redis under wrk, 64 connections, beside idemkit's middleware {version_of('idemkit') or ''}",
    _REDIS.beside_idemkit(Comparison("faster", 2.5)),
    notes=("Every answer is 2xx, or the measurement fails. Redis, wrk and uvicorn share the machine.",),
    needs="idemkit",
    site=redis_server.server,
)
