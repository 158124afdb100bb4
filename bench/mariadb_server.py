"""A private, durable MariaDB for a case, and databases on it that are filled and analysed before.

What always holds: every commit reaches the disk of the measured folder before it is answered. Each variant has a
database of its own, filled with the same records.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.room import room_in, standing
from bench.site import Site, Unavailable, reported
from bench.workload import once, order
from semel import Semel
from tests.servers import mariadb, programs
from tests.servers.mariadb import MysqlClient
from tests.servers.server import Options

TEMPLATE = "filled"
_NOTE = "mariadb.url"
_DIFFERENT = {
    "digest": "UNHEX(SHA2(s.seq, 256))",
    "nonce": "UNHEX(MD5(s.seq))",
    "value": "CONCAT('filled-', s.seq)",
    "created_us": "r.created_us - s.seq",
}
_SET = {
    "innodb-buffer-pool-size": "512M",
    "socket": "socket",  # in the data folder: the whole path of a socket may not be long, and nobody uses it
}
_SHOWN = ("innodb_flush_log_at_trx_commit", "innodb_doublewrite", "log_bin", "innodb_buffer_pool_size", "version")


@contextmanager
def server(folder: Path, rows: int) -> Iterator[Site]:
    """A server for one case, with a database of so many records to copy."""
    if importlib.util.find_spec("semel.stores.mysql") is None:
        raise Unavailable("There is no MySQL store in this checkout.")
    with standing(folder, "mariadb", lambda: _started(folder, rows)) as pid:
        yield Site(_settings(folder), (pid,))


@contextmanager
def _started(folder: Path, rows: int) -> Iterator[int]:
    with room_in(folder) as room:
        try:
            started = mariadb.start(room, Options(fsync=True, settings=_SET))
        except programs.ServerMissing as missing:
            raise Unavailable(str(missing)) from None
        (folder / _NOTE).write_text(started.endpoint.url, encoding="utf-8")
        _fill(folder, rows)
        yield started.pid


def address(folder: Path, name: str) -> str:
    """The URL of a database."""
    return urlsplit((folder / _NOTE).read_text(encoding="utf-8"))._replace(path=f"/{name}").geturl()


def where(url: str) -> dict[str, Any]:
    """The same as the client libraries want it."""
    at = urlsplit(url)
    return {"host": at.hostname, "port": at.port, "user": at.username, "database": at.path.lstrip("/")}


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements, each by itself; the rows of the last."""
    with MysqlClient().session(url) as session:
        return session(*statements)


def _made(folder: Path, name: str) -> str:
    """A database with semel's tables and one record."""
    execute(address(folder, ""), f"CREATE DATABASE {name}")
    url = address(folder, name)
    with Semel(url) as semel:
        once(semel)(0)
    return url


def _fill(folder: Path, rows: int) -> None:
    url = _made(folder, TEMPLATE)
    names = [row[0] for row in execute(url, "SHOW COLUMNS FROM semel_record")]
    values = ", ".join(_DIFFERENT.get(name, f"r.{name}") for name in names)
    copies = (
        f"INSERT INTO semel_record ({', '.join(names)}) SELECT {values} "  # noqa: S608 - names of columns, a number
        f"FROM semel_record AS r, seq_1_to_{rows - 1} AS s WHERE r.value = '{order(0)}'"
    )
    execute(url, *([copies] if rows > 1 else []), "ANALYZE TABLE semel_record")


@contextmanager
def database(folder: Path, name: str) -> Iterator[str]:
    """A database for one variant, dropped when it is done; gives its URL."""
    made = name.replace("-", "_")
    url = _made(folder, made)
    execute(
        url,
        "DELETE FROM semel_record",
        f"INSERT INTO semel_record SELECT * FROM {TEMPLATE}.semel_record ORDER BY digest",  # noqa: S608 - a name
        "ANALYZE TABLE semel_record",
    )
    try:
        yield url
    finally:
        with suppress(Exception):  # the whole server is gone in a moment
            execute(address(folder, ""), f"DROP DATABASE {made}")


def _settings(folder: Path) -> dict[str, object]:
    url = address(folder, TEMPLATE)
    return reported(lambda statement: execute(url, statement)[0][0], "SELECT @@{}", _SHOWN, "datadir")
