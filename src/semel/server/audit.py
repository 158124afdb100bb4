"""The audit chain: who did what to what, why, and what came of it, in an order that cannot be changed unnoticed.

- An action cannot happen without a trace: `record` appends an entry before it, and one after it. A process that dies in
  between leaves an entry that the list shows as open.
- Entries hold references, names and texts that operators wrote; never what a record is about.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from semel.api import AsyncSemel
from semel.core.flow import ask
from semel.core.operators.chain import Phase
from semel.core.operators.verification import Anchor, AuditFault
from semel.core.store import Capability, Store
from semel.engine.engine import engine_of
from semel.errors import SemelError, UsageError
from semel.server.audit_flows import (
    AuditEntry,
    AuditFlows,
    AuditReport,
    NewEntry,
    scan,
    show_entry,
    verify,
)

__all__ = ["Anchor", "Audit", "AuditEntry", "AuditFault", "AuditReport", "RecordedAction"]

_PAGE: Final = 100
_LOG: Final = logging.getLogger("semel.audit")


@dataclass(slots=True)
class RecordedAction:
    """An action that is under way; what is set here is in the entry that ends it.

    Attributes:
        begun: the entry that begins it.
        outcome: what came of it.
        detail: more about it.
    """

    begun: AuditEntry
    outcome: str = "done"
    detail: dict[str, str] = field(default_factory=dict)


def refuse_without_audit(store: Store, what: str) -> None:
    """Refuse a store that keeps no audit chain, before anything is asked of it.

    Raises:
        UsageError: it has none.
    """
    if Capability.AUDIT not in store.capabilities:
        raise UsageError(
            f"{what} needs a store whose writes can depend on each other across tables, and {store.name} has no audit "
            f"chain and no tokens; nothing was changed. Use PostgreSQL, MySQL, MariaDB or SQLite."
        )


class Audit:
    """The audit chain of a store.

    Raises:
        UsageError: the store cannot keep one.
    """

    def __init__(self, semel: AsyncSemel) -> None:
        self._engine = engine_of(semel)
        refuse_without_audit(self._engine.store, "Audit()")
        self._flows = AuditFlows(self._engine, os.urandom)

    async def append(
        self,
        *,
        scope: str,
        actor: str,
        action: str,
        target: str,
        reason: str,
        outcome: str = "",
        detail: Mapping[str, str] | None = None,
    ) -> AuditEntry:
        """Append an entry about something that is over, and give it as it is kept.

        Raises:
            UsageError: a text is too long, or empty where it must not be; nothing was appended.
            StoreUnavailable: the store did not answer.
        """
        new = NewEntry(scope, actor, action, target, reason, outcome, dict(detail or {}))
        return await self._engine.perform_on(None, self._flows.append(new))

    @asynccontextmanager
    async def record(
        self,
        *,
        scope: str,
        actor: str,
        action: str,
        target: str,
        reason: str,
        detail: Mapping[str, str] | None = None,
    ) -> AsyncIterator[RecordedAction]:
        """Do something that leaves a trace: an entry is appended before the block, and one after it.

        Without the first one the block is not run. An error that leaves the block is named in the second one, by its
        kind alone, and goes on. If the second one cannot be appended, that is logged, and the list shows the first one
        as open.

        Raises:
            UsageError: a text is too long, or empty where it must not be; nothing was done.
            StoreUnavailable: the store did not answer; nothing was done.
        """
        new = NewEntry(scope, actor, action, target, reason, "", dict(detail or {}), Phase.BEGUN)
        begun = await self._engine.perform_on(None, self._flows.append(new))
        under_way = RecordedAction(begun)
        try:
            yield under_way
        except BaseException as error:
            under_way.outcome = name_failure(error)
            await self._end(new, under_way)
            raise
        await self._end(new, under_way)

    async def _end(self, new: NewEntry, under_way: RecordedAction) -> None:
        try:
            ended = end_of(new, under_way)
            await self._engine.perform_on(None, self._flows.append(ended))
        except SemelError as error:
            _LOG.error("the end of %s (entry %s) is not in the audit chain: %s", new.action, under_way.begun.seq, error)

    async def entries(
        self,
        *,
        scope: str | Collection[str] | None = None,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        only_open: bool = False,
        before: datetime | str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[AuditEntry]:
        """Entries, newest first.

        Args:
            scope: of one scope, of several, or of all.
            actor: who did it.
            action: what was done.
            target: to what.
            only_open: only entries that begin an action whose end is not in the chain.
            before: a moment, or the `place` of an entry.
            limit: how many at most; None: all.
        """
        left = limit
        while left is None or left > 0:
            asked = scan(
                scopes=[scope] if isinstance(scope, str) else scope,
                actor=actor,
                action=action,
                target=target,
                only_open=only_open,
                before=before,
                limit=_PAGE if left is None else min(left, _PAGE),
            )
            found = (await self._engine.perform_on(None, ask(asked))).entries
            for stored in found:
                entry = show_entry(stored)
                before = entry.place
                yield entry
            if len(found) < asked.limit:
                return
            left = None if left is None else left - len(found)

    async def verify(self, *, scope: str | None = None, anchors: Sequence[Anchor] = ()) -> AuditReport:
        """Compare one chain or all of them with what was written.

        Args:
            scope: only the chain of this scope.
            anchors: seals that were written down elsewhere.
        """
        return await self._engine.perform_on(None, verify(scope, anchors))

    async def seal(self, *, scope: str | None = None) -> list[Anchor]:
        """Seal what is not sealed yet, and give the last seal of each chain, to be written down elsewhere."""
        return await self._engine.perform_on(None, self._flows.seal(scope))

    async def redact(self, *, scope: str, seq: int, actor: str, reason: str) -> AuditEntry:
        """Take reason and details out of an entry, and give the entry that says so; the chain stays whole.

        Raises:
            RecordNotFound: there is no such entry, or nothing is left in it.
        """
        return await self._engine.perform_on(None, self._flows.redact(scope, seq, actor=actor, reason=reason))

    async def expire(self, *, older_than: timedelta, actor: str, reason: str) -> int:
        """Delete entries that are sealed and older, and give how many; each chain has an entry that says so."""
        return await self._engine.perform_on(None, self._flows.expire(older_than, actor=actor, reason=reason))


def end_of(new: NewEntry, under_way: RecordedAction) -> NewEntry:
    """The entry that ends an action."""
    return NewEntry(
        new.scope,
        new.actor,
        new.action,
        new.target,
        "",
        under_way.outcome[:255],
        under_way.detail,
        Phase.ENDED,
        under_way.begun.seq,
    )


def name_failure(error: BaseException) -> str:
    """What an error is called in the chain: its kind, and never its text, which may hold what it was about."""
    if isinstance(error, SemelError):
        return f"refused: {error.code}"
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit):
        return "interrupted"
    return f"failed: {type(error).__name__}"
