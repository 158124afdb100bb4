"""A private, durable PostgreSQL for a case, and databases on it that are filled and analysed before.

What always holds: every commit reaches the disk of the measured folder before it is answered. Each variant has a
database of its own, a copy of one template, so no variant meets the records, dead rows or locks of another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.room import room_in, standing
from bench.site import Site, Unavailable, reported
from bench.workload import once, order
from semel import Semel
from tests.servers import postgresql, programs
from tests.servers.server import Options

TEMPLATE = "filled"
_NOTE = "postgresql.json"
_SHOWN = ("fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers", "server_version")
_DIFFERENT = {
    "digest": "sha256(int8send(n))",
    "nonce": "substr(sha256(int8send(-n)), 1, 16)",
    "value": "'filled-' || n",
    "created_us": "created_us - n",
}
_COLUMNS = "SELECT attname FROM pg_attribute WHERE attnum > 0 AND attrelid = 'semel_record'::regclass"
_AT_ONCE = 500_000
EXPIRED = {"expires_us": "created_us - n"}
"""What makes a record one that is over: the oldest first in line for the sweep."""


@contextmanager
def server(folder: Path, rows: int) -> Iterator[Site]:
    """A server for one case, with a database of so many records to copy."""
    with standing(folder, "postgresql", lambda: _started(folder, rows)) as pid:
        yield Site(_settings(folder), (pid,))


@contextmanager
def _started(folder: Path, rows: int) -> Iterator[int]:
    with room_in(folder) as room:
        try:
            started = postgresql.start(room, Options(fsync=True))
        except programs.ServerMissing as missing:
            raise Unavailable(str(missing)) from None
        note = {
            "url": started.endpoint.url,
            "log": started.endpoint.statement_log,
            "postgres": started.programs["postgres"],
            "environment": started.environment(),
        }
        (folder / _NOTE).write_text(json.dumps(note), encoding="utf-8")
        fill(folder, TEMPLATE, rows)
        yield started.pid


def program(folder: Path, name: str) -> tuple[str, dict[str, str]]:
    """A program that came with the server, and the environment that it needs.

    Raises:
        Unavailable: this installation is without it.
    """
    note = _note(folder)
    path = Path(note["postgres"]).with_name(name)
    if not path.exists():
        raise Unavailable(f"{name} did not come with this PostgreSQL; install it with the server's packages.")
    return str(path), note["environment"]


def address(folder: Path, name: str) -> str:
    """The URL of a database."""
    plain: str = _note(folder)["url"]
    return urlsplit(plain)._replace(path=f"/{name}").geturl()


def log_of(folder: Path) -> Path:
    """Where the server writes down statements, for databases that ask for it."""
    return Path(_note(folder)["log"])


def _note(folder: Path) -> dict[str, Any]:
    note: dict[str, Any] = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
    return note


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements, each by itself; the rows of the last."""
    import psycopg

    rows: list[tuple[Any, ...]] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
            rows = cursor.fetchall() if cursor.description else []
    return rows


def fill(folder: Path, name: str, rows: int, different: Mapping[str, str] | None = None) -> str:
    """A database with one record made by semel and copies of it under other keys; gives its URL."""
    url = address(folder, name)
    execute(address(folder, "postgres"), f"CREATE DATABASE {name}")
    with Semel(url) as semel:
        once(semel)(0)
    names = [row[0] for row in execute(url, _COLUMNS)]
    changed = {**_DIFFERENT, **(different or {})}
    values = ", ".join(changed.get(column, column) for column in names)
    for first in range(1, rows, _AT_ONCE):
        last = min(first + _AT_ONCE, rows) - 1
        execute(
            url,
            f"INSERT INTO semel_record ({', '.join(names)}) SELECT {values} "  # noqa: S608 - names of columns, numbers
            f"FROM (SELECT * FROM semel_record WHERE value = '{order(0)}') AS r, generate_series({first}, {last}) AS n",
        )
    settle(url)
    return url


def settle(url: str) -> None:
    """Let the server do now what it would otherwise do in the middle of a measurement."""
    execute(url, "VACUUM ANALYZE", "CHECKPOINT")


@contextmanager
def database(folder: Path, name: str) -> Iterator[str]:
    """A copy of the template for one variant, dropped when it is done; gives its URL."""
    made = name.replace("-", "_")
    main = address(folder, "postgres")
    execute(main, f"CREATE DATABASE {made} TEMPLATE {TEMPLATE}")
    try:
        yield address(folder, made)
    finally:
        with suppress(Exception):  # the whole server is gone in a moment
            execute(main, f"DROP DATABASE {made} WITH (FORCE)")


def _settings(folder: Path) -> dict[str, object]:
    url = address(folder, TEMPLATE)
    return reported(lambda statement: execute(url, statement)[0][0], "SHOW {}", _SHOWN, "data_directory")
