"""Administration of a store on a SQL server: migrations, `semel doctor`, the mark after a restore.

- Each call uses a dedicated connection, closed when it returns. Nothing is checked on it beforehand, so it works where
  tables are missing or too old; nothing is sent a second time.
- An examination never fails: an answer that cannot be obtained is a finding.
- A restore forgets every claim since the restore point, and a forgotten key looks new. So, while the restore mark
  stands, a claim of a key without a record is recorded as in doubt, on hold, and nobody runs it until people have
  checked whether it happened. What was unsettled at the restore point may have been settled since, so it is held too.
  Claims do not look for the mark: a trigger on the table of records changes what they write while it stands. So it
  costs nothing otherwise, and workers need neither be told nor be of this release.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from semel.core.flow import run
from semel.core.record import Failure
from semel.errors import SchemaOutdated, SemelError
from semel.stores.admin import MOST_COUNTED, Admin, Finding, Half, Mark, Marked, Numbers, about_clock, about_records
from semel.stores.sql.adapter import Adapter
from semel.stores.sql.context import SqlContext
from semel.stores.sql.dialect import Command, Row, ServerSweeps
from semel.stores.sql.errors import RowError, translate_connecting_error, translate_error
from semel.stores.sql.migrations import Migrations, choose_steps, migrate_schema, pending
from semel.stores.sql.settings import Settings

T = TypeVar("T")
LONG: Final = 24 * 3600.0
"""Seconds that a statement of a migration may take: an index over many records takes its time."""


class AdminConnection:
    """A connection that flows are run on, one after the other."""

    def __init__(self, context: SqlContext, adapter: Adapter, *, statement_timeout: float | None = None) -> None:
        self._context = context
        self._adapter = adapter
        settings = context.settings
        self._settings = dataclasses.replace(
            settings, statement_timeout=statement_timeout or settings.statement_timeout
        )

    def __enter__(self) -> Self:
        try:
            self._connection: Any = self._adapter.connect(self._settings)
        except Exception as error:
            raise translate_connecting_error(error, self._adapter.error_kind(error), self._context.name) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._adapter.close(self._connection)

    def run(self, flow: Generator[Command, list[Row], T]) -> T:
        """Run a flow and answer what it returns."""
        return run(flow, self._execute)

    def _execute(self, command: Command) -> list[Row]:
        try:
            return self._adapter.execute(self._connection, self._context.render(command))
        except Exception as error:
            raise self._meaning(error) from error

    def _meaning(self, error: Exception) -> Exception:
        meant = translate_error(error, self._adapter.error_kind(error), self._context.name)
        return meant.error if isinstance(meant, RowError) else meant


RESTORED: Final = Failure(
    "semel.Restored", "the store was restored from a backup: whether this happened before is not known"
)


class Restoring(Protocol):
    """How one kind of server keeps the mark."""

    def set_mark(
        self, at_us: int, for_us: int, operations: tuple[str, ...] | None
    ) -> Generator[Command, list[Row], Marked]:
        """Set the mark, in the place of an earlier one.

        Raises:
            UsageError: the restore point is in the future of the store's clock.
        """

    def remove_mark(self) -> Generator[Command, list[Row], bool]:
        """Take the mark away; answers whether there was one."""

    def mark(self) -> Generator[Command, list[Row], Mark | None]:
        """The mark that stands."""


Looking = Generator[Command, list[Row], list[Finding]]
_ROUNDS = 5


class Doctor(Protocol):
    """How one kind of server is looked at."""

    @property
    def names(self) -> Mapping[str, str]:
        """The names of the tables, as parts of statements."""

    @property
    def step_key(self) -> tuple[str, ...]:
        """The columns that tell finished steps apart."""

    def server(self) -> Looking:
        """Durability, replication, isolation, encoding: what the server is set to."""

    def connection(self) -> Looking:
        """Whether this connection leads to one session, or to a pool that changes it between transactions."""

    def tables(self) -> Looking:
        """Whether the tables are kept as they must be."""

    def numbers(self) -> Generator[Command, list[Row], Numbers]:
        """Figures about the records."""

    def now(self) -> Command:
        """One row: the store's clock in microseconds."""


