"""Mistakes one could make with batches, each as a switch that puts it in, and the invariants that may give it away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from semel.batch import async_runner
from semel.batch.async_runner import AsyncRunner
from semel.batch.settings import RunSettings
from semel.core.batch.operations import EndBatch, FindPages, ItemEnd, PagesFound, SettleItems
from semel.core.batch.values import ItemStatus, item_key
from semel.core.operations import Fail
from semel.stores.batch import memory
from semel.stores.batch.memory import MemoryBatches
from semel.stores.memory import Table

Switch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class BatchMutant:
    """A mistake, the invariants it breaks, and the world that gives it away soonest; empty: any."""

    name: str
    switch: Switch
    breaks: frozenset[str]
    world: str

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


BATCH_MUTANTS: list[BatchMutant] = []


def mutant(name: str, *breaks: str, world: str = "") -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        BATCH_MUTANTS.append(BatchMutant(name, switch, frozenset(breaks), world))
        return switch

    return add


@mutant("rows change and are not counted", "B1")
def _() -> AbstractContextManager[Any]:
    def set_row(_self: Any, known: Any, item: Any, status: int, outcome: bytes | None) -> None:
        known.items[item.position] = replace(item, status=int(status), outcome=outcome)

    return patch.object(MemoryBatches, "_set", set_row)


@mutant("a row follows although its record was lost", "B3", world="batches: workers that stand still")
def _() -> AbstractContextManager[Any]:
    right: Any = Table.batch

    def batch(self: Any, operation: Any, now: int) -> Any:
        answer = right(self, operation, now)
        if isinstance(operation, SettleItems):
            self.batches.settle(operation.number, operation.page, operation.ends, now)
        return answer

    return patch.object(Table, "batch", batch)


@mutant("a late failure replaces a success", "B3", world="batches: workers that stand still")
def _() -> AbstractContextManager[Any]:
    right: Any = Table.batch

    def batch(self: Any, operation: Any, now: int) -> Any:
        answer = right(self, operation, now)
        if isinstance(operation, SettleItems):
            self.batches.settle(operation.number, operation.page, operation.ends, now)
        return answer

    return _Both(
        patch.object(memory, "may_change", lambda before, after: before != after), patch.object(Table, "batch", batch)
    )


@mutant("a batch ends while a page is open", "B4")
def _() -> AbstractContextManager[Any]:
    right: Any = AsyncRunner._open_left_page

    async def open_left_page(self: Any) -> bool:
        await self.ask(EndBatch(self.batch.number))
        return bool(await right(self))

    return _Both(
        patch.object(memory, "_is_done", lambda _known: True),
        patch.object(AsyncRunner, "_open_left_page", open_left_page),
    )


@mutant("a page whose worker died is forgotten", "B4")
def _() -> AbstractContextManager[Any]:
    right: Any = MemoryBatches.apply

    def apply(self: Any, operation: Any, now: int) -> Any:
        return PagesFound(()) if isinstance(operation, FindPages) else right(self, operation, now)

    return patch.object(MemoryBatches, "apply", apply)


@mutant("whoever takes a page over runs items under keys of its own", "B2", "B3")
def _() -> AbstractContextManager[Any]:
    right: Any = item_key

    def own_key(scope: str, operation: str, batch: str, item: str) -> Any:
        return right(scope, operation, batch, f"{item}/mine")

    return patch.object(async_runner, "item_key", own_key)


@mutant("a replayed item is not noted", "B4")
def _() -> AbstractContextManager[Any]:
    async def note(*_arguments: Any) -> None:
        return None

    return patch.object(AsyncRunner, "_note", note)


@mutant("what is in doubt under hold counts as completed", "B3")
def _() -> AbstractContextManager[Any]:
    right: Any = AsyncRunner._send_end

    async def send_end(self: Any, work: Any, end: ItemEnd) -> Any:
        changed = replace(end, status=ItemStatus.COMPLETED) if end.status == ItemStatus.IN_DOUBT else end
        return await right(self, work, changed)

    return patch.object(AsyncRunner, "_send_end", send_end)


@mutant("a failure that is to be tried again ends its item as completed", "B3")
def _() -> AbstractContextManager[Any]:
    right: Any = RunSettings.status_after

    def status_after(self: Any, write: Any) -> Any:
        return ItemStatus.COMPLETED if isinstance(write, Fail) else right(self, write)

    return patch.object(RunSettings, "status_after", status_after)


@mutant("nobody looks whether the batch still runs", "B6", world="batches: paused and resumed")
def _() -> AbstractContextManager[Any]:
    async def poll(_self: Any) -> None:
        return None

    return patch.object(AsyncRunner, "_poll", poll)


@mutant("every process counts its own failures alone", "B7", world="batches: too many failures")
def _() -> AbstractContextManager[Any]:
    right: Any = AsyncRunner._pause_if_too_many_failed

    async def pause_if_too_many_failed(self: Any, _failed: int) -> None:
        await right(self, self._failed)

    return patch.object(AsyncRunner, "_pause_if_too_many_failed", pause_if_too_many_failed)


@mutant("a batch ends without a last look at its failures", "B7", world="batches: too many failures")
def _() -> AbstractContextManager[Any]:
    right: Any = AsyncRunner._open_left_page

    async def open_left_page(self: Any) -> bool:
        most, self._most_failed = self._most_failed, None
        try:
            return bool(await right(self))
        finally:
            self._most_failed = most

    return patch.object(AsyncRunner, "_open_left_page", open_left_page)


@mutant("items of a page that was rolled back are done", "B3", world="batches: pages commit as a whole")
def _() -> AbstractContextManager[Any]:
    right: Any = AsyncRunner._run_page

    async def run_page(self: Any, work: Any) -> None:
        await right(self, work)
        await self._note(work, work.items[0], ItemStatus.COMPLETED)

    return patch.object(AsyncRunner, "_run_page", run_page)


@mutant("a page that is on its way does not look whether the batch still runs", "B6", world="batches: pages are paused")
def _() -> AbstractContextManager[Any]:
    async def stop_page_if_over(_self: Any) -> None:
        return None

    return patch.object(AsyncRunner, "_stop_page_if_over", stop_page_if_over)


@mutant("a page that somebody has begun is run as a whole", "B2", "B8", world="batches: pages commit as a whole")
def _() -> AbstractContextManager[Any]:
    def is_untouched(self: Any, work: Any) -> bool:
        return work.page.page not in self._tried or self._tried.remove(work.page.page)

    right: Any = AsyncRunner._run_page

    async def run_page(self: Any, work: Any) -> None:
        self._tried.add(work.page.page)  # only what failed here itself runs one by one
        await right(self, work)

    return _Both(
        patch.object(AsyncRunner, "_tried", property(_tried), create=True),
        patch.object(AsyncRunner, "_is_untouched", is_untouched),
        patch.object(AsyncRunner, "_run_page", run_page),
    )


def _tried(runner: Any) -> set[int]:
    found: set[int] = runner.__dict__.setdefault("tried", set())
    return found


class _Both(AbstractContextManager[Any]):
    """Two switches that make one mistake."""

    def __init__(self, *switches: AbstractContextManager[Any]) -> None:
        self._switches = switches

    def __enter__(self) -> None:
        for switch in self._switches:
            switch.__enter__()

    def __exit__(self, *raised: object) -> None:
        for switch in reversed(self._switches):
            switch.__exit__(*raised)
