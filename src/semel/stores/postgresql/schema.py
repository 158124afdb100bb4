"""The schema of the PostgreSQL store: numbered files in two halves, and how they are applied.

What always holds: the `pre` half of a migration is safe while workers of the release before still run, and is one
transaction; the `post` half waits until they are gone, and each of its statements can be repeated. One process applies,
the others wait for its lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from semel.stores.postgresql.dialect import PostgresDialect, table_names
from semel.stores.postgresql.search import searching
from semel.stores.served.command import Command
from semel.stores.served.migrate import Building, Half
from semel.stores.served.schema import RECORDS, ServedSchema
from semel.stores.served.scripts import Scripts, scripts_of, statements_of, text_of
from semel.stores.served.settings import Settings

FILLFACTOR: Final = 100
_LOCK: Final = 0x73656D656C  # an advisory lock of migrations
_STORAGE: Final = (
    "WITH (fillfactor = {fillfactor}, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)"
)
_NOTE: Final = "INSERT INTO {{schema_table}} (version, oldest, post) VALUES ({version}, {oldest}, {post})"


def scripts() -> Scripts:
    """The files of this release."""
    return scripts_of("semel.stores.postgresql")


class PostgresSchema(ServedSchema):
    """The schema of one place."""

    def __init__(self, settings: Settings, dialect: PostgresDialect, given: Scripts | None = None) -> None:
        names = {"storage": _STORAGE, **table_names(settings), "fillfactor": str(FILLFACTOR)}
        super().__init__(scripts() if given is None else given, names, dialect.ready(), _NOTE)
        self._settings = settings

    def undo(self) -> Command:
        """Leave a transaction that failed."""
        return Command("ROLLBACK")

    def lock(self) -> Command:
        """Try to be the one who migrates; one row says whether it was possible.

        Waiting inside the statement would hold a snapshot, and an index that is built concurrently waits for those.
        """
        return Command("SELECT pg_try_advisory_lock(?::bigint)", (_LOCK,))

    def pause(self) -> Command:
        """Wait a moment before trying again."""
        return Command("SELECT pg_sleep(0.1)")

    def unlock(self) -> Command:
        """Let the next one migrate."""
        return Command("SELECT pg_advisory_unlock(?::bigint)", (_LOCK,))

    def creation(self, partitions: int = 0) -> Sequence[Command]:
        """All of the newest schema where there is none: nobody works there, so it is one transaction."""
        return [
            Command("BEGIN"),
            # Whoever comes second waits as long as a statement may: `lock_timeout` is meant for rows, and a busy server
            # takes longer than that to make the tables.
            Command("SET LOCAL lock_timeout = 0"),
            Command("SELECT pg_advisory_xact_lock(?::bigint)", (_LOCK,)),
            *map(Command, self._creating(partitions)),
            Command("COMMIT"),
        ]

    def creation_sql(self, partitions: int = 0) -> str:
        """The same as text."""
        return text_of(["BEGIN", *self._creating(partitions), "COMMIT"])

    def half(self, version: int, half: Half) -> Sequence[Command]:
        """One half of a migration, and the note that it was applied."""
        return list(map(Command, self._half(version, half)))

    def search(self) -> Building:
        """Make the indexes for searching that are missing."""
        return searching(self._settings)

    def _creating(self, partitions: int) -> Iterator[str]:
        if self._settings.schema:
            yield f'CREATE SCHEMA IF NOT EXISTS "{self._settings.schema}"'
        for version in range(1, self.newest + 1):
            yield from self._statements(version, "pre", partitions)
            if version == RECORDS:
                yield from self._partitions(partitions)
            yield self._note(version)
            for statement in self._statements(version, "post", partitions):
                yield statement.replace(" CONCURRENTLY", "")
            if self.has_post(version):
                yield self._noted_post(version)

    def _half(self, version: int, half: Half) -> Iterator[str]:
        if half == "pre":
            yield "BEGIN"
            yield from self._statements(version, "pre")
            yield self._note(version)
            yield "COMMIT"
        else:
            yield from self._statements(version, "post")
            yield self._noted_post(version)

    def _statements(self, version: int, half: Half, partitions: int = 0) -> Iterator[str]:
        """The parts of a table have storage settings; the whole, where it has parts, has none."""
        script = self._scripts.get((version, half), "")
        if partitions:
            script = script.replace("{storage}", "PARTITION BY HASH (digest)")
        yield from statements_of(self._named(script))

    def _partitions(self, count: int) -> Iterator[str]:
        table = self._names["record_table"]
        for number in range(count):
            yield self._named(
                f'CREATE TABLE {table[:-1]}_p{number}" PARTITION OF {table} '
                f"FOR VALUES WITH (MODULUS {count}, REMAINDER {number}) {_STORAGE}"
            )