TORN_PAGES: Final = "a crash can leave torn pages: switch it on, unless the file system writes whole pages"


class ServerDoctor:
    """What every server is asked in the same way."""

    def __init__(self, settings: Settings, names: Mapping[str, str], statements: ServerSweeps) -> None:
        self._settings = settings
        self._names = names
        self._statements = statements

    @property
    def names(self) -> Mapping[str, str]:
        """The names of the tables."""
        return self._names

    def now(self) -> Command:
        """The store's clock."""
        return Command(f"SELECT {self._names['clock']}")

    def numbers(self) -> Generator[Command, list[Row], Numbers]:
        """Figures about the records, by the index of the sweeps: however many records there are, few are read."""
        ask, more = self._statements, MOST_COUNTED + 1
        ((in_doubt,),) = yield ask.count_in_doubt(more)
        keeps = yield from ask.keeps()
        expired = lapsed = met = 0
        newest, is_whole = MOST_COUNTED // max(len(keeps), 1), True
        for keep_us, equal in keeps:
            if expired < more:
                ((found,),) = yield ask.count_expired(keep_us, more - expired, equal=equal)
                expired += found
            ((there, ended),) = yield ask.count_lapsed(keep_us, newest, equal=equal)
            lapsed, met, is_whole = lapsed + ended, met + there, is_whole and there < newest
        return Numbers(expired, in_doubt, lapsed, keeps[0][0] if keeps else None, None if is_whole else met)


def examine(
    connection: AdminConnection, doctor: Doctor, migrations: Migrations, restoring: Restoring, horizon: timedelta
) -> list[Finding]:
    """Everything that is found."""
    findings = [*connection.run(doctor.server()), *connection.run(doctor.connection()), _clock(connection, doctor)]
    schema = _schema(connection, migrations)
    findings.append(schema)
    if schema.verdict == "fix":
        return findings  # the tables are not those that the rest would ask
    try:
        findings += connection.run(doctor.tables())
        findings += _mark(connection.run(restoring.mark()), _now(connection, doctor))
        findings += about_records(connection.run(doctor.numbers()), horizon)
    except SemelError as error:
        findings.append(Finding("records", f"not known: {error.message}", "note", "look at what keeps the server busy"))
    return findings


def about_schema(version: str, left: Sequence[tuple[int, str]] | None) -> Finding:
    """What the pending migrations mean."""
    if left is None:
        return Finding("schema", "there are no tables", "fix", "run `semel migrate`", ("schema",))
    names = ", ".join(f"{number:04} {half}" for number, half in left)
    if any(half == "pre" for _, half in left):
        return Finding("schema", f"pending: {names}", "fix", "run `semel migrate`", ("schema",))
    if left:
        advice = "once no worker of the release before runs: `semel migrate --half post`"
        return Finding("schema", f"version {version}, pending: {names}", "note", advice)
    return Finding("schema", f"version {version}, nothing pending")


def _schema(connection: AdminConnection, migrations: Migrations) -> Finding:
    try:
        return about_schema(str(migrations.newest), connection.run(pending(migrations)))
    except SchemaOutdated as error:
        return Finding("schema", error.message, "fix", "use the newer release", ("schema",))


def _mark(mark: Mark | None, now: int) -> list[Finding]:
    if mark is None:
        return []
    over = mark.until_us <= now
    left = timedelta(microseconds=mark.until_us - now)
    found = "the window is over" if over else f"keys without a record are held for another {left}"
    return [Finding("restore mark", found, "note", "take it away: `semel restored --end`" if over else "")]


def _now(connection: AdminConnection, doctor: Doctor) -> int:
    return int(connection.run(_one(doctor.now()))[0][0])


def _one(command: Command) -> Generator[Command, list[Row], list[Row]]:
    return (yield command)


