"""What a PostgreSQL server itself says was sent to it.

What always holds: a statement is in the log before it is answered, so whatever a call sent can be read when it returns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from bench.postgresql_server import execute, log_of

_LINE = re.compile(r"^\S+ \S+ \S+ \[\d+\] (\S+) LOG:  (?:statement|execute [^:]*): (.*)")


class StatementLog:
    """The statements of one database, from the next connection on."""

    def __init__(self, path: Path, database: str) -> None:
        self._path = path
        self._database = database

    @staticmethod
    def of(folder: Path, url: str) -> StatementLog:
        """Have the server write down what is sent to the database at `url`."""
        database = urlsplit(url).path.lstrip("/")
        execute(url, f"ALTER DATABASE {database} SET log_statement = 'all'")
        return StatementLog(log_of(folder), database)

    def during(self, work: Callable[[], object]) -> list[str]:
        """The statements that were sent while `work` ran, each by its first line."""
        before = self._path.stat().st_size
        work()
        with self._path.open("rb") as file:
            file.seek(before)
            lines = file.read().decode(errors="replace").splitlines()
        found = (_LINE.match(line) for line in lines)
        return [hit[2] for hit in found if hit is not None and hit[1] == self._database]
