"""One item of a batch, run where somebody else decides when and where: inside an engine that repeats tasks by design.

- The item has the same key as in a run of the whole batch, so whatever runs it a second time gives what it gave.
- The row of the item, the counts and the page follow its record, as in a run. Whoever ends the last item of a page
  finishes the page, and whoever finishes the last page ends the batch; what a crash left is finished by whoever asks
  for an item of that page next, and by any run.
- A page that commits as a whole has no records of items, so a batch is either committed by page or run item by item:
  the first of the two decides, in a record.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final, NoReturn, Protocol, TypeVar, Unpack, overload

from msgspec.structs import replace

from semel.api import AsyncSemel, Semel
from semel.batch.async_runner import AsyncItemCall, AsyncRunner
from semel.batch.batches import ITEM_FIELDS, Batch, parts_of
from semel.batch.ends import KEEPS_ERRORS, is_record_of, is_rolled_back
from semel.batch.engines.commit_mode import async_decide_commit, sync_decide_commit
from semel.batch.items import Skip, make_item_handler, refuse_sealed_items
from semel.batch.settings import ItemPolicyFields, PageWork, ReadyItem, RunSettings, make_settings
from semel.batch.sync_runner import SyncItemCall, SyncRunner
from semel.core import codec
from semel.core.batch.operations import (
    EndBatch,
    FindItems,
    FindPages,
    FinishPage,
    ReadItems,
    ReadRecords,
    ReopenItems,
    TakePage,
)
from semel.core.batch.rows import status_of_record
from semel.core.batch.values import SKIPPED, BatchPage, ItemStatus, State, StoredItem
from semel.core.policy import WhenRunning
from semel.engine import call_errors, context
from semel.engine.call_flow import Result
from semel.engine.decorator import check_async_function, check_sync_function
from semel.engine.engine import refuse_unknown
from semel.errors import (
    FailedBefore,
    KeyReused,
    RecordNotFound,
    ResultNotKept,
    SemelError,
    StoreUnavailable,
    TryLater,
    UsageError,
)
from semel.transactions import transaction_of
from semel.validation import Duration

R = TypeVar("R")
_PAGE: Final = 100
_PAGES: Final = 50
_PAUSED: Final = timedelta(seconds=2)


class SingleItemPolicyFields(ItemPolicyFields, total=False):
    """The fields of a policy that an item by itself can have: it may also wait for whoever runs it."""

    when_running: WhenRunning
    wait_for: Duration


ITEM_POLICY_FIELDS: Final = ITEM_FIELDS | {"when_running", "wait_for"}


class AsyncItem(Protocol):
    """Makes functions run under the record of one item."""

    def __call__(self, function: Callable[..., Awaitable[R]], /) -> Callable[[], Awaitable[R]]:
        """The function, which runs once for this item and takes nothing any more."""


@overload
def item(
    batch: Batch[AsyncSemel],
    id: str,
    *,
    transaction: Callable[[], Any] | str | None = None,
    max_attempts: int = 1,
    **policy: Unpack[SingleItemPolicyFields],
) -> AsyncItem: ...


@overload
def item(
    batch: Batch[Semel],
    id: str,
    *,
    transaction: Callable[[], Any] | str | None = None,
    max_attempts: int = 1,
    **policy: Unpack[SingleItemPolicyFields],
) -> SyncItem: ...


def item(
    batch: Batch[Any],
    id: str,  # noqa: A002 - as items call it
    *,
    transaction: Callable[[], Any] | str | None = None,
    max_attempts: int = 1,
    **policy: Any,
) -> Any:
    """Make a function safe to be repeated: called any number of times, anywhere, it runs once for this item.

    What is decorated is called without arguments, and gives what the function gave the first time. Its end is noted in
    the batch, which is completed when all its items have ended so. It raises what the function raises; once that is
    final, `FailedBefore`; `Skip` for an item that is skipped; `InProgress` where another process runs the item for
    longer than `wait_for`; `TryLater` where the batch is paused or still loaded; `UsageError` where it was cancelled or
    is committed by page; and `RecordNotFound` where it has no such item.

    Args:
        batch: which batch.
        id: of the item.
        transaction: as for `Batch.run`: the record of the item commits together with what the function writes.
        max_attempts: how often the item is tried that fails, over all processes.
        policy: fields of the policy of items.

    Raises:
        UsageError: something cannot be used so; nothing ran.
    """
    if not isinstance(id, str):
        raise UsageError(f"An item is named by its id, a text, not by a {type(id).__name__}; nothing ran.")
    refuse_unknown("item()", policy.keys() - ITEM_POLICY_FIELDS, ITEM_POLICY_FIELDS)

    def decorate(function: Callable[..., Any]) -> Callable[[], Any]:
        runner = make_item_runner(batch, function, transaction=transaction, max_attempts=max_attempts, **policy)

        @functools.wraps(function)
        def run() -> Any:
            return runner().run_one(id)

        del run.__wrapped__  # its signature is another one
        return run

    return decorate


def make_item_runner(
    batch: Batch[Any],
    function: Callable[..., Any],
    *,
    transaction: Callable[[], Any] | str | None,
    max_attempts: int,
    **policy: Any,
) -> Callable[[], Any]:
    """What makes a runner for single items of a batch, one for each item.

    Raises:
        UsageError: the function or a setting cannot be used so.
    """
    engine, stored, type_ = parts_of(batch)
    is_async = isinstance(batch.semel, AsyncSemel)
    (check_async_function if is_async else check_sync_function)(function)
    chosen = engine.policy_for(batch.operation, None, policy)
    settings = make_settings(
        make_item_handler(function, type_),
        engine.shapes.of(function),
        chosen,
        concurrency=1,
        page=_PAGE,
        max_attempts=max_attempts,
        max_failed=None,
        rate=None,
        transaction=transaction_of(transaction, engine),
        commit="item",
        wait=False,
    )
    waiting = settings.policy.replace(when_running=chosen.when_running, wait_for=chosen.wait_for)
    given: RunSettings = dataclasses.replace(settings, policy=waiting)
    kind: Any = AsyncSingleRunner if is_async else SyncSingleRunner
    return lambda: kind(engine, stored, given)


def refuse_state(batch: str, state: State) -> NoReturn:
    """Say why no item runs.

    Raises:
        TryLater: it may run later.
        UsageError: it never will.
    """
    if state in ("paused", "loading"):
        why = "is paused" if state == "paused" else "is still being loaded"
        raise TryLater(f"The batch {batch!r} {why}, so its items do not run; nothing ran.", retry_after=_PAUSED)
    raise UsageError(f"The batch {batch!r} is {state}, so its items do not run; nothing ran.")


def _outage_error(id_: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"The transaction of the item {id_!r} did not commit: its database was not there, or another transaction was "
        f"in the way. No attempt is counted; run the item again."
    )


def _is_skipped(error: FailedBefore) -> bool:
    return error.error_type == SKIPPED


class AsyncSingleRunner(AsyncRunner):
    """Runs single items of a batch."""

    _call: AsyncItemCall | None = None

    @property
    def handler_error(self) -> Exception | None:
        """What the function itself raised, whatever kind of error that is."""
        return None if self._call is None else self._call.handler_error

    async def run_one(self, id_: str) -> Any:
        """Run an item, or give what it gave.

        Raises:
            RecordNotFound: the batch has no such item.
        """
        self._refuse_joining()
        found = await self.ask(FindItems(self.batch.number, (id_,)))
        if not found.items:
            raise RecordNotFound(f"The batch {self.batch.id!r} has no item {id_!r}; nothing ran.")
        refuse_sealed_items(found.items)
        (item,) = found.items
        if item.status == ItemStatus.PENDING:
            await self._prepare(item)
        elif not self.batch.page:
            await self.begin()
        work = PageWork(BatchPage(item.position // self.batch.page, 0), None, [item], 1)
        try:
            value = await self._run_or_replay(work, item)
        except Exception as error:
            await self._finish_page_of(item)
            if isinstance(error, FailedBefore) and _is_skipped(error):
                raise Skip(error.error_message) from error
            raise
        finally:
            close = getattr(self.settings.transaction, "close_connection", None)
            if close is not None:
                close()
        await self._finish_page_of(item)
        return value

    async def _prepare(self, item: StoredItem) -> None:
        """See to it that the batch runs, that it is not committed by page, and that the page is handed out.

        Counts are kept for pages that were handed out; one that nobody works on is found because it is not done.
        """
        if not self.batch.page:
            await self.begin()
            if self.batch.state not in ("running", "completed"):
                refuse_state(self.batch.id, self.batch.state)
        await async_decide_commit(self.engine, self.batch, "item")
        while True:
            taken = await self.ask(TakePage(self.batch.number))
            if taken.state not in ("running", "completed"):
                refuse_state(self.batch.id, taken.state)
            if taken.page is None or taken.page.page >= item.position // self.batch.page:
                return

    async def _run_or_replay(self, work: PageWork, item: StoredItem) -> Any:
        if item.status != ItemStatus.PENDING:
            return await self._replay(work, item)
        if self.settings.transaction is not None:
            return await self._run_in_transaction(work, item)
        self._call = AsyncItemCall(self, ReadyItem(work, item))
        try:
            result = await self._call.run()
        except SemelError as error:
            if error is not self.handler_error:
                await self._note_answer(work, item, error)
            raise
        if result.replayed:
            await self._note(work, item, ItemStatus.COMPLETED)
        return result.value

    async def _note_answer(self, work: PageWork, item: StoredItem, error: SemelError) -> None:
        """Note in the row what an answer of the engine says of the item, if it says anything."""
        if not isinstance(error, UsageError) or isinstance(error, KeyReused):
            try:
                await self._explain(work, item, error)
            except SemelError:
                return  # it says nothing of the item, and is raised by the caller

    async def _run_in_transaction(self, work: PageWork, item: StoredItem) -> Any:
        begin = self.settings.transaction
        assert begin is not None  # noqa: S101 - asked by the caller
        result: Result[Any] | None = None
        try:
            async with begin() as session:
                joined = self.engine.store.async_join(session)
                self._call = AsyncItemCall(self, ReadyItem(work, item), joined, session)
                with context.joining(self.engine.store.name, joined):
                    result = await self._call.run()
        except Exception as error:
            own = self.handler_error
            if isinstance(error, SemelError) and error is not own and not is_rolled_back(error):
                await self._note_answer(work, item, error)
            elif self._is_outage(error, is_own=error is own):
                raise _outage_error(item.id) from error
            elif not isinstance(error, UsageError) or error is own:
                await self._count(work, item, error)
            raise
        if result is None:
            raise UsageError(KEEPS_ERRORS)
        if not self._has_seen_commit and not result.replayed:
            await self._check_commit(item)
        await self._note(work, item, ItemStatus.COMPLETED)
        return result.value

    async def _replay(self, work: PageWork, item: StoredItem) -> Any:
        """Give what became of an item whose row has ended; its record decides, also that it runs again.

        Raises:
            KeyReused: its key was used for something else.
        """
        if item.outcome is not None:
            return codec.decode(item.outcome, self.settings.shape)
        key = self.request_of(item).key
        (record,) = (await self.ask(ReadRecords((key.digest,)))).records
        if record is not None and not is_record_of(item, record, self.engine.fingerprints):
            raise call_errors.key_reused_error(key)
        status = status_of_record(record)
        if record is not None and status is not None:
            await self._note(work, item, status)
            return call_errors.replay(record, self.settings.shape)
        if item.status == ItemStatus.SKIPPED:
            raise Skip("it was skipped, and does not run again in this batch")
        if record is None or item.status == ItemStatus.COMPLETED:
            raise ResultNotKept(f"The item {item.id!r} has ended, and nothing of it was kept; nothing ran.")
        if item.status == ItemStatus.IN_DOUBT and not record.settled:
            raise call_errors.in_doubt_error(record, None)
        return await self._run_again(work, item)

    async def _run_again(self, work: PageWork, item: StoredItem) -> Any:
        """Run an item that has ended by its row: somebody has opened its record, and may have been cut off then."""
        await self._prepare(item)
        await self.ask(ReopenItems(self.batch.number, work.page.page, (item.position,), item.status))
        return await self._run_or_replay(work, replace(item, status=int(ItemStatus.PENDING)))

    async def _finish_page_of(self, item: StoredItem) -> None:
        """Finish the page of an item if this was its last one, and end the batch if that was its last page."""
        page = item.position // self.batch.page
        first = page * self.batch.page
        if not await self._are_all_ended(first, min(first + self.batch.page, self.batch.total), item.position):
            return
        found = (await self.ask(FindPages(self.batch.number, "open", page - 1, 1))).pages
        if found and found[0].page == page:
            await self._finish_open_page(found[0])
        await self.ask(EndBatch(self.batch.number))

    async def _finish_open_page(self, page: BatchPage) -> None:
        """Finish a page of which nothing was pending: to open it is to finish it.

        Its holder may be dead, and nobody may come back when its lease has ended: then its counts alone decide.
        """
        try:
            await self._open_page(page)
        finally:
            await self._leave()  # a retry has opened items since it was read: they are left to others
        await self.ask(FinishPage(self.batch.number, page.page, page.round))

    async def finish_left_pages(self) -> None:
        """Finish pages that a crash left with nothing pending in them, and end the batch if it is over."""
        await self.begin()
        after = -1
        while True:
            pages = (await self.ask(FindPages(self.batch.number, "open", after, _PAGES))).pages
            for page in pages:
                first = page.page * self.batch.page
                if await self._are_all_ended(first, min(first + self.batch.page, self.batch.total), first):
                    await self._finish_open_page(page)
            if len(pages) < _PAGES:
                break
            after = pages[-1].page
        await self.ask(EndBatch(self.batch.number))

    async def _are_all_ended(self, first: int, end: int, position: int) -> bool:
        """Whether no item of a page is pending. Most often a neighbour is, so reads begin short and grow."""
        size = 2
        for low, high in ((position, end), (first, position)):
            begin = low
            while begin < high:
                until = min(begin + size, high)
                if (await self.ask(ReadItems(self.batch.number, begin, until, int(ItemStatus.PENDING)))).items:
                    return False
                begin, size = until, size * 4
        return True

    def _refuse_joining(self) -> None:
        if context.joined_here(self.engine.store.name) is not None:
            raise UsageError(
                "An item of a batch has a transaction of its own, and was run inside within(); nothing ran. Give "
                "transaction=, or run it outside."
            )


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class SyncItem(Protocol):
    """Makes functions run under the record of one item."""

    def __call__(self, function: Callable[..., R], /) -> Callable[[], R]:
        """The function, which runs once for this item and takes nothing any more."""


class SyncSingleRunner(SyncRunner):
    """Runs single items of a batch."""

    _call: SyncItemCall | None = None

    @property
    def handler_error(self) -> Exception | None:
        """What the function itself raised, whatever kind of error that is."""
        return None if self._call is None else self._call.handler_error

    def run_one(self, id_: str) -> Any:
        """Run an item, or give what it gave.

        Raises:
            RecordNotFound: the batch has no such item.
        """
        self._refuse_joining()
        found = self.ask(FindItems(self.batch.number, (id_,)))
        if not found.items:
            raise RecordNotFound(f"The batch {self.batch.id!r} has no item {id_!r}; nothing ran.")
        refuse_sealed_items(found.items)
        (item,) = found.items
        if item.status == ItemStatus.PENDING:
            self._prepare(item)
        elif not self.batch.page:
            self.begin()
        work = PageWork(BatchPage(item.position // self.batch.page, 0), None, [item], 1)
        try:
            value = self._run_or_replay(work, item)
        except Exception as error:
            self._finish_page_of(item)
            if isinstance(error, FailedBefore) and _is_skipped(error):
                raise Skip(error.error_message) from error
            raise
        finally:
            close = getattr(self.settings.transaction, "close_connection", None)
            if close is not None:
                close()
        self._finish_page_of(item)
        return value

    def _prepare(self, item: StoredItem) -> None:
        """See to it that the batch runs, that it is not committed by page, and that the page is handed out.

        Counts are kept for pages that were handed out; one that nobody works on is found because it is not done.
        """
        if not self.batch.page:
            self.begin()
            if self.batch.state not in ("running", "completed"):
                refuse_state(self.batch.id, self.batch.state)
        sync_decide_commit(self.engine, self.batch, "item")
        while True:
            taken = self.ask(TakePage(self.batch.number))
            if taken.state not in ("running", "completed"):
                refuse_state(self.batch.id, taken.state)
            if taken.page is None or taken.page.page >= item.position // self.batch.page:
                return

    def _run_or_replay(self, work: PageWork, item: StoredItem) -> Any:
        if item.status != ItemStatus.PENDING:
            return self._replay(work, item)
        if self.settings.transaction is not None:
            return self._run_in_transaction(work, item)
        self._call = SyncItemCall(self, ReadyItem(work, item))
        try:
            result = self._call.run()
        except SemelError as error:
            if error is not self.handler_error:
                self._note_answer(work, item, error)
            raise
        if result.replayed:
            self._note(work, item, ItemStatus.COMPLETED)
        return result.value

    def _note_answer(self, work: PageWork, item: StoredItem, error: SemelError) -> None:
        """Note in the row what an answer of the engine says of the item, if it says anything."""
        if not isinstance(error, UsageError) or isinstance(error, KeyReused):
            try:
                self._explain(work, item, error)
            except SemelError:
                return  # it says nothing of the item, and is raised by the caller

    def _run_in_transaction(self, work: PageWork, item: StoredItem) -> Any:
        begin = self.settings.transaction
        assert begin is not None  # noqa: S101 - asked by the caller
        result: Result[Any] | None = None
        try:
            with begin() as session:
                joined = self.engine.store.join(session)
                self._call = SyncItemCall(self, ReadyItem(work, item), joined, session)
                with context.joining(self.engine.store.name, joined):
                    result = self._call.run()
        except Exception as error:
            own = self.handler_error
            if isinstance(error, SemelError) and error is not own and not is_rolled_back(error):
                self._note_answer(work, item, error)
            elif self._is_outage(error, is_own=error is own):
                raise _outage_error(item.id) from error
            elif not isinstance(error, UsageError) or error is own:
                self._count(work, item, error)
            raise
        if result is None:
            raise UsageError(KEEPS_ERRORS)
        if not self._has_seen_commit and not result.replayed:
            self._check_commit(item)
        self._note(work, item, ItemStatus.COMPLETED)
        return result.value

    def _replay(self, work: PageWork, item: StoredItem) -> Any:
        """Give what became of an item whose row has ended; its record decides, also that it runs again.

        Raises:
            KeyReused: its key was used for something else.
        """
        if item.outcome is not None:
            return codec.decode(item.outcome, self.settings.shape)
        key = self.request_of(item).key
        (record,) = (self.ask(ReadRecords((key.digest,)))).records
        if record is not None and not is_record_of(item, record, self.engine.fingerprints):
            raise call_errors.key_reused_error(key)
        status = status_of_record(record)
        if record is not None and status is not None:
            self._note(work, item, status)
            return call_errors.replay(record, self.settings.shape)
        if item.status == ItemStatus.SKIPPED:
            raise Skip("it was skipped, and does not run again in this batch")
        if record is None or item.status == ItemStatus.COMPLETED:
            raise ResultNotKept(f"The item {item.id!r} has ended, and nothing of it was kept; nothing ran.")
        if item.status == ItemStatus.IN_DOUBT and not record.settled:
            raise call_errors.in_doubt_error(record, None)
        return self._run_again(work, item)

    def _run_again(self, work: PageWork, item: StoredItem) -> Any:
        """Run an item that has ended by its row: somebody has opened its record, and may have been cut off then."""
        self._prepare(item)
        self.ask(ReopenItems(self.batch.number, work.page.page, (item.position,), item.status))
        return self._run_or_replay(work, replace(item, status=int(ItemStatus.PENDING)))

    def _finish_page_of(self, item: StoredItem) -> None:
        """Finish the page of an item if this was its last one, and end the batch if that was its last page."""
        page = item.position // self.batch.page
        first = page * self.batch.page
        if not self._are_all_ended(first, min(first + self.batch.page, self.batch.total), item.position):
            return
        found = (self.ask(FindPages(self.batch.number, "open", page - 1, 1))).pages
        if found and found[0].page == page:
            self._finish_open_page(found[0])
        self.ask(EndBatch(self.batch.number))

    def _finish_open_page(self, page: BatchPage) -> None:
        """Finish a page of which nothing was pending: to open it is to finish it.

        Its holder may be dead, and nobody may come back when its lease has ended: then its counts alone decide.
        """
        try:
            self._open_page(page)
        finally:
            self._leave()  # a retry has opened items since it was read: they are left to others
        self.ask(FinishPage(self.batch.number, page.page, page.round))

    def finish_left_pages(self) -> None:
        """Finish pages that a crash left with nothing pending in them, and end the batch if it is over."""
        self.begin()
        after = -1
        while True:
            pages = (self.ask(FindPages(self.batch.number, "open", after, _PAGES))).pages
            for page in pages:
                first = page.page * self.batch.page
                if self._are_all_ended(first, min(first + self.batch.page, self.batch.total), first):
                    self._finish_open_page(page)
            if len(pages) < _PAGES:
                break
            after = pages[-1].page
        self.ask(EndBatch(self.batch.number))

    def _are_all_ended(self, first: int, end: int, position: int) -> bool:
        """Whether no item of a page is pending. Most often a neighbour is, so reads begin short and grow."""
        size = 2
        for low, high in ((position, end), (first, position)):
            begin = low
            while begin < high:
                until = min(begin + size, high)
                if (self.ask(ReadItems(self.batch.number, begin, until, int(ItemStatus.PENDING)))).items:
                    return False
                begin, size = until, size * 4
        return True

    def _refuse_joining(self) -> None:
        if context.joined_here(self.engine.store.name) is not None:
            raise UsageError(
                "An item of a batch has a transaction of its own, and was run inside within(); nothing ran. Give "
                "transaction=, or run it outside."
            )
