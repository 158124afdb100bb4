"""The schema of the MySQL store: numbered files in two halves, and how they are applied.

What always holds: the `pre` half of a migration is safe while workers of the release before still run; the `post` half
waits until they are gone. The server ends a transaction at every CREATE, so a migration is not one: its statements may
all be run again, the note that it was applied comes last, and one process applies while the others wait for its lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from semel.stores.mysql.dialect import MysqlDialect, table_names
from semel.stores.mysql.search import searching
from semel.stores.served.command import Command
from semel.stores.served.migrate import Building, Half
from semel.stores.served.schema import RECORDS, ServedSchema
from semel.stores.served.scripts import Scripts, scripts_of, statements_of, text_of
from semel.stores.served.settings import Settings

_DIGITS: Final = "SELECT 0 AS d" + "".join(f" UNION ALL SELECT {digit}" for digit in range(1, 16))
_LOCK: Final = "CONCAT('semel.', LEFT(SHA2(CONCAT(COALESCE({database}, DATABASE()), '.{prefix}'), 256), 40))"
_NOTE: Final = (
    "INSERT INTO {{schema_table}} (version, oldest, post) SELECT n.version, {oldest}, {post} "
    "FROM (SELECT {version} AS version) AS n "
    "WHERE NOT EXISTS (SELECT 1 FROM {{schema_table}} AS s WHERE s.version = n.version)"
)


def scripts() -> Scripts:
    """The files of this release."""
    return scripts_of("semel.stores.mysql")


class MysqlSchema(ServedSchema):
    """The schema of one place."""

    def __init__(self, settings: Settings, dialect: MysqlDialect, given: Scripts | None = None) -> None:
        names = {**table_names(settings), "digits": _DIGITS}
        super().__init__(scripts() if given is None else given, names, dialect.ready(), _NOTE)
        self._settings = settings
        database = f"'{settings.schema}'" if settings.schema else "NULL"
        self._lock = _LOCK.format(database=database, prefix=settings.prefix)

    def undo(self) -> Command:
        """Leave a transaction that failed, and the lock that its commands took; what was created stays."""
        return Command("ROLLBACK", (), self.unlock())

    def lock(self) -> Command:
        """Try to be the one who migrates; one row says whether it was possible.

        Whoever has it gets it again, and lets go of it as often.
        """
        return Command(f"SELECT GET_LOCK({self._lock}, 0)")

    def pause(self) -> Command:
        """Wait a moment before trying again."""
        return Command("SELECT SLEEP(0.1)")

    def unlock(self) -> Command:
        """Let the next one migrate."""
        return Command(f"SELECT RELEASE_LOCK({self._lock})")

    def creation(self, partitions: int = 0) -> Sequence[Command]:
        """All of the newest schema where there is none."""
        return [
            Command(f"SELECT GET_LOCK({self._lock}, 10)"),
            *map(Command, self._creating(partitions)),
            self.unlock(),
        ]

    def creation_sql(self, partitions: int = 0) -> str:
        """The same as text."""
        return text_of(self._creating(partitions))

    def half(self, version: int, half: Half) -> Sequence[Command]:
        """One half of a migration, and the note that it was applied."""
        return [self.lock(), *map(Command, self._half(version, half)), self.unlock()]

    def search(self) -> Building:
        """Make the indexes for searching that are missing."""
        return searching(self._settings, self)

    def _creating(self, partitions: int = 0) -> Iterator[str]:
        if self._settings.schema:
            yield f"CREATE DATABASE IF NOT EXISTS `{self._settings.schema}`"
        for version in range(1, self.newest + 1):
            yield from self._half(version, "pre", partitions if version == RECORDS else 0)
            if self.has_post(version):
                yield from self._half(version, "post")

    def _half(self, version: int, half: Half, partitions: int = 0) -> Iterator[str]:
        yield from statements_of(self._named(self._scripts.get((version, half), "")))
        if partitions:
            # Not part of the CREATE, which does nothing where an interrupted run has left the table.
            yield self._named(f"ALTER TABLE {{record_table}} PARTITION BY KEY (digest) PARTITIONS {partitions}")
        if half == "pre":
            yield self._note(version)
        else:
            yield self._noted_post(version)
