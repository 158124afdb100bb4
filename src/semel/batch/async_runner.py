"""Running a batch: many workers, each with one item at a time, on pages that this process has claimed.

- An item is an ordinary call: claimed, run under its lease, ended under it. Claims are sent in advance as lists, except
  where a crash would leave in doubt what has not begun; ends are sent as lists, whatever has ended meanwhile.
- The row of an item follows its record. Taking a page over means to note what is done without running it.
- An error that was seen ends an item once its attempts are used up. What nobody saw the end of runs again, is asked
  about, or is held, as the policy says.
- What is no error of an item ends the run, never a worker alone: the others let their items end, and all is given back.
- Nothing of a batch is lost with this process: all that it holds are leases.
"""

from __future__ import annotations

import functools
from asyncio import CancelledError
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, cast

import msgspec

from semel.batch.concurrency import (
    AsyncEvent,
    WasCancelled,
    async_is_cut_off,
    async_let_others_run,
    async_run_side_by_side,
)
from semel.batch.ends import KEEPS_ERRORS, NOT_COMMITTED, failure_of, is_rolled_back, pause_after, tell_ends
from semel.batch.items import Item, Skip, refuse_sealed_items
from semel.batch.settings import PageStopped, PageWork, PendingEnd, ReadyItem, RunSettings, most_failed
from semel.core import codec
from semel.core.batch.operations import (
    BeginRun,
    ChangeBatch,
    ClaimItems,
    CommitPage,
    EndBatch,
    FindPages,
    FinishPage,
    ItemEnd,
    ReadBatch,
    ReadItems,
    ReserveRate,
    SettleItems,
    TakePage,
)
from semel.core.batch.rows import status_of_record
from semel.core.batch.values import (
    PAGE,
    SKIPPED,
    BatchPage,
    ItemStatus,
    StoredBatch,
    StoredItem,
    item_digest,
    item_key,
    page_key,
)
from semel.core.fingerprint import Digest
from semel.core.flow import Flow, ask
from semel.core.operations import (
    Claim,
    Complete,
    Counted,
    CountFailure,
    Fail,
    Granted,
    JoinTransaction,
    Lost,
    Read,
    Recorded,
    undo_grant,
)
from semel.core.record import NOTHING, About, Failure, Status
from semel.core.store import WithBatches
from semel.engine import call_errors, context
from semel.engine.async_engine import AsyncCall, AsyncEngine
from semel.engine.call_flow import Request, Result
from semel.engine.clock import async_pause
from semel.engine.decorator import async_call_function
from semel.errors import (
    FailedBefore,
    InDoubt,
    InProgress,
    KeyReused,
    LeaseLost,
    ResultNotKept,
    SemelError,
    StoreMisconfigured,
    StoreUnavailable,
    TryLater,
    UsageError,
)

_POLL: Final = 1.0
"""Seconds between two looks at the state of a batch."""
_FIRST_LOOK, _LONGEST_LOOK = 0.05, 1.0
_GIVE_UP_AFTER: Final = 120.0
"""Seconds for which a store that does not answer is asked again."""
_RESERVED_FOR: Final = 0.2
"""Seconds of the rate that are reserved together."""
_PAGES: Final = 50
_SOON: Final = 30
"""So much is claimed ahead as is begun within this part of a lease."""
_SENDERS: Final = 2
"""So many lists of ends are on their way at the same time."""
_STOPPED: Final = Failure("semel.BatchStopped", "the run ended before the handler was called")
_CANCELLED: Final = "semel.Cancelled"


def _once(operation: Any) -> Flow[Any]:
    answer = yield from ask(operation)
    return answer


async def _call_handler(handler: Callable[[], Any]) -> Any:
    """Call the handler of an item.

    Raises:
        WasCancelled: something that it waited for was cancelled, and not the handler itself.
    """
    try:
        return await async_call_function(handler)
    except CancelledError as error:
        if async_is_cut_off():
            raise
        raise WasCancelled(str(error)) from error


