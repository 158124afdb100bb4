"""PostgreSQL, 64 callers in one process: semel beside idemkit on its own PostgreSQL backend, at function level."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.callers import event_loop
from bench.cases.postgresql_many import CALLERS, FIRST, REPLAY, SEMEL
from bench.cases.served_idemkit import Fill, ServedIdemkit
from bench.harness import Case, Comparison, Effort
from bench.machine import version_of
from bench.postgresql_server import database, execute, server, settle

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
def _backend(folder: Path, effort: Effort, name: str) -> Iterator[tuple[Any, Fill]]:
    """The backend of idemkit on a database of its own, with its table."""
    from idemkit.backends.postgres import PostgresBackend

    with database(folder, name) as url:
        make_table(url)
        yield PostgresBackend.from_url(url, max_size=POOL), lambda: fill(url, effort)


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


_IDEMKIT = ServedIdemkit(_backend, CALLERS, keys=500)

POSTGRESQL_IDEMKIT = Case(
    "postgresql-idemkit",
    f"PostgreSQL, 64 callers in one process, beside idemkit {version_of('idemkit') or '(not installed)'}",
    _IDEMKIT.variants(SEMEL, (FIRST, REPLAY), _TARGET, _TARGET),
    notes=(
        f"idemkit: its own decorator and PostgreSQL backend, filled as semel's, {POOL} connections (its default).",
        "idemkit's sync decorator runs its async core on a loop in another thread.",
    ),
    needs="idemkit",
    site=server,
)
