"""The shared context of a SQL store: settings, dialect and schema; the check of a new connection; savepoints.

- Tables are created in one transaction, by one process however many try.
- A server that takes no writes is refused before anything is claimed: a replica would answer "absent" for what the
  primary holds.
- Savepoints mark the caller's transaction where the server has no name for it. Releasing one also releases those set
  after it, so those that are still needed are set again. That happens where tasks share a transaction and the first to
  begin is the first to end; the released one was there, so the transaction is the one the later ones were set in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from semel.errors import SchemaOutdated, StoreUnavailable
from semel.stores.sql.dialect import NOW, Command, Known, Row, ServerDialect
from semel.stores.sql.migrations import check_version
from semel.stores.sql.settings import Settings

_SET: Final = "SAVEPOINT "
_RELEASE: Final = "RELEASE SAVEPOINT "


def set_savepoint(name: str) -> Command:
    """Set a mark. Its name cannot be bound; it is made of letters, digits and `_`."""
    return Command(f"{_SET}{name}")


def assert_savepoint(name: str) -> Command:
    """Release a mark; the server refuses (1305) where the transaction has ended."""
    return Command(f"{_RELEASE}{name}")


class Savepoints:
    """Which marks are set, per connection and in order."""

    def __init__(self) -> None:
        self._set: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()

    def note(self, connection: Any, command: Command) -> Command:
        """`command`, followed by setting again what it lets go of and others still need."""
        text = command.text
        if text.startswith(_SET):
            self._set.setdefault(connection, []).append(text.removeprefix(_SET))
        elif text.startswith(_RELEASE):
            return replace(command, then=self._again(connection, text.removeprefix(_RELEASE)))
        return command

    def _again(self, connection: Any, name: str) -> Command | None:
        marks = self._set.pop(connection, [])
        at = len(marks) - 1 - marks[::-1].index(name) if name in marks else len(marks)
        later = marks[at + 1 :]
        if marks[:at] or later:
            self._set[connection] = marks[:at] + later
        again: Command | None = None
        for other in reversed(later):
            again = replace(set_savepoint(other), then=again)
        return again


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a new connection tells of its server.

    Attributes:
        install_id: which database it is.
        limits_by_session: whether only a session as a whole can be told how long to wait for locked rows.
    """

    install_id: bytes
    limits_by_session: bool = False


Handshake = Generator[Command, list[Row], ServerFacts]


class Schema(Protocol):
    """The schema of one kind of server."""

    def ready(self) -> Command:
        """One row: version, install_id, whether the server takes no writes, and which version a release has to know.

        Where there is one more column, it is `ServerFacts.limits_by_session`.
        """

    def creation(self) -> Sequence[Command]:
        """All that creates the newest schema where there is none, transaction included."""

    def undo(self) -> Command:
        """What leaves a transaction that failed."""

    @property
    def newest(self) -> int:
        """The version that this release works with."""


def check_connection(schema: Schema, settings: Settings) -> Handshake:
    """Check a new connection; answers what it tells of its server.

    Raises:
        SchemaOutdated: the tables are missing and may not be created, or are of another version.
        StoreUnavailable: the server takes no writes.
    """
    try:
        rows = yield schema.ready()
    except SchemaOutdated:
        if not settings.migrate:
            raise
        yield from create(schema)
        rows = yield schema.ready()
    if rows[0][0] == 0 and settings.migrate:  # created half-way, where the server cannot do it in one transaction
        yield from create(schema)
        rows = yield schema.ready()
    version, install_id, read_only, oldest, *limits = rows[0]
    if read_only:
        message = f"{settings.name} takes no writes: it is a replica. Nothing ran. Give the address of the primary."
        raise StoreUnavailable(message)
    check_version(version, schema.newest, settings.name, oldest=oldest)
    return ServerFacts(bytes(install_id), *map(bool, limits))


def create(schema: Schema) -> Generator[Command, list[Row], None]:
    """Create the tables. The second process finds them there, which is a success too."""
    try:
        for command in schema.creation():  # noqa: UP028 - a list takes no replies
            yield command
    except Exception:
        yield schema.undo()
        rows = yield schema.ready()  # somebody else was faster, or this raises what is wrong
        if not rows:
            raise


@dataclass(slots=True)
class SqlContext:
    """Shared by every driver and joined connection of a store."""

    settings: Settings
    dialect: ServerDialect
    schema: Schema
    facts: ServerFacts | None = field(default=None)
    savepoints: Savepoints | None = field(default=None)
    monotonic: Callable[[], float] = field(default=time.monotonic)
    """What the ages of connections are measured by."""

    @property
    def name(self) -> str:
        """For messages."""
        return self.settings.name

    @property
    def install_id(self) -> bytes | None:
        """Which database this is, where that was learnt by now."""
        return None if self.facts is None else self.facts.install_id

    def check(self) -> Handshake:
        """Check a new connection; answers what it tells of its server."""
        return check_connection(self.schema, self.settings)

    def render(self, command: Command) -> Command:
        """`command` with what only the place knows filled in; itself, where there is nothing to fill in."""
        clock = self.settings.clock
        then = None if command.then is None else self.render(command.then)
        if clock is None and then is command.then and Known.INSTALL not in command.values:
            return command
        text = command.text if clock is None else command.text.replace(NOW, str(clock()))
        values = tuple(self.install_id if value is Known.INSTALL else value for value in command.values)
        return replace(command, text=text, values=values, then=then)
