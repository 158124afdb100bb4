"""What the doctor finds, looked for at most twice in a minute, however many people look at its page.

A look goes through up to 100,000 records of each kind, which is too much for every two seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from semel.core.store import Capability, Store
from semel.stores.admin import DEFAULT_HORIZON, Finding, Promise, admin_of, promises

KEPT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found, which promises hold by it, and when that was."""

    findings: tuple[Finding, ...]
    promises: tuple[Promise, ...]
    at: datetime

    @property
    def to_fix(self) -> int:
        """How many findings have to be fixed; not each of them breaks a promise."""
        return sum(finding.verdict == "fix" for finding in self.findings)

    @property
    def broken(self) -> int:
        """How many promises do not hold that apply here; what a store cannot do, nobody has to fix."""
        return sum(row.holds is False for row in self.promises)

    @property
    def holds(self) -> bool:
        """Whether every promise holds that applies here."""
        return not self.broken


class Examination:
    """Looks at a store, and keeps what it found for half a minute.

    Args:
        store: what is looked at.
        more: findings about what stands around the store, such as the server.
        monotonic: seconds that only grow.
    """

    def __init__(
        self, store: Store, more: Sequence[Finding] = (), monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._more = tuple(more)
        self._monotonic = monotonic
        self._found: tuple[float, Examined] | None = None
        self._looking: asyncio.Future[Examined] | None = None

    @property
    def is_possible(self) -> bool:
        """Whether the store can be looked at."""
        return Capability.EXAMINE in self._store.capabilities

    async def look(self) -> Examined:
        """What was found; of several who ask at a time, one looks."""
        if self._found is not None and self._monotonic() - self._found[0] < KEPT_SECONDS:
            return self._found[1]
        if self._looking is None:
            self._looking = asyncio.ensure_future(asyncio.to_thread(self._examine))
            self._looking.add_done_callback(self._end)
        return await asyncio.shield(self._looking)

    def _end(self, looked: asyncio.Future[Examined]) -> None:
        self._looking = None
        if not looked.cancelled() and looked.exception() is None:
            self._found = (self._monotonic(), looked.result())

    def _examine(self) -> Examined:
        found = (*self._more, *admin_of(self._store, Capability.EXAMINE).examine(DEFAULT_HORIZON))
        held = promises(
            found,
            best_effort=Capability.DURABLE not in self._store.capabilities,
            outbox=Capability.OUTBOX in self._store.capabilities,
        )
        return Examined(found, tuple(held), datetime.now(UTC))