class AsyncItemCall(AsyncCall[Any]):
    """The call of one item. Its claim may have been sent in advance, and its end goes into a list of ends.

    Args:
        runner: whose item it is.
        ready: the item, and the answer to its claim if there is one.
        joined: the transaction that it is part of, if there is one.
        session: what its handler is given as `session`.
    """

    handler_error: Exception | None = None

    def __init__(self, runner: AsyncRunner, ready: ReadyItem, joined: Any = None, session: Any = None) -> None:
        assert ready.item is not None  # noqa: S101 - a page is no item
        self.item = ready.item
        request = ready.request or runner.request_of(self.item)
        super().__init__(runner.engine, request, self._run_handler, joined)
        self._runner = runner
        self._ready = ready
        self._session = session

    def perform(self, wanted: Any) -> Awaitable[Any]:
        """Do what the flow asks for."""
        if self._joined is None:
            kind = type(wanted)
            if kind is Claim and self._ready.answer is not None:
                answer, self._ready.answer = self._ready.answer, None
                self.asked_at = self._runner.begin_claimed(self._ready)
                return self._give(answer)
            if kind is Complete or kind is Fail:
                return self._runner.settle(self._ready.work, self.item.position, wanted)
        return super().perform(wanted)

    async def _give(self, answer: Any) -> Any:
        """Give an answer that is at hand, or raise it."""
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _run_handler(self) -> Any:
        handler, item = self._runner.settings.handler, self.item
        try:
            seen = Item(item.id, handler.decode_item(item.data), item.position, self.number, self.in_doubt)
            given = handler.arguments(seen, item.data, self.attempt, self._session)
            value = await _call_handler(functools.partial(handler.function, **given))
            if isinstance(value, Skip):
                raise value
        except Exception as error:
            self.handler_error = error
            raise
        return value

    def failure(self, error: BaseException) -> Fail:
        """What an error of the handler means for the record."""
        ending = self._ending(error)
        return Fail(self.lease, ending, failure_of(error), doubtful=self.in_doubt or ending == "doubt")

    def _ending(self, error: BaseException) -> Literal["final", "retry", "doubt"]:
        policy = self.request.policy
        is_cut_off = not isinstance(error, Exception)
        if is_cut_off or (isinstance(error, WasCancelled) and policy.in_doubt != "rerun"):
            return "doubt"  # nobody saw how far it came
        if isinstance(error, policy.final_errors) or self.number >= self._runner.settings.max_attempts:
            return "final"
        # Under another policy a doubt would wait for a person or a hook, and this end was seen.
        had_no_effect = isinstance(error, policy.retry_errors) and not self.in_doubt
        return "retry" if had_no_effect or policy.in_doubt != "rerun" else "doubt"


