"""Versions of the schema: plain SQL files, numbered, each applied once and written down in `semel_schema`.

What always holds: all pending migrations are applied in one transaction, under the write lock, by one process however
many try; a database of a newer release is refused and left as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from semel.errors import SchemaOutdated

if TYPE_CHECKING:
    from semel.stores.settings import StoreClock

_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'semel_schema'"
_VERSION = "SELECT max(version) FROM semel_schema"
_APPLIED = "INSERT INTO semel_schema (version, applied_at) VALUES (?, ?)"


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file of `schema/`."""

    version: int
    name: str
    sql: str


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations of this release, in order."""
    folder = files("semel.stores.sqlite").joinpath("schema")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(Migration(int(name[:4]), name, folder.joinpath(name).read_text(encoding="utf-8")) for name in names)


def newest() -> int:
    """The version this release works with."""
    return migrations()[-1].version


def schema_sql(after: int = 0) -> str:
    """The SQL of every migration after a version, as text to read or to review; `migrate` applies the same."""
    return "\n".join(migration.sql for migration in migrations() if migration.version > after)


def version_of(connection: sqlite3.Connection) -> int:
    """The version of a database, 0 where semel never was."""
    if connection.execute(_TABLE).fetchone() is None:
        return 0
    return connection.execute(_VERSION).fetchone()[0] or 0


def check_version(version: int, name: str, *, may_migrate: bool) -> bool:
    """Whether migrations are pending.

    Raises:
        SchemaOutdated: the database is newer than this release, or older and may not be migrated now.
    """
    if version > newest():
        message = (
            f"{name} has schema version {version}, and this release knows {newest()}; nothing ran. "
            f"Use the newer release that wrote it."
        )
        raise SchemaOutdated(message, version=version, known=newest())
    if version < newest() and not may_migrate:
        message = (
            f"{name} has schema version {version}, and this release needs {newest()}; nothing ran. Run `semel migrate`."
        )
        raise SchemaOutdated(message, version=version, known=newest())
    return version < newest()


def apply_pending(connection: sqlite3.Connection, name: str, clock: StoreClock) -> list[int]:
    """Apply what is pending. The caller has begun an IMMEDIATE transaction, and commits it."""
    version = version_of(connection)  # read again under the lock: another process may have been first
    check_version(version, name, may_migrate=True)
    applied = []
    for migration in migrations():
        if migration.version > version:
            for statement in statements_of(migration.sql):
                connection.execute(statement)
            connection.execute(_APPLIED, (migration.version, clock()))
            applied.append(migration.version)
    return applied


def statements_of(script: str) -> Iterator[str]:
    """The single statements of a script; `executescript` would commit the transaction they belong to."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
