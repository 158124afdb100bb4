"""Everything that an operator can do. API, console and bulk actions call nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from semel.api import AsyncSemel, Semel
from semel.engine.admin import SweepReport
from semel.events import Consumer
from semel.server.access import Permission, User
from semel.server.actions.checks import AuditLog
from semel.server.actions.batches import BatchActions
from semel.server.actions.events import EventActions
from semel.server.actions.records import RecordActions
from semel.server.engines import run_sweep

__all__ = ["Actions", "AuditLog"]


class Actions(RecordActions, EventActions, BatchActions):
    """What operators do, with permission, scope, reason and audit chain on everything.

    Args:
        semel: the engine whose records are looked after.
        audit: the chain; None: everything can be looked at, and nothing changed.
        consumers: consumers whose letters can be redriven here.
    """

    def __init__(
        self, semel: Semel | AsyncSemel, audit: AuditLog | None, *, consumers: Iterable[Consumer[Any]] = ()
    ) -> None:
        EventActions.__init__(self, semel, audit, consumers=consumers)

    async def sweep(self, user: User, *, reason: str, limit: int | None = None) -> SweepReport:
        """Delete what is expired, mark lapsed leases in doubt, ask the reconcile hooks. It reaches every scope."""
        self.demand_everywhere(user, Permission.SWEEP)
        return await self.change(
            user, Permission.SWEEP, lambda: run_sweep(self.given, limit), scope="", target="records", reason=reason
        )
