"""Pages about batches: all of them with their progress, and one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from semel.batch.status import STATES, BatchStatus
from semel.core.store import Capability
from semel.server.actions.batches import ListedBatch
from semel.server.audit.targets import batch_target
from semel.server.console.charts import meter
from semel.server.console.deeds import batch_deeds
from semel.server.console.pages.forms import read_number
from semel.server.console.rendering import share
from semel.server.console.view import View, query_text

PAGE: Final = 50
ITEMS: Final = 20
_TONES: Final = (("completed", "good"), ("failed", "bad"), ("in_doubt", "warn"), ("skipped", "calm"))


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch as a page shows it."""

    scope: str
    status: BatchStatus
    query: str

    @property
    def bars(self) -> list[dict[str, object]]:
        """What became of its items, as parts of a bar."""
        return meter([(tone, getattr(self.status, name)) for name, tone in _TONES], self.status.total)

    @property
    def summary(self) -> str:
        """The bar in words."""
        told = ", ".join(f"{getattr(self.status, name):,} {name.replace('_', ' ')}" for name, _ in _TONES)
        return f"{told}, {self.status.remaining:,} left of {self.status.total:,}"

    @property
    def progress(self) -> str:
        """How much of it has ended."""
        return share(self.status.total - self.status.remaining, self.status.total)


def _row(listed: ListedBatch) -> BatchRow:
    return BatchRow(listed.scope, listed.status, query_text({"scope": listed.scope, "batch": listed.status.id}))


async def show_batches(view: View) -> Response:
    """Batches with their progress, the newest first, of one state or of any."""
    state, after = view.asked("state"), read_number(view.asked("after", "0"), "after")
    wanted: Any = state or None
    listed = await view.actions.batches(view.user, state=wanted, limit=PAGE + 1, after=after, newest_first=True)
    shown = listed[:PAGE]
    last = str(shown[-1].number) if len(listed) > PAGE else ""
    return view.page(
        "batches.html",
        here="/batches",
        rows=[_row(one) for one in shown],
        states=STATES,
        state=state,
        is_kept=view.actions.has(Capability.BATCH),
        next=f"/batches{query_text({'state': state, 'after': last})}" if last else "",
    )


async def show_batch(view: View) -> Response:
    """One batch, and which of its items need a look."""
    scope, name = view.asked("scope"), view.asked("batch")
    status = await view.actions.batch(view.user, scope, name)
    row = _row(ListedBatch(scope, status))
    deeds = batch_deeds(status.state, failed=status.failed, in_doubt=status.in_doubt)
    kinds = [(kind, number) for kind, number in (("failed", status.failed), ("in_doubt", status.in_doubt)) if number]
    shown: Any = view.asked("items") or (kinds[0][0] if kinds else "")
    after = view.asked("after")
    items = (
        await view.actions.batch_items(
            view.user, scope, name, shown, after=read_number(after, "after") if after else None, limit=ITEMS + 1
        )
        if shown
        else ()
    )
    last = str(items[ITEMS - 1].position) if len(items) > ITEMS else ""
    place = {"scope": scope, "batch": name}
    is_paused = status.state == "paused"
    return view.page(
        "batch.html",
        here="/batches",
        row=row,
        status=status,
        paused_by=await view.actions.find_who_paused(view.user, scope, batch_target(name), reason=status.reason)
        if is_paused
        else "",
        metadata="" if status.metadata is None else repr(status.metadata)[:2000],
        choices=[deed for deed in deeds if view.may(deed.permission)],
        legend=[(tone, name.replace("_", " ")) for name, tone in _TONES],
        items=items[:ITEMS],
        kinds=[(kind, number, f"/batch{query_text(place | {'items': kind})}") for kind, number in kinds],
        shown=shown,
        next=f"/batch{query_text(place | {'items': shown, 'after': last})}" if last else "",
    )
