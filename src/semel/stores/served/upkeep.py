"""What operators do to a store on a server: migrate it, look at it, mark it as restored. The command line calls this.

What always holds: each call uses a connection of its own, which is closed when it returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, runtime_checkable

from semel.stores.doctor import Finding
from semel.stores.served.doctor import Doctor, examine
from semel.stores.served.library import Library
from semel.stores.served.migrate import Half, Migrations, chosen, migrating, pending
from semel.stores.served.place import Place
from semel.stores.served.restored import Marked, Restoring
from semel.stores.served.talk import LONG, Talk


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The upkeep of one place."""

    place: Place
    library: Library
    migrations: Migrations
    doctor: Doctor
    restoring: Restoring
    search_sql: str

    def migrate(self, half: Half | None = None, *, search: bool = False, partitions: int = 0) -> list[str]:
        """Apply what is pending; answers what was done.

        Raises:
            SchemaOutdated: the tables are of a newer release.
            StoreUnavailable: the server did not answer, or a lock was not to be had.
            UsageError: what was asked for does not fit what is there.
        """
        with self._talk(LONG) as talk:
            return talk.run(migrating(self.migrations, half, search=search, partitions=partitions))

    def pending(self) -> list[str]:
        """The halves that are not applied yet."""
        with self._talk() as talk:
            steps = talk.run(pending(self.migrations))
        return [f"{version:04} {half}" for version, half in steps or []]

    def pending_sql(self, half: Half | None = None, *, search: bool = False, partitions: int = 0) -> str:
        """The SQL that `migrate` would run now, empty where nothing is pending. Changes nothing."""
        with self._talk() as talk:
            steps = talk.run(pending(self.migrations))
        if steps is None:
            text = self.migrations.creation_sql(partitions)
        else:
            wanted = chosen(steps, self.migrations.newest, half)
            text = "".join(self.migrations.half_sql(version, kind) for version, kind in wanted)
        return text + (self.search_sql if search else "")

    def examine(self, horizon: timedelta) -> list[Finding]:
        """What is found here."""
        with self._talk() as talk:
            return examine(talk, self.doctor, self.migrations, self.restoring, horizon)

    def restored(self, at_us: int, for_us: int, operations: tuple[str, ...] | None = None) -> Marked:
        """Set the restore mark: see `served.restored`."""
        with self._talk(LONG) as talk:
            return talk.run(self.restoring.marking(at_us, for_us, operations))

    def end_restored(self) -> bool:
        """Take the restore mark away; answers whether there was one."""
        with self._talk() as talk:
            return talk.run(self.restoring.ending())

    def _talk(self, statement_timeout: float | None = None) -> Talk:
        return Talk(self.place, self.library, statement_timeout=statement_timeout)


@runtime_checkable
class Kept(Protocol):
    """A store that has upkeep."""

    name: str

    def upkeep(self) -> Upkeep:
        """What operators do to it."""