class AsyncRunner:
    """Works on one batch in this process, until it is over, paused, or there is nothing to do.

    Args:
        engine: what claims and records.
        batch: as it was when the run began.
        settings: what the run was told.
    """

    def __init__(self, engine: AsyncEngine, batch: StoredBatch, settings: RunSettings) -> None:
        self.engine = engine
        self.batch = batch
        self.settings = settings
        self._turn: deque[bool] = deque([True])
        self._looked = AsyncEvent()
        self._lead: deque[bool] = deque([True] * _SENDERS)
        self._ready: deque[ReadyItem] = deque()
        self._unclaimed: deque[ReadyItem] = deque()
        self._later: list[tuple[float, ReadyItem]] = []
        self._works: dict[int, PageWork] = {}
        self._ends: deque[PendingEnd] = deque()
        self._over = AsyncEvent()
        self._error: BaseException | None = None
        self._are_all_taken = False
        self._look_at = self._poll_at = self._filled_at = 0.0
        self._soon = settings.policy.lease_for.total_seconds() / _SOON
        self._lot = self._filled = 0
        self._pause = _FIRST_LOOK
        self._failed = 0
        self._failed_before = 0
        self._most_failed = most_failed(settings.max_failed, batch.total)
        self._outage_since: float | None = None
        self._store = cast("WithBatches", engine.store)  # `Batches` has refused all others
        self._turns: deque[float] = deque()
        self._turn_inside: deque[bool] = deque([True])
        self._has_seen_commit = getattr(settings.transaction, "commits_or_raises", False)

    async def begin(self) -> None:
        """Let the batch run, if it has not begun; the first run says how large its pages are."""
        begun = await self.ask(BeginRun(self.batch.number, self.settings.page))
        if begun.batch is not None:
            self.batch = begun.batch
        self._most_failed = most_failed(self.settings.max_failed, self.batch.total)
        self._failed_before = begun.counts.failed

    async def run(self) -> None:
        """Work until there is nothing more to do here.

        Raises:
            UsageError: the program has to be changed.
            StoreUnavailable: the store did not answer for too long.
            BaseException: a handler raised it, such as SystemExit, which is no error of its item alone.
        """
        if self.batch.state != "running":
            return
        try:
            count = min(self.settings.concurrency, max(self.batch.total, 1))
            await async_run_side_by_side(self._work, count, self.stop)
        finally:
            await self._leave()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Have this process begin nothing more; what runs ends, and what was claimed and not begun is given back."""
        self._over.set()

    async def _work(self) -> None:
        try:
            while (ready := await self._next()) is not None:
                if ready.item is None:
                    await self._run_page(ready.work)
                else:
                    await self._run_item(ready, ready.item)
        except BaseException as error:  # noqa: BLE001 - the others let their items end before it is raised
            self._error = self._error or error
            self._over.set()
        finally:
            close = getattr(self.settings.transaction, "close_connection", None)
            if close is not None:
                close()

    async def _next(self) -> ReadyItem | None:
        """What to do next; None: nothing. One worker at a time looks for more, and the others wait for it."""
        while not self._over.is_set():
            looked = self._looked  # before the turn is asked for: whoever has it sets this very one
            now = self.engine.clock.monotonic()
            if self.settings.rate is None and now < self._poll_at and not (self._turn and self._runs_low(now)):
                ready = self._take_ready()
                if ready is not None:
                    return ready
            try:
                self._turn.popleft()
            except IndexError:
                await looked.wait()
                continue
            try:
                ready, rest = await self._look()
            finally:
                self._looked = AsyncEvent()
                self._turn.append(True)
                looked.set()
            if ready is not None or rest is None:
                return ready
            if rest:
                await async_pause(self.engine.clock, rest, self._over)
        return None

    async def _look(self) -> tuple[ReadyItem | None, float | None]:
        """What to do next, or after how many seconds to look again; neither: nothing more is done here."""
        await self._poll()
        if self._over.is_set():
            return None, None
        rest: float | None = 0.0
        if not self._ready or self._runs_low(self.engine.clock.monotonic()):
            rest = await self._refill()
        if self._ready:
            await self._wait_for_turn(self._ready[0])
            return (None, None) if self._over.is_set() else (self._take_ready(), 0.0)
        return None, rest

    def _runs_low(self, now: float) -> bool:
        """Whether to get more before the last item was taken: only where items are quick.

        Whatever is claimed and has not begun has a lease that runs out.
        """
        if self.settings.commit == "page" or now < self._look_at or now - self._filled_at > self._soon:
            return False
        return len(self._ready) < self.settings.concurrency and not (self._are_all_taken and not self._unclaimed)

    def _take_ready(self) -> ReadyItem | None:
        try:
            return self._ready.popleft()
        except IndexError:
            return None  # another thread was faster

    async def _poll(self) -> None:
        """Look, now and then, whether the batch still runs."""
        now = self.engine.clock.monotonic()
        if now < self._poll_at:
            return
        found = await self.ask(ReadBatch(self.batch.scope, self.batch.id))
        self._poll_at = now + _POLL
        if found.batch is None or found.batch.number != self.batch.number or found.batch.state != "running":
            self._over.set()
            return
        await self._pause_if_too_many_failed(found.counts.failed)

    async def _refill(self) -> float | None:
        """Get more to do. Answers after how many seconds to look again; None: there is nothing to be done here."""
        now = self.engine.clock.monotonic()
        for due, ready in [one for one in self._later if one[0] <= now]:
            self._later.remove((due, ready))
            (self._unclaimed if ready.answer is None else self._ready).append(ready)
        if self._unclaimed:
            await self._claim_some()
            return 0.0
        if now < self._look_at:
            return self._look_at - now
        if await self._open_next_page():
            self._pause = _FIRST_LOOK
            return 0.0
        if self._over.is_set() or not (self.settings.wait or self._works):
            return None
        self._look_at = now + self._pause
        self._pause = min(self._pause * 2, _LONGEST_LOOK)
        return self._pause

    async def _claim_some(self) -> None:
        """Claim some items together; unless a crash would leave them in doubt, which holds or asks about them."""
        policy = self.settings.policy
        is_ahead = self.settings.transaction is None and policy.in_doubt == "rerun" and policy.store_down == "refuse"
        most = max(self.settings.concurrency, self.batch.page)
        count = min(len(self._unclaimed), self._next_lot(most) if is_ahead else most)
        some = [self._unclaimed.popleft() for _ in range(count)]
        if is_ahead:
            claims = tuple(self._claim(ready) for ready in some)
            asked_at = self.engine.clock.monotonic()
            claimed = await self.ask(ClaimItems(claims))
            for ready, answer in zip(some, claimed.answers, strict=True):
                ready.answer, ready.claimed_at = answer, asked_at
            self._keep_claims([ready for ready in some if isinstance(ready.answer, Granted)], asked_at)
        self._ready.extend(some)
        self._filled = len(self._ready)
        self._filled_at = self.engine.clock.monotonic()

    def _next_lot(self, most: int) -> int:
        """How many items to claim together: what begins soon, by how quickly the last ones began.

        A crash counts an attempt of whatever was claimed, so what waits for slow ones is better not claimed yet.
        """
        if not self._lot:
            rate = self.settings.rate
            begins = (
                self.settings.concurrency if rate is None else min(self.settings.concurrency, int(rate * self._soon))
            )
        else:
            begun, passed = self._filled - len(self._ready), self.engine.clock.monotonic() - self._filled_at
            begins = min(self._lot * 2, int(begun / passed * self._soon) if passed else most)
        self._lot = max(1, min(begins, most))
        return self._lot

    def _keep_claims(self, some: Sequence[ReadyItem], asked_at: float) -> None:
        """Keep claims alive until their items begin: before that, a worker may be busy for longer than a lease."""
        leases = [ready.answer.lease for ready in some if isinstance(ready.answer, Granted)]
        length = self.settings.policy.lease_for.total_seconds()
        beats = self.engine.runtime().keep_claims(leases, length=length, asked=asked_at)
        for ready, beat in zip(some, beats, strict=True):
            ready.held = beat

    def begin_claimed(self, ready: ReadyItem) -> float:
        """Let go of the claim of an item, which its call keeps from now on; answers since when its lease counts."""
        held, ready.held = ready.held, None
        if held is None:
            return ready.claimed_at
        self.engine.runtime().release(held)
        return held.counted_from

    def _claim(self, ready: ReadyItem) -> Claim:
        assert ready.item is not None  # noqa: S101 - a page is no item
        request = ready.request = self.request_of(ready.item)
        return Claim(request.key, request.fingerprint, self.engine.new_nonce(), request.terms, request.about)

    def request_of(self, item: StoredItem) -> Request:
        """What the call of an item asks for."""
        batch, settings = self.batch, self.settings
        about = NOTHING if item.about is None else msgspec.json.decode(item.about, type=About)
        asked = Digest(item_digest(item.id, item.data))
        fingerprint = self.engine.fingerprints.take(asked)
        key = item_key(batch.scope, batch.operation, batch.id, item.id)
        return Request(
            key, fingerprint, settings.policy, settings.terms, about, settings.shape, asked, self.engine.fingerprints
        )

    async def _open_next_page(self) -> bool:
        """Claim a page that nobody works on; a new one first, then one that was left. Answers whether there was one."""
        while not self._are_all_taken:
            taken = await self.ask(TakePage(self.batch.number))
            if taken.page is None:
                self._are_all_taken = taken.state == "running"
                if not self._are_all_taken:
                    self._over.set()
                break
            if await self._open_page(taken.page):
                return True
        return not self._over.is_set() and await self._open_left_page()

    async def _open_left_page(self) -> bool:
        after, is_open = -1, False
        while True:
            pages = (await self.ask(FindPages(self.batch.number, "open", after, _PAGES))).pages
            for page in pages:
                is_open = True
                if page.page not in self._works and await self._open_page(page):
                    return True
            if len(pages) < _PAGES:
                break
            after = pages[-1].page
        if not is_open and self._most_failed is not None:
            # Other processes may have seen failures since the last look: too many of them pause it before its end.
            self._poll_at = 0.0
            await self._poll()
        if not is_open and not self._over.is_set():
            ended = await self.ask(EndBatch(self.batch.number))
            if ended.batch is None or ended.batch.state != "running":
                self._over.set()
        return False

    async def _open_page(self, page: BatchPage) -> bool:
        """Claim a page, and have its items done. False: somebody else works on it, or it was done already."""
        key = page_key(self.batch.scope, self.batch.id, page)
        try:
            call = await self.engine.open(
                key, operation=PAGE, fingerprint=None, policy=self.settings.page_policy, returns=None
            )
        except TryLater:
            return False  # somebody works on it, or the store did not answer; it is found again
        if call.result is not None:
            await self.ask(FinishPage(self.batch.number, page.page, page.round))
            return False
        first = page.page * self.batch.page
        end = min(first + self.batch.page, self.batch.total)
        # Its claim is kept alive from now on, so however this is cut off, it is among those that are given back.
        work = self._works[page.page] = PageWork(page, call, [], 0)
        found = await self.ask(ReadItems(self.batch.number, first, end, int(ItemStatus.PENDING)))
        refuse_sealed_items(found.items)
        work.items, work.open = list(found.items), len(found.items)
        if not work.items:
            await self._finish_page(work)
        elif self.settings.by_page and self._is_untouched(work):
            self._ready.append(ReadyItem(work, None))
        else:
            self._unclaimed.extend(ReadyItem(work, item) for item in work.items)
        return True

    def _is_untouched(self, work: PageWork) -> bool:
        """Whether nobody has worked on a page before, so that it may be run as a whole.

        Otherwise items may have run one by one, whose records are completed, or about to be, and whose rows say nothing
        of it yet: their own claims find that out.
        """
        return work.page.round == 0 and work.call.lease.fence == 1

    async def _finish_page(self, work: PageWork) -> None:
        """All items of a page have ended: complete it."""
        self._works.pop(work.page.page, None)
        self._look_at = 0.0
        try:
            await work.call.finish(None)
        except (LeaseLost, TryLater):
            return  # whoever has it, or takes it over, finishes it
        await self.ask(FinishPage(self.batch.number, work.page.page, work.page.round))

    async def _run_item(self, ready: ReadyItem, item: StoredItem) -> None:
        """Run one item; it ends here, or is run again later."""
        run = self._attempt if self.settings.transaction is None else self._attempt_in_transaction
        seconds = await run(ready, item)
        work = ready.work
        if seconds is not None:
            # One that was refused before its claim was looked at, by a limit of this process, keeps that claim.
            again = ReadyItem(work, item) if ready.answer is None else ready
            self._later.append((self.engine.clock.monotonic() + seconds, again))
            return
        work.open -= 1
        if not work.open:
            await self._finish_page(work)

    async def _attempt(self, ready: ReadyItem, item: StoredItem) -> float | None:
        """One attempt. Answers in how many seconds to try again; None: the item has ended."""
        call = AsyncItemCall(self, ready)
        try:
            result = await call.run()
        except Exception as error:
            written = call.written
            is_told = call.handler_error is not None or (isinstance(written, Fail) and not written.started)
            if is_told and isinstance(written, Fail) and not call.owns_claim:
                return None if self._has_ended(written) else pause_after(call.number)
            if not isinstance(error, SemelError):
                raise
            return await self._explain(ready.work, item, error)
        if result.replayed:
            await self._note(ready.work, item, ItemStatus.COMPLETED)
        return None

    def _has_ended(self, write: Fail) -> bool:
        return self.settings.status_after(write) is not None

    async def _explain(self, work: PageWork, item: StoredItem, error: SemelError) -> float | None:
        """What an answer of the engine means for an item: how it ended, or when to try again."""
        match error:
            case ResultNotKept():
                await self._note(work, item, ItemStatus.COMPLETED)
            case FailedBefore():
                is_skipped = error.error_type in (SKIPPED, _CANCELLED)
                await self._note(work, item, ItemStatus.SKIPPED if is_skipped else ItemStatus.FAILED)
            case KeyReused():
                # Something else has used its key, such as an item of a batch before that was left in doubt.
                await self._note(work, item, ItemStatus.FAILED)
            case InDoubt() if error.retry_after is None:
                await self._note(work, item, ItemStatus.IN_DOUBT)
            case InDoubt():
                return max(0.0, error.retry_after.total_seconds()) if error.retry_after else 0.0
            case LeaseLost():
                return self.settings.policy.lease_for.total_seconds()
            case InProgress():
                # Somebody runs this very item, and may be done long before the lease ends.
                return min(_LONGEST_LOOK, max(_FIRST_LOOK, error.retry_after.total_seconds()))
            case TryLater():
                return max(_FIRST_LOOK, error.retry_after.total_seconds())
            case _:
                raise error
        return None

    async def _attempt_in_transaction(self, ready: ReadyItem, item: StoredItem) -> float | None:
        """One attempt whose record commits together with what its handler writes."""
        begin = self.settings.transaction
        assert begin is not None  # noqa: S101 - asked by the caller
        call: AsyncItemCall | None = None
        result: Result[Any] | None = None
        try:
            async with begin() as session:
                if await self._is_over_by_now():
                    return 0.0
                joined = self.engine.store.async_join(session)
                call = AsyncItemCall(self, ready, joined, session)
                with context.joining(self.engine.store.name, joined):
                    result = await call.run()
        except Exception as error:
            own = None if call is None else call.handler_error
            if isinstance(error, UsageError) and not isinstance(error, KeyReused) and error is not own:
                raise
            if isinstance(error, SemelError) and error is not own and not is_rolled_back(error):
                return await self._explain(ready.work, item, error)
            if self._is_outage(error, is_own=error is own):
                return self._wait_for_database(error)
            return await self._count(ready.work, item, error)
        if result is None:
            raise UsageError(KEEPS_ERRORS)
        self._outage_since = None
        if not self._has_seen_commit and not result.replayed:
            await self._check_commit(item)
        await self._note(ready.work, item, ItemStatus.COMPLETED)
        return None

    def _is_outage(self, error: Exception, *, is_own: bool) -> bool:
        """Whether a transaction failed because its database was not there, which is no fault of the item.

        A handler may well raise an OSError of something else; what began or committed the transaction did not.
        """
        if not is_own and isinstance(error, OSError | TimeoutError):
            return True
        # What semel says of a transaction that is past use has the error of the client library as its cause.
        cause = error.__cause__ if isinstance(error, SemelError) else None
        return self._store.is_outage(cause if isinstance(cause, Exception) else error)

    def _wait_for_database(self, error: Exception) -> float:
        """In how many seconds to try again; raises the error once the database was away for too long."""
        now = self.engine.clock.monotonic()
        if self._outage_since is None:
            self._outage_since = now
        if now - self._outage_since > _GIVE_UP_AFTER:
            raise error
        return min(_LONGEST_LOOK, max(_FIRST_LOOK, now - self._outage_since))

    async def _check_commit(self, item: StoredItem) -> None:
        """Read back, where everybody else reads, what the first transaction of this run was to commit.

        Raises:
            UsageError: it is not there.
        """
        key = self.request_of(item).key
        found = await self.ask(Read(key.digest, operation=key.operation))
        if found.record is None or found.record.status is not Status.COMPLETED:
            raise UsageError(NOT_COMMITTED)
        self._has_seen_commit = True

    async def _count(self, work: PageWork, item: StoredItem, error: Exception) -> float | None:
        """Count an attempt that was rolled back, on a connection of semel's own."""
        request, settings = self.request_of(item), self.settings
        most = 1 if isinstance(error, settings.policy.final_errors) else settings.max_attempts
        counting = CountFailure(
            request.key,
            request.fingerprint,
            self.engine.new_nonce(),
            failure_of(error),
            request.terms,
            request.about,
            most,
        )
        answer = await self.ask(counting)
        status = status_of_record(answer.record)
        if status is None:
            attempts = answer.record.attempts if isinstance(answer, Counted) else 1
            return pause_after(attempts)
        await self._note(work, item, status)
        return None

    async def _run_page(self, work: PageWork) -> None:
        """Run a whole page in one transaction; where an item fails, its items run one by one."""
        begin = self.settings.transaction
        assert begin is not None  # noqa: S101 - checked when the run began
        has_ended = False
        try:
            async with begin() as session:
                await self._run_page_within(work, session)
                has_ended = True
        except Exception as error:
            is_own = error is work.handler_error and not isinstance(error, context.SentFromPage)
            if isinstance(error, UsageError) and not is_own:
                raise
            await self._give_back(work)
            self._works.pop(work.page.page, None)
            if isinstance(error, PageStopped):
                return
            if self._is_outage(error, is_own=True):
                await async_pause(self.engine.clock, self._wait_for_database(error), self._over)
            # Claimed anew, the page waits for the end of that transaction: if it did commit after all, it is done.
            # Otherwise its items run one by one.
            await self._open_page(work.page)
            return
        if not has_ended:
            raise UsageError(KEEPS_ERRORS)
        self._outage_since = None
        tell_ends(self.engine.observer, self.batch.operation, [ItemStatus.COMPLETED] * len(work.items))
        self._works.pop(work.page.page, None)
        try:
            await work.call.finish(None)  # completed already, with its transaction; now its lease is let go of
        except (LeaseLost, TryLater):
            return  # whoever finds it finds it done
        if not self._has_seen_commit:
            finished = await self.ask(FinishPage(self.batch.number, work.page.page, work.page.round))
            if not finished.is_done:
                raise UsageError(NOT_COMMITTED)
            self._has_seen_commit = True

    async def _run_page_within(self, work: PageWork, session: Any) -> None:
        joined = self.engine.store.async_join(session)
        entered = await self.engine.perform_on(joined, _once(JoinTransaction(work.call.lease)))
        if isinstance(entered, Lost):
            raise call_errors.lease_lost_error(work.call.key)
        lease = call_errors.with_transaction(work.call.lease, entered)
        with context.joining(self.engine.store.name, joined), context.in_page():
            ends = tuple([await self._run_in_page(work, item, session) for item in work.items])
        done = codec.encode(None, codec.shape_of(None), self.settings.policy.max_result)
        committing = CommitPage(self.batch.number, work.page, lease, done, ends)
        answer = (await self.engine.perform_on(joined, _once(committing))).answers[0]
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, Recorded):
            raise call_errors.lease_lost_error(work.call.key)

    async def _run_in_page(self, work: PageWork, item: StoredItem, session: Any) -> ItemEnd:
        await self._stop_page_if_over()
        handler, settings = self.settings.handler, self.settings
        try:
            seen = Item(item.id, handler.decode_item(item.data), item.position, 1, in_doubt=False)
            given = handler.arguments(seen, item.data, None, session)
            value = await _call_handler(functools.partial(handler.function, **given))
        except Exception as error:
            work.handler_error = error
            raise
        if isinstance(value, Skip):
            raise value  # noting why takes a record: its page runs one by one
        outcome = codec.encode(value, settings.shape, settings.policy.max_result, settings.policy.redact)
        return ItemEnd(item.position, ItemStatus.COMPLETED, None, outcome)

    async def _stop_page_if_over(self) -> None:
        """Look, now and then, whether the batch still runs.

        Raises:
            PageStopped: it does not; the transaction of the page is rolled back, and with it all that its items did.
        """
        if await self._is_over_by_now():
            raise PageStopped

    async def _is_over_by_now(self) -> bool:
        """Look, now and then, whether the batch still runs, inside a transaction, which may have been waited for.

        Of several one looks: it takes a connection more, and those of the others may be what that waits for.
        """
        # With one writer `pause` waits for the end of the transaction, so a look would wait as well, and find nothing.
        if not self._store.has_one_writer:
            try:
                turn = self._turn_inside.popleft()
            except IndexError:
                return self._over.is_set()
            try:
                await self._poll()
            finally:
                self._turn_inside.append(turn)
        return self._over.is_set()

    async def _note(self, work: PageWork, item: StoredItem, status: ItemStatus) -> None:
        """Note in the row of an item what its record says."""
        await self.persist(lambda: self._send_end(work, ItemEnd(item.position, status)))

    async def settle(self, work: PageWork, position: int, write: Complete | Fail) -> Any:
        """End the record of an item, and note it in its row; answers as the store does."""
        status = self.settings.status_after(write)
        return await self._send_end(work, ItemEnd(position, status, write))

    async def _send_end(self, work: PageWork, end: ItemEnd) -> Any:
        """Have an end sent together with whatever else has ended meanwhile."""
        pending = PendingEnd(work, end, AsyncEvent())
        self._ends.append(pending)
        # One at once; another beside it only where many wait, so that lists stay long.
        if len(self._lead) == _SENDERS or (self._lead and len(self._ends) * _SENDERS >= self.settings.concurrency):
            await self._send_ends()
        if not pending.is_done:
            await pending.done.wait()
        if pending.error is not None:
            raise pending.error
        if end.status == ItemStatus.FAILED:
            await self._count_failed()
        return pending.answer

    async def _send_ends(self) -> None:
        """Send all that has ended, and what ends meanwhile, if nobody else does. Every step is atomic for threads."""
        while self._ends:
            try:
                self._lead.popleft()
            except IndexError:
                return  # whoever leads looks once more after having given the lead back
            try:
                await async_let_others_run()
                await self._send_some()
            finally:
                self._lead.append(True)

    async def _send_some(self) -> None:
        by_page: dict[int, list[PendingEnd]] = {}
        while self._ends:
            pending = self._ends.popleft()
            by_page.setdefault(pending.work.page.page, []).append(pending)
        try:
            for page, some in by_page.items():
                await self._send_of_page(page, some)
        except BaseException as error:
            # Cut off on the way: those who wait send theirs again, as after a lost reply.
            cut_off = StoreUnavailable("The end was not sent, because its sender was cut off; it is sent again.")
            cut_off.__cause__ = error
            for some in by_page.values():
                for pending in some:
                    if not pending.is_done:
                        pending.finish(None, cut_off)
            raise

    async def _send_of_page(self, page: int, some: Sequence[PendingEnd]) -> None:
        settling = SettleItems(self.batch.number, page, tuple([pending.end for pending in some]))
        try:
            settled = await self.engine.perform_on(None, _once(settling))
        except Exception as error:  # noqa: BLE001 - each of them decides by itself whether to send it again
            for pending in some:
                pending.finish(None, error)
            return
        answers = iter(settled.answers)
        ends: list[int | None] = []
        for pending in some:
            answer = next(answers) if pending.end.write is not None else None
            pending.finish(answer, answer if isinstance(answer, Exception) else None)
            if pending.end.write is None or isinstance(answer, Recorded):
                ends.append(pending.end.status)
        tell_ends(self.engine.observer, self.batch.operation, ends)

    async def _count_failed(self) -> None:
        """Pause the batch when more items have failed than may."""
        self._failed += 1
        most = self._most_failed
        if most is None or self._failed <= most or self._over.is_set():
            return
        found = await self.ask(ReadBatch(self.batch.scope, self.batch.id))
        await self._pause_if_too_many_failed(found.counts.failed)

    async def _pause_if_too_many_failed(self, failed: int) -> None:
        """Failures of all processes count; those from before this run do not stop it, because somebody resumed it."""
        self._failed, most = failed, self._most_failed
        if most is not None and failed > max(most, self._failed_before):
            reason = f"{failed} items failed, more than max_failed={most}"
            await self.ask(ChangeBatch(number=self.batch.number, to="paused", reason=reason, has_overrun=True))
            self._over.set()

    async def _wait_for_turn(self, ready: ReadyItem) -> None:
        """Wait until the rate, which all workers share, lets the next item begin."""
        rate = self.settings.rate
        if rate is None:
            return
        count = len(ready.work.items) if ready.item is None else max(1, int(rate * _RESERVED_FOR))
        clock = self.engine.clock
        if not self._turns:
            interval = round(1_000_000 / rate)
            reserved = await self.ask(ReserveRate(self.batch.number, count, interval))
            begin = clock.monotonic() + reserved.wait_us / 1_000_000
            turns = 1 if ready.item is None else count
            self._turns.extend(begin + place * interval / 1_000_000 for place in range(turns))
        due = self._turns.popleft()
        while (seconds := due - clock.monotonic()) > 0 and not self._over.is_set():
            await async_pause(clock, min(seconds, _POLL), self._over)
            await self._poll()

    async def _leave(self) -> None:
        """Give back what was claimed and not begun, so that others need not wait for leases to end."""
        for ready in (*self._ready, *(ready for _, ready in self._later)):
            if isinstance(ready.answer, Granted) and ready.item is not None:
                self.begin_claimed(ready)
                undo = ItemEnd(ready.item.position, None, undo_grant(ready.answer, _STOPPED))
                self._ends.append(PendingEnd(ready.work, undo))
        try:
            if self._ends:
                await self._send_ends()
        finally:
            for work in list(self._works.values()):
                await self._give_back(work)
            self._works.clear()

    async def _give_back(self, work: PageWork) -> None:
        try:
            await work.call.give_back()
        except (LeaseLost, TryLater):
            return  # its lease ends by itself, or has ended

    async def ask(self, operation: Any) -> Any:
        """Have an operation carried out; a store that does not answer is asked again for a while."""
        return await self.persist(lambda: self.engine.perform_on(None, _once(operation)))

    async def persist(self, send: Callable[[], Awaitable[Any]]) -> Any:
        """Send something until the store answers, for a while: all that is sent so may be sent again."""
        clock = self.engine.clock
        until, pause = clock.monotonic() + _GIVE_UP_AFTER, _FIRST_LOOK
        while True:
            try:
                return await send()
            except StoreMisconfigured:
                raise
            except StoreUnavailable:
                if clock.monotonic() + pause > until:
                    raise
            await async_pause(clock, pause)
            pause = min(pause * 2, _LONGEST_LOOK)
