"""HTTP on PostgreSQL: one uvicorn process under wrk, bare, under semel's middleware and under idemkit's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from bench.cases import postgresql_peers
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.machine import version_of
from bench.postgresql_server import database, server
from bench.wrk import Kind, serving

Prepare = Callable[[Path, Effort], AbstractContextManager[Measure]]
KEYS = 500
SECONDS = 3.0
FULL = 6_000
"""Calls of a round at full scale: what a variant is asked for says for how long it is put under load."""


def _under(which: str, kind: Kind) -> Prepare:
    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        keys = effort.keys(KEYS)
        with database(folder, f"http-{which}-{kind}") as url, ExitStack() as stack:
            if which == "idemkit":
                postgresql_peers.make_table(url)
            running = stack.enter_context(serving(which, url, folder))
            if kind == "replay" or which == "idemkit":
                running.seconds_per_request("replay", keys=keys, seconds=1.0)  # completes the keys
            if which == "idemkit":
                postgresql_peers.fill(url, effort)

            def measure(calls: int) -> float:
                return calls * running.seconds_per_request(kind, keys=keys, seconds=SECONDS * calls / FULL)

            yield measure

    return prepare


HTTP = Case(
    "http",
    "HTTP on PostgreSQL: uvicorn, one process, wrk with 64 connections",
    (
        Variant("bare app, POST", _under("bare", "first"), FULL),
        Variant("semel, first run", _under("semel", "first"), FULL, "bare app, POST", Comparison("faster", 0.4)),
        Variant("semel, replay", _under("semel", "replay"), FULL, "bare app, POST", Comparison("faster", 0.55)),
        Variant("bare app, GET", _under("bare", "get"), FULL),
        Variant("semel, GET", _under("semel", "get"), FULL, "bare app, GET", Comparison("faster", 0.97)),
    ),
    notes=(
        "The view reads JSON and answers JSON. Every answer is 2xx, or the measurement fails.",
        "PostgreSQL, wrk and uvicorn share the machine: what the store works is taken from the application.",
    ),
    site=server,
)

HTTP_IDEMKIT = Case(
    "http-idemkit",
    f"HTTP on PostgreSQL under wrk, 64 connections, beside idemkit's middleware {version_of('idemkit') or ''}",
    (
        Variant("idemkit, first run", _under("idemkit", "first"), FULL),
        Variant("semel, first run", _under("semel", "first"), FULL, "idemkit, first run", Comparison("faster", 4.0)),
        Variant("idemkit, replay", _under("idemkit", "replay"), FULL),
        Variant("semel, replay", _under("semel", "replay"), FULL, "idemkit, replay", Comparison("faster", 4.0)),
    ),
    needs="idemkit",
    site=server,
)
