"""The restore mark: what a store that was restored from a backup cannot know, it holds instead of running it again.

A restore forgets every claim since the restore point, and a forgotten key looks new. So, while the mark stands, a claim
of a key that has no record is recorded as in doubt, on hold, and nobody runs it; people look whether it happened. What
was unsettled at the restore point may have been settled since, so it is held too.

What always holds: the mark costs nothing where there is none, because claims do not look for it: while it stands, a
trigger on the table of records changes what they write. Workers need not be told, nor be of this release.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, Protocol

import msgspec

from semel.core.record import Failure
from semel.stores.served.command import Command, Row

RESTORED: Final = Failure(
    "semel.Restored", "the store was restored from a backup: whether this happened before is not known"
)


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


class Restoring(Protocol):
    """How one kind of server keeps the mark."""

    def marking(
        self, at_us: int, for_us: int, operations: tuple[str, ...] | None
    ) -> Generator[Command, list[Row], Marked]:
        """Set the mark, in the place of an earlier one.

        Raises:
            UsageError: the restore point is in the future of the store's clock.
        """

    def ending(self) -> Generator[Command, list[Row], bool]:
        """Take the mark away; answers whether there was one."""

    def mark(self) -> Generator[Command, list[Row], Mark | None]:
        """The mark that stands."""
