"""Invalidations that caches in front of the table have not confirmed, as pure steps like those of the table.

What always holds: a note goes only when it is confirmed, and a confirmation never takes away a note that came after
the invalidation it speaks of.
"""

from __future__ import annotations

from msgspec.structs import replace

from semel.core.operations import Awaiting, Confirm, Invalidate, Invalidation, Pending, Recorded


class Invalidations:
    """One note per digest."""

    def __init__(self) -> None:
        self._noted: dict[bytes, Invalidation] = {}

    def apply(self, operation: Invalidate | Pending | Confirm, now: int) -> Recorded | Awaiting:
        """Carry out `operation` at the instant `now`."""
        match operation:
            case Invalidate():
                return Recorded(now)  # there is no cache in front of the table
            case Pending(limit):
                oldest = sorted(self._noted.values(), key=lambda noted: (noted.noted_us, noted.digest))
                return Awaiting(tuple(oldest[: max(limit, 0)]))
            case Confirm(digest, before_us):
                noted = self._noted.get(digest)
                if noted is not None and noted.noted_us <= before_us:
                    del self._noted[digest]
                return Recorded(now)

    def note(self, invalidation: Invalidation) -> None:
        """Keep it until it is confirmed. It is later than the one before it, whatever the clock says."""
        before = self._noted.get(invalidation.digest)
        if before is not None and before.noted_us >= invalidation.noted_us:
            invalidation = replace(invalidation, noted_us=before.noted_us + 1)
        self._noted[invalidation.digest] = invalidation
