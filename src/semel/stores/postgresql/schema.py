"""The schema of the PostgreSQL store: numbered files in two halves, and how they are applied.

What always holds: the `pre` half of a migration is safe while workers of the release before still run, and is one
transaction; the `post` half waits until they are gone. One process applies, the others wait for its lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Final, Literal

from semel.stores.postgresql.dialect import PostgresDialect, table_names
from semel.stores.served.command import Command
from semel.stores.served.settings import Settings

Half = Literal["pre", "post"]

_FOLDER: Final = "schema"
FILLFACTOR: Final = 85
_LOCK: Final = 0x73656D656C  # an advisory lock of migrations


@cache
def _scripts() -> dict[tuple[int, Half], str]:
    folder = files("semel.stores.postgresql").joinpath(_FOLDER)
    found: dict[tuple[int, Half], str] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".pre.sql"):
            found[int(entry.name[:4]), "pre"] = entry.read_text(encoding="utf-8")
        elif entry.name.endswith(".post.sql"):
            found[int(entry.name[:4]), "post"] = entry.read_text(encoding="utf-8")
    return found


def newest() -> int:
    """The version that this release works with."""
    return max(version for version, _ in _scripts())


class PostgresSchema:
    """The schema of one place."""

    def __init__(self, settings: Settings, dialect: PostgresDialect) -> None:
        self._settings = settings
        self._dialect = dialect
        self._names = {**table_names(settings), "fillfactor": str(FILLFACTOR)}

    @property
    def newest(self) -> int:
        """The version that this release works with."""
        return newest()

    def ready(self) -> Command:
        """What a new connection is asked first."""
        return self._dialect.ready()

    def undo(self) -> Command:
        """Leave a transaction that failed."""
        return Command("ROLLBACK")

    def creation(self) -> Sequence[Command]:
        """All of the newest schema, in one transaction."""
        return [
            Command("BEGIN"),
            Command("SELECT pg_advisory_xact_lock(?::bigint)", (_LOCK,)),
            *([Command(f'CREATE SCHEMA IF NOT EXISTS "{self._settings.schema}"')] if self._settings.schema else []),
            *(command for version in range(1, self.newest + 1) for command in self.half(version, "pre")),
            Command("COMMIT"),
        ]

    def half(self, version: int, half: Half) -> Iterator[Command]:
        """The statements of one half of a migration, and the note that it was applied."""
        script = _scripts().get((version, half))
        if script is not None:
            yield from map(Command, statements_of(self.named(script)))
        table = self._names["schema_table"]
        if half == "pre":
            yield Command(f"INSERT INTO {table} (version) VALUES (?::integer)", (version,))
        else:
            yield Command(f"UPDATE {table} SET post = true WHERE version = ?::integer", (version,))

    def named(self, script: str) -> str:
        """A script with the names of this place."""
        for name, text in self._names.items():
            script = script.replace(f"{{{name}}}", text)
        return script


def statements_of(script: str) -> Iterator[str]:
    """The single statements of a script: each ends with a semicolon at the end of a line."""
    statement = ""
    for line in script.splitlines(keepends=True):
        if line.lstrip().startswith("--"):
            continue
        statement += line
        if line.rstrip().endswith(";"):
            yield statement.strip().rstrip(";")
            statement = ""
