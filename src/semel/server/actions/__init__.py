"""Everything that an operator can do. API, console and bulk actions call nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from semel.api import AsyncSemel, Semel
from semel.core.store import Capability
from semel.engine.admin import SweepReport
from semel.engine.engine import engine_of
from semel.events import Consumer
from semel.server.access import Permission, User
from semel.server.actions.administration import Administration
from semel.server.actions.batches import BatchActions
from semel.server.actions.events import EventActions
from semel.server.actions.records import RecordActions
from semel.server.audit import Audit
from semel.server.engines import as_async, run_sweep
from semel.server.tokens import Tokens

__all__ = ["Actions", "make_actions"]


class Actions(RecordActions, EventActions, BatchActions, Administration):
    """What operators do, with permission, scope, reason and audit chain on everything.

    Args:
        semel: the engine whose records are looked after.
        audit: the chain; None: everything can be looked at, and nothing changed.
        consumers: consumers whose letters can be redriven here.
        tokens: where tokens are kept, if users are known by them.
    """

    def __init__(
        self,
        semel: Semel | AsyncSemel,
        audit: Audit | None,
        *,
        consumers: Iterable[Consumer[Any]] = (),
        tokens: Tokens | None = None,
    ) -> None:
        EventActions.__init__(self, semel, audit, consumers=consumers)
        self.tokens = tokens

    async def sweep(self, user: User, *, reason: str, limit: int | None = None) -> SweepReport:
        """Delete what is expired, mark lapsed leases in doubt, ask the reconcile hooks. It reaches every scope."""
        self.demand_everywhere(user, Permission.SWEEP)
        return await self.change(
            user, Permission.SWEEP, lambda: run_sweep(self.given, limit), scope="", target="records", reason=reason
        )


def make_actions(
    semel: Semel | AsyncSemel, *, consumers: Iterable[Consumer[Any]] = (), tokens: Tokens | None = None
) -> Actions:
    """The actions on a store, with its audit chain where it keeps one; without, everything is read-only."""
    known = as_async(semel)
    audit = Audit(known) if Capability.AUDIT in engine_of(known).store.capabilities else None
    return Actions(semel, audit, consumers=consumers, tokens=tokens)
