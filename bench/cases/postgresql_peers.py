"""PostgreSQL, 64 callers in one process: semel beside idemkit on its own PostgreSQL backend, at function level."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.callers import Numbers, event_loop, in_tasks, in_threads, keys_of
from bench.cases.peers import decorated
from bench.cases.postgresql_many import CALLERS, FIRST, REPLAY, SEMEL
from bench.harness import Case, Comparison, Effort, Measure, Variant
from bench.machine import version_of
from bench.postgresql_server import database, execute, server, settle

KEYS = 500
POOL = 20
_TARGET = Comparison("faster", 10.0)
_COPIES = """
INSERT INTO idemkit_records (effective_key, state, fingerprint, fingerprint_version, claim_token, claimed_at,
    lease_until, completed_at, response_status, response_headers, response_body)
SELECT encode(sha256(int8send(n)), 'hex'), state, fingerprint, fingerprint_version, claim_token, claimed_at,
    lease_until, completed_at, response_status, response_headers, response_body
FROM (SELECT * FROM idemkit_records LIMIT 1) AS r, generate_series(1, {rows}) AS n
"""


@contextmanager
def _backend(folder: Path, effort: Effort, name: str) -> Iterator[Any]:
    """The backend of idemkit on a database of its own, with its table; filled by whoever has made the first record."""
    from idemkit.backends.postgres import PostgresBackend

    with database(folder, name) as url:
        make_table(url)
        yield PostgresBackend.from_url(url, max_size=POOL), url


def make_table(url: str) -> None:
    """The table of idemkit instead of semel's."""
    from idemkit.backends.postgres import init_pg

    execute(url, "DROP TABLE semel_record")
    with event_loop() as loop:
        loop.run(init_pg(url))


def fill(url: str, effort: Effort) -> None:
    """Copies of the record that is there, as many as the other tables hold."""
    execute(url, _COPIES.format(rows=effort.rows))
    settle(url)


@contextmanager
def _sync(folder: Path, effort: Effort, name: str) -> Iterator[Callable[..., Any]]:
    """Calls that block; idemkit carries them out on a loop of its own in another thread."""
    from idemkit.core.sync_bridge import run_sync

    with _backend(folder, effort, name) as (backend, url):
        call = decorated(backend, blocking=True)
        call(-1)
        fill(url, effort)
        yield call
        run_sync(backend.aclose())


@contextmanager
def _first(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    with _sync(folder, effort, "idemkit-first") as call:
        yield lambda calls: in_threads(CALLERS, numbers.take(calls), call)


@contextmanager
def _replay(folder: Path, effort: Effort) -> Iterator[Measure]:
    keys = effort.keys(KEYS)
    with _sync(folder, effort, "idemkit-replay") as call:
        in_threads(CALLERS, list(range(keys)), call)
        yield lambda calls: in_threads(CALLERS, keys_of(calls, keys), call)


@contextmanager
def _first_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    numbers = Numbers()
    with _backend(folder, effort, "idemkit-first-async") as (backend, url), event_loop() as loop:
        call = decorated(backend, blocking=False)
        loop.run(in_tasks(1, [-1], call))
        fill(url, effort)
        yield lambda calls: loop.run(in_tasks(CALLERS, numbers.take(calls), call))
        loop.run(backend.aclose())


@contextmanager
def _replay_async(folder: Path, effort: Effort) -> Iterator[Measure]:
    keys = effort.keys(KEYS)
    with _backend(folder, effort, "idemkit-replay-async") as (backend, url), event_loop() as loop:
        call = decorated(backend, blocking=False)
        loop.run(in_tasks(CALLERS, list(range(keys)), call))
        fill(url, effort)
        yield lambda calls: loop.run(in_tasks(CALLERS, keys_of(calls, keys), call))
        loop.run(backend.aclose())


POSTGRESQL_IDEMKIT = Case(
    "postgresql-idemkit",
    f"PostgreSQL, 64 callers in one process, beside idemkit {version_of('idemkit') or '(not installed)'}",
    (
        Variant("idemkit, threads, first run", _first, 320),
        Variant("semel, threads, first run", SEMEL.first, FIRST, against="idemkit, threads, first run", by=_TARGET),
        Variant("idemkit, threads, replay", _replay, 640),
        Variant("semel, threads, replay", SEMEL.replay, REPLAY, against="idemkit, threads, replay", by=_TARGET),
        Variant("idemkit, tasks, first run", _first_async, 320),
        Variant("semel, tasks, first run", SEMEL.first_async, FIRST, against="idemkit, tasks, first run", by=_TARGET),
        Variant("idemkit, tasks, replay", _replay_async, 640),
        Variant("semel, tasks, replay", SEMEL.replay_async, REPLAY, against="idemkit, tasks, replay", by=_TARGET),
    ),
    notes=(
        f"idemkit: its own decorator and PostgreSQL backend, filled as semel's, {POOL} connections (its default).",
        "idemkit's sync decorator runs its async core on a loop in another thread.",
    ),
    needs="idemkit",
    site=server,
)