def _clock(connection: AdminConnection, doctor: Doctor) -> Finding:
    """The round with the shortest way there and back is the most precise."""
    measured = []
    for _ in range(_ROUNDS):
        before = time.time_ns()
        store = _now(connection, doctor)
        after = time.time_ns()
        measured.append((after - before, (before + after) // 2000 - store))
    way, offset = min(measured)
    return about_clock(timedelta(microseconds=offset), timedelta(microseconds=way // 2000))


class ServerRows:
    """Rows on a server. Each statement commits by itself: locks on several rows could meet those of workers."""

    def __init__(self, connection: AdminConnection, names: Mapping[str, str], step_key: tuple[str, ...]) -> None:
        self._connection = connection
        self._names = names
        self.step_key = step_key

    def fill(self, text: str) -> str:
        """`text` with the names of the tables in it."""
        return text.format_map(self._names)

    def execute(self, text: str, values: tuple[Any, ...] = ()) -> list[Sequence[Any]]:
        """Run one statement; answers its rows."""
        return list(self._connection.run(_one(Command(text, values))))

    def transaction(self) -> AbstractContextManager[None]:
        """Nothing: each statement is one."""
        return nullcontext()


class SqlAdmin(Admin):
    """What operators do to a store on a SQL server."""

    def __init__(
        self,
        context: SqlContext,
        adapter: Adapter,
        migrations: Migrations,
        doctor: Doctor,
        restoring: Restoring,
        *,
        search_sql: str,
    ) -> None:
        super().__init__(context.name)
        self.context = context
        self.adapter = adapter
        self.migrations = migrations
        self.doctor = doctor
        self.restoring = restoring
        self.search_sql = search_sql

    def migrate(self, half: Half | None = None, *, search: bool = False, partitions: int = 0) -> list[str]:
        """Apply what is pending; answers what was done.

        Raises:
            SchemaOutdated: the tables are of a newer release.
            StoreUnavailable: the server did not answer, or a lock was not to be had.
            UsageError: what was asked for does not fit what is there.
        """
        with self._connect(LONG) as connection:
            return connection.run(migrate_schema(self.migrations, half, search=search, partitions=partitions))

    def pending(self) -> list[str]:
        """The halves that are not applied yet."""
        with self._connect() as connection:
            steps = connection.run(pending(self.migrations))
        return [f"{version:04} {half}" for version, half in steps or []]

    def pending_sql(self, half: Half | None = None, *, search: bool = False, partitions: int = 0) -> str:
        """The SQL that `migrate` would run now, empty where nothing is pending. Changes nothing."""
        with self._connect() as connection:
            steps = connection.run(pending(self.migrations))
        if steps is None:
            text = self.migrations.creation_sql(partitions)
        else:
            wanted = choose_steps(steps, self.migrations.newest, half)
            text = "".join(self.migrations.half_sql(version, kind) for version, kind in wanted)
        return text + (self.search_sql if search else "")

    def examine(self, horizon: timedelta) -> list[Finding]:
        """What is found here."""
        with self._connect() as connection:
            return examine(connection, self.doctor, self.migrations, self.restoring, horizon)

    @contextmanager
    def sealed_rows(self) -> Iterator[ServerRows]:
        """The rows that may hold sealed values, on a connection of their own."""
        with self._connect() as connection:
            yield ServerRows(connection, self.doctor.names, self.doctor.step_key)

    def restored(self, at_us: int, for_us: int, operations: tuple[str, ...] | None = None) -> Marked:
        """Set the restore mark: see `Restoring`."""
        with self._connect(LONG) as connection:
            return connection.run(self.restoring.set_mark(at_us, for_us, operations))

    def end_restored(self) -> bool:
        """Take the restore mark away; answers whether there was one."""
        with self._connect() as connection:
            return connection.run(self.restoring.remove_mark())

    def _connect(self, statement_timeout: float | None = None) -> AdminConnection:
        return AdminConnection(self.context, self.adapter, statement_timeout=statement_timeout)
