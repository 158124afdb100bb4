"""The first words on a connection, as flows: is this the right server, with the right schema; and creating the tables.

What always holds: tables are created in one transaction, by one process however many try. A server that takes no writes
is refused before anything is claimed there: a replica would answer "absent" for what the primary holds.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from semel.errors import SchemaOutdated, StoreUnavailable
from semel.stores.served.command import Command, Row
from semel.stores.served.settings import Settings

Talk = Generator[Command, list[Row], bytes]


class Schema(Protocol):
    """The schema of one kind of server."""

    def ready(self) -> Command:
        """One row: version, install_id, whether the server takes no writes, and which version a release has to know."""

    def creation(self) -> Sequence[Command]:
        """All that creates the newest schema where there is none, transaction included."""

    def undo(self) -> Command:
        """What leaves a transaction that failed."""

    @property
    def newest(self) -> int:
        """The version that this release works with."""


def opening(schema: Schema, settings: Settings) -> Talk:
    """Check a new connection; answers the install_id.

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
    version, install_id, read_only, *oldest = rows[0]
    if read_only:
        message = f"{settings.name} takes no writes: it is a replica. Nothing ran. Give the address of the primary."
        raise StoreUnavailable(message)
    check(version, schema.newest, settings.name, oldest=(oldest or [None])[0])
    return bytes(install_id)


def create(schema: Schema) -> Generator[Command, list[Row], None]:
    """Create the tables. Whoever comes second finds them there, and that is an end like any other."""
    try:
        for command in schema.creation():  # noqa: UP028 - a list takes no replies
            yield command
    except Exception:
        yield schema.undo()
        rows = yield schema.ready()  # somebody else was faster, or this raises what is wrong
        if not rows:
            raise


def check(version: int, newest: int, name: str, *, oldest: int | None = None) -> None:
    """Refuse a schema that this release cannot work with.

    One that is newer is fine while its second half has not been applied: `oldest` is the version that a release has to
    know. So the schema can be migrated before the workers are replaced, one by one.

    Raises:
        SchemaOutdated: it is older, or too new.
    """
    needed = version if oldest is None else oldest
    if version >= newest >= needed:
        return
    message = (
        f"{name} has schema version {version}, which needs a release that knows {needed}, and this one knows {newest}; "
        f"nothing ran. Use the newer release that wrote it."
        if version > newest
        else f"{name} has schema version {version}, and this release needs {newest}; nothing ran. Run `semel migrate`."
    )
    raise SchemaOutdated(message, version=version, known=newest)
