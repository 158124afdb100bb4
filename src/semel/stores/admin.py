"""The second port of a store: what operators do to it. The command line calls this.

What always holds: a method works if, and only if, the store declares its capability; otherwise it refuses and says so,
before anything is opened.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal, NoReturn, Protocol, cast

import msgspec

from semel.core.store import Capability, Store
from semel.errors import UsageError
from semel.stores.doctor import Finding

Half = Literal["pre", "post"]
"""pre: what workers of the release before can live with; post: the rest, once they are gone."""

_REFUSALS: Final = {
    Capability.EXAMINE: "{name} cannot be looked at; nothing was done.",
    Capability.MIGRATE: "{name} has no schema to migrate; nothing was done.",
    Capability.MIGRATION_SQL: "{name} knows no SQL; nothing was done. Without --sql the table is made.",
    Capability.ONLINE_MIGRATION: (
        "--half, --search and --partitions are for SQL servers, not for {name}; nothing was done."
    ),
    Capability.RESTORE_HOLD: "{name} takes no restore mark, only servers do; nothing was done.",
}


class Mark(msgspec.Struct, frozen=True):
    """A restore mark, as it is kept. No operations: all of them."""

    at_us: int
    marked_us: int
    until_us: int
    operations: tuple[str, ...] | None = None


class Marked(msgspec.Struct, frozen=True):
    """What setting the mark did: `held` records were unsettled at the restore point, `forgotten` had expired."""

    mark: Mark
    held: int
    forgotten: int


class Admin:
    """What operators do to one store. A backend overrides what its store declares; the rest refuses."""

    def __init__(self, name: str) -> None:
        self.name = name

    def migrate(self, half: Half | None = None, *, search: bool = False, partitions: int = 0) -> list[str]:
        """Apply what is pending, or make what is missing; answers what was done.

        Raises:
            UsageError: the store lacks `Capability.MIGRATE`, or what was asked for does not fit what is there.
            SchemaOutdated: it is of a newer release.
            StoreUnavailable: it did not answer, or a lock was not to be had.
        """
        del half, search, partitions
        self._refuse(Capability.MIGRATE)

    def pending(self) -> list[str]:
        """What is not applied yet."""
        return []

    def pending_sql(self, half: Half | None = None, *, search: bool = False, partitions: int = 0) -> str:
        """The SQL that `migrate` would run now, empty where nothing is pending. Changes nothing.

        Raises:
            UsageError: the store lacks `Capability.MIGRATION_SQL`.
        """
        del half, search, partitions
        self._refuse(Capability.MIGRATION_SQL)

    def examine(self, horizon: timedelta) -> list[Finding]:
        """What `semel doctor` finds. `horizon`: how long after its first call a caller may still try again.

        Raises:
            UsageError: the store lacks `Capability.EXAMINE`.
        """
        del horizon
        self._refuse(Capability.EXAMINE)

    def restored(self, at_us: int, for_us: int, operations: tuple[str, ...] | None = None) -> Marked:
        """Set the restore mark.

        Raises:
            UsageError: the store lacks `Capability.RESTORE_HOLD`, or the restore point is in the future.
        """
        del at_us, for_us, operations
        self._refuse(Capability.RESTORE_HOLD)

    def end_restored(self) -> bool:
        """Take the restore mark away; answers whether there was one.

        Raises:
            UsageError: the store lacks `Capability.RESTORE_HOLD`.
        """
        self._refuse(Capability.RESTORE_HOLD)

    def _refuse(self, capability: Capability) -> NoReturn:
        raise lacking_error(self.name, capability)


class Administered(Protocol):
    """What a store that declares something of `ADMINISTRATION` has beside the methods of a store."""

    def admin(self) -> Admin:
        """What operators do to it."""


def admin_of(store: Store, capability: Capability) -> Admin:
    """The administration of a store, for something that it has to declare.

    Raises:
        UsageError: it does not declare it.
    """
    if capability not in store.capabilities:
        raise lacking_error(store.name, capability)
    return cast("Administered", store).admin()


def lacking_error(name: str, capability: Capability) -> UsageError:
    """The error for a store that does not declare what was asked of it."""
    return UsageError(_REFUSALS[capability].format(name=name))
