"""The schema of an SQLite file, for the shared migration runner.

- All pending migrations are applied in one transaction, under the write lock, by one process however many try.
- A database of a newer release is refused and left as it is.
- A migration has no second half, because every worker on a file is on the same machine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Final

from semel.core.flow import run
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.migrations import Scripts, SqlSchema, apply_pending, check_version, scripts_of, text_of
from semel.stores.sqlite.errors import translate_error

_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'semel_schema'"
_VERSION: Final = "SELECT max(version) FROM semel_schema"
_NOTE: Final = (
    "INSERT INTO {{schema_table}} (version, applied_at) "
    "VALUES ({version}, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))"
)


class SqliteSchema(SqlSchema):
    """The schema of a file. The caller holds the write lock, and commits."""

    def __init__(self, given: Scripts | None = None) -> None:
        scripts = scripts_of("semel.stores.sqlite") if given is None else given
        super().__init__(scripts, {"schema_table": "semel_schema"}, Command(_VERSION), _NOTE)

    def applied(self) -> Command:
        """Rows of version, and that there is nothing left of it."""
        return Command("SELECT version, 1 FROM semel_schema ORDER BY version")

    def creation(self, partitions: int = 0) -> Sequence[Command]:
        """All of the newest schema where there is none."""
        del partitions  # of a file there is one part
        return list(map(Command, self._creating()))

    def creation_sql(self, partitions: int = 0) -> str:
        """The same as text."""
        del partitions
        return text_of(["BEGIN IMMEDIATE", *self._creating(), "COMMIT"])

    def pending_sql(self, version: int) -> str:
        """What a file of that version still needs, as text."""
        if version == 0:
            return self.creation_sql()
        return "".join(self.half_sql(later, "pre") for later in range(version + 1, self.newest + 1))


@cache
def schema() -> SqliteSchema:
    """The schema of this release."""
    return SqliteSchema()


def version_of(connection: sqlite3.Connection) -> int:
    """The version of a database, 0 where semel never was."""
    if connection.execute(_TABLE).fetchone() is None:
        return 0
    return connection.execute(_VERSION).fetchone()[0] or 0


def is_pending(version: int, name: str, *, may_migrate: bool) -> bool:
    """Whether migrations are pending that may be applied now.

    Raises:
        SchemaOutdated: the database is newer than this release, or older and may not be migrated now.
    """
    if version < schema().newest and may_migrate:
        return True
    check_version(version, schema().newest, name)
    return False


def migrate_file(connection: sqlite3.Connection, name: str) -> list[str]:
    """Apply what is pending; answers what was done. The caller has begun an IMMEDIATE transaction, and commits it."""
    # Asked again under the lock: another process may have been first.
    is_pending(version_of(connection), name, may_migrate=True)

    def execute(command: Command) -> list[Row]:
        try:
            return connection.execute(command.text, command.values).fetchall()
        except sqlite3.Error as error:
            raise translate_error(error, name) from error

    return run(apply_pending(schema(), None, 0), execute)
