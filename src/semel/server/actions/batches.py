"""What an operator does to batches: look at them, pause, resume, cancel, and retry their items.

- Batches of semel's own do not exist here. A bulk action is one, and has rules of its own: `semel.server.bulk`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from semel.api import AsyncSemel
from semel.batch import Batches
from semel.batch.batches import Batch
from semel.batch.control import list_page
from semel.batch.items import ItemResult
from semel.batch.status import STATES, BatchState, BatchStatus
from semel.core.batch.values import StoredBatch
from semel.core.key import SHARED, is_internal
from semel.core.store import Capability
from semel.engine.engine import engine_of
from semel.errors import RecordNotFound
from semel.server.access import Permission, User
from semel.server.actions.checks import ActionsBase, not_found_error
from semel.server.audit.targets import batch_target
from semel.server.refusals import Invalid, NotPossible

T = TypeVar("T")
Retried = Literal["failed", "in_doubt"]
PAGE: Final = 100
_ENTRIES: Final = 50
"""How many entries about a batch are looked through for the one that paused it: retries leave entries too."""
_STATE_CHANGES: Final = frozenset({"pause", "resume", "cancel"})


@dataclass(frozen=True, slots=True)
class ListedBatch:
    """A batch as a list shows it: whose it is, how far, and its number, after which a next page goes on."""

    scope: str
    status: BatchStatus
    number: int = 0


class BatchActions(ActionsBase):
    """Batches: list, show, pause, resume, cancel, retry. Each is named by its scope (empty: shared) and its id."""

    async def batches(
        self,
        user: User,
        *,
        state: BatchState | None = None,
        scope: str | None = None,
        limit: int = PAGE,
        after: int = 0,
        newest_first: bool = False,
    ) -> tuple[ListedBatch, ...]:
        """Batches that exist for a user, in the order in which they were begun, or the newest first.

        `after` is the number of the last one of the page before; 0 is the beginning.
        """
        self.demand(user, Permission.LIST)
        if state is not None and state not in STATES:
            raise Invalid(f"A state is one of {', '.join(STATES)}; nothing was read.", because="state")
        if Capability.BATCH not in engine_of(self.semel).store.capabilities:
            return ()
        found: list[StoredBatch] = []
        for one in self.scopes_asked(user, scope):
            found += await self._batches_of(one, state, after, limit, newest_first=newest_first)
        found.sort(key=lambda stored: stored.number, reverse=newest_first)
        return tuple([ListedBatch(stored.scope, await self._status(stored), stored.number) for stored in found[:limit]])

    async def _batches_of(
        self, scope: str | None, state: BatchState | None, after: int, limit: int, *, newest_first: bool
    ) -> list[StoredBatch]:
        """So many batches of a scope that are not semel's own."""
        found: list[StoredBatch] = []
        while len(found) < limit:
            page: tuple[StoredBatch, ...] = await self.perform(
                list_page(scope, state, after, newest_first=newest_first)
            )
            found += [stored for stored in page if not is_internal(stored.operation)]
            if not page:
                break
            after = page[-1].number
        return found[:limit]

    async def batch_items(
        self, user: User, scope: str, batch: str, status: Retried, *, after: int | None = None, limit: int = PAGE
    ) -> tuple[ItemResult[Any], ...]:
        """Items of a batch that failed or are in doubt, with why, in the order of the input; their values stay out."""
        self.demand(user, Permission.SHOW)
        if status not in ("failed", "in_doubt"):
            raise Invalid("Items are shown that are failed or in_doubt; nothing was read.", because="items")
        found = await self._find_batch(user, scope, batch)
        items: list[ItemResult[Any]] = []
        async for item in found.results(status=status, after=after):
            items.append(item)
            if len(items) == limit:
                break
        return tuple(items)

    async def batch(self, user: User, scope: str, batch: str) -> BatchStatus:
        """How far a batch is.

        Raises:
            NotFound: there is none that exists for the user.
        """
        self.demand(user, Permission.SHOW)
        found = await self._find_batch(user, scope, batch)
        return await self.told(found.status())

    async def find_who_paused(self, user: User, scope: str, target: str, *, reason: str | None) -> str:
        """Who paused a batch or a bulk action with this reason, from the audit chain; empty where that is not known.

        `target` is what the chain calls it.

        It is known of what was done here or at the command line: the library, and a run that stops by itself, write no
        entry. Whoever may not read the chain is told nobody.
        """
        if self.audit is None or not reason or Permission.AUDIT not in user.permissions or not user.reaches(scope):
            return ""
        found = self.audit.entries(scope=scope, target=target, limit=_ENTRIES)

        async def read() -> str:
            async for entry in found:
                # Chains may have entries of earlier releases, with what was done in the name: `batch pause`.
                what = entry.detail.get("what") or entry.action.removeprefix(f"{Permission.BATCH} ")
                if entry.phase == "begun" and what in _STATE_CHANGES:
                    return entry.actor if what == "pause" and entry.reason == reason.strip() else ""
            return ""

        return await self.told(read())

    async def pause_batch(self, user: User, scope: str, batch: str, *, reason: str) -> BatchStatus:
        """Let running items end, and begin no others."""
        return await self._change_batch(user, "pause", (scope, batch), lambda one: one.pause(reason), reason=reason)

    async def resume_batch(self, user: User, scope: str, batch: str, *, reason: str) -> BatchStatus:
        """Let a paused batch be run again."""
        return await self._change_batch(user, "resume", (scope, batch), lambda one: one.resume(), reason=reason)

    async def cancel_batch(self, user: User, scope: str, batch: str, *, reason: str) -> BatchStatus:
        """End a batch for good."""
        return await self._change_batch(user, "cancel", (scope, batch), lambda one: one.cancel(reason), reason=reason)

    async def retry_batch(self, user: User, scope: str, batch: str, which: Retried, *, reason: str) -> int:
        """Have items run again that failed or are in doubt; answers how many."""
        if which not in ("failed", "in_doubt"):
            raise Invalid("Items are retried that are failed or in_doubt; nothing was changed.", because="which")
        return await self._change_batch(
            user, f"retry {which}", (scope, batch), lambda one: one.retry(which, reason=reason), reason=reason
        )

    async def _change_batch(
        self,
        user: User,
        what: str,
        named: tuple[str, str],
        work: Callable[[Batch[AsyncSemel]], Awaitable[T]],
        *,
        reason: str,
    ) -> T:
        self.demand(user, Permission.BATCH)
        scope, batch = named
        found = await self._find_batch(user, scope, batch)
        return await self.change(
            user,
            Permission.BATCH,
            lambda: work(found),
            scope=scope,
            target=batch_target(batch),
            reason=reason,
            detail={"what": what, "operation": found.operation},
        )

    async def _find_batch(self, user: User, scope: str, batch: str) -> Batch[AsyncSemel]:
        if Capability.BATCH not in engine_of(self.semel).store.capabilities:
            raise NotPossible(f"{engine_of(self.semel).store.name} keeps no batches; nothing was done.")
        if not user.reaches(scope):
            raise not_found_error(f"batch {batch!r}")
        try:
            found = await Batches(self.semel, scope or SHARED).get(batch)
        except RecordNotFound:
            raise not_found_error(f"batch {batch!r}") from None
        if is_internal(found.operation):
            raise not_found_error(f"batch {batch!r}")
        return found

    async def _status(self, stored: StoredBatch) -> BatchStatus:
        return await self.told(Batch(self.semel, stored).status())
