"""What people do with batches, carried out by an engine of either kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Final

from semel.batch.async_runner import AsyncRunner
from semel.batch.concurrency import async_join_spawned, async_spawn, sync_join_spawned, sync_spawn
from semel.batch.control import PAGE_OF_RESULTS, list_page, read_again, read_status, result_of, results_page
from semel.batch.engines.commit_mode import async_decide_commit, sync_decide_commit
from semel.batch.items import ItemResult
from semel.batch.loading import Loading
from semel.batch.settings import RunSettings
from semel.batch.sources import ItemReader, Source, async_lots, sync_lots
from semel.batch.status import BatchStatus, Pace, status_of
from semel.batch.sync_runner import SyncRunner
from semel.core import codec
from semel.core.batch.operations import BatchFound
from semel.core.batch.rows import follow_doubts
from semel.core.batch.values import BATCH, State, StoredBatch, load_key
from semel.core.flow import Flow
from semel.core.policy import Policy
from semel.engine import context
from semel.engine.async_engine import AsyncEngine
from semel.engine.sync_engine import SyncEngine
from semel.errors import LeaseLost, TryLater, UsageError

_LOADING: Final = Policy(
    lease_for=timedelta(seconds=30),
    max_runtime=timedelta(days=30),
    wait_for=timedelta(hours=1),
    keep_for=timedelta(days=1),
)

TellStop = Callable[[Callable[[], None]], None]


class AsyncActions:
    """Carries out what is asked for on batches."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def perform(self, flow: Flow[Any]) -> Any:
        """Carry a flow out on a connection of the engine's own."""
        return await self._engine.perform_on(None, flow)

    async def load(self, loading: Loading, source: Source, reader: ItemReader, *, scope: str, id_: str) -> StoredBatch:
        """Load a batch, or compare it with its items; of several that do, one at a time."""
        self._refuse_joining()
        call = await self._engine.open(load_key(scope, id_), operation=BATCH, fingerprint=None, policy=_LOADING)
        try:
            await self.perform(loading.open())
            await self._add_all(loading, source, reader)
            batch: StoredBatch = await self.perform(loading.finish())
        except Exception:
            await self._abandon(loading)
            raise
        finally:
            await self._give_back(call)
        return batch

    async def _abandon(self, loading: Loading) -> None:
        try:
            await self.perform(loading.abandon())
        except TryLater:
            return  # it stays as one that nobody goes on loading

    async def _add_all(self, loading: Loading, source: Source, reader: ItemReader) -> None:
        """Add lots one after the other, each while the next is read. However reading ends, the last one is added."""
        adding = None
        try:
            async for lot in async_lots(source, reader):
                if adding is not None:
                    await async_join_spawned(adding)
                adding = async_spawn(partial(self.perform, loading.add(lot)))
        finally:
            if adding is not None:
                await async_join_spawned(adding)

    async def run(self, batch: StoredBatch, settings: RunSettings, tell_stop: TellStop | None = None) -> BatchStatus:
        """Work on a batch; answers how far it is afterwards. `tell_stop` is given what ends the run early."""
        self._refuse_joining()
        if settings.by_page:
            await async_decide_commit(self._engine, batch, "page")
        runner = AsyncRunner(self._engine, batch, settings)
        if tell_stop is not None:
            tell_stop(runner.stop)
        await runner.persist(partial(self._follow, batch))
        await runner.begin()
        await runner.run()
        status: BatchStatus = await runner.persist(partial(self.status, batch))
        return status

    async def _follow(self, batch: StoredBatch) -> None:
        """See what was decided about doubts since somebody ran the batch last."""
        await self.perform(follow_doubts(batch, "run"))

    async def status(self, batch: StoredBatch) -> BatchStatus:
        """How far a batch is."""
        return self._show(await self.perform(read_status(batch)))

    async def change(self, flow: Flow[Any]) -> BatchStatus:
        """Change a batch, and say how far it is."""
        return self._show(await self.perform(flow))

    def _show(self, found: BatchFound) -> BatchStatus:
        return status_of(found, self._engine.companion(Pace).rate(found))

    async def results(
        self, batch: StoredBatch, status: int | None, shape: codec.Shape, first: int
    ) -> AsyncIterator[ItemResult[Any]]:
        """What became of items, in their order.

        Raises:
            RecordNotFound: the batch has expired, before or while it was read.
        """
        if batch.state == "loading":  # when it was found
            batch = (await self.perform(read_again(batch))).known
        while first < batch.total:
            for item, record in await self.perform(results_page(batch, first, status)):
                yield result_of(item, record, shape)
            first += PAGE_OF_RESULTS
        await self.perform(read_again(batch))  # of one that goes meanwhile, a part is not told as the whole

    async def list(self, scope: str, state: State | None, show: Callable[[StoredBatch], Any]) -> AsyncIterator[Any]:
        """Batches of a scope, in the order in which they were begun, as `show` shows them."""
        after: int | None = 0
        while after is not None:
            page = await self.perform(list_page(scope, state, after))
            for batch in page:
                yield show(batch)
            after = page[-1].number if page else None

    async def _give_back(self, call: Any) -> None:
        try:
            await call.give_back()
        except (LeaseLost, TryLater):
            return  # its lease ends by itself, or has ended

    def _refuse_joining(self) -> None:
        if context.joined_here(self._engine.store.name) is not None:
            raise UsageError(
                "A batch has transactions of its own, and was used inside within(); nothing ran. Use it outside."
            )


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class SyncActions:
    """Carries out what is asked for on batches."""

    def __init__(self, engine: SyncEngine) -> None:
        self._engine = engine

    def perform(self, flow: Flow[Any]) -> Any:
        """Carry a flow out on a connection of the engine's own."""
        return self._engine.perform_on(None, flow)

    def load(self, loading: Loading, source: Source, reader: ItemReader, *, scope: str, id_: str) -> StoredBatch:
        """Load a batch, or compare it with its items; of several that do, one at a time."""
        self._refuse_joining()
        call = self._engine.open(load_key(scope, id_), operation=BATCH, fingerprint=None, policy=_LOADING)
        try:
            self.perform(loading.open())
            self._add_all(loading, source, reader)
            batch: StoredBatch = self.perform(loading.finish())
        except Exception:
            self._abandon(loading)
            raise
        finally:
            self._give_back(call)
        return batch

    def _abandon(self, loading: Loading) -> None:
        try:
            self.perform(loading.abandon())
        except TryLater:
            return  # it stays as one that nobody goes on loading

    def _add_all(self, loading: Loading, source: Source, reader: ItemReader) -> None:
        """Add lots one after the other, each while the next is read. However reading ends, the last one is added."""
        adding = None
        try:
            for lot in sync_lots(source, reader):
                if adding is not None:
                    sync_join_spawned(adding)
                adding = sync_spawn(partial(self.perform, loading.add(lot)))
        finally:
            if adding is not None:
                sync_join_spawned(adding)

    def run(self, batch: StoredBatch, settings: RunSettings, tell_stop: TellStop | None = None) -> BatchStatus:
        """Work on a batch; answers how far it is afterwards. `tell_stop` is given what ends the run early."""
        self._refuse_joining()
        if settings.by_page:
            sync_decide_commit(self._engine, batch, "page")
        runner = SyncRunner(self._engine, batch, settings)
        if tell_stop is not None:
            tell_stop(runner.stop)
        runner.persist(partial(self._follow, batch))
        runner.begin()
        runner.run()
        status: BatchStatus = runner.persist(partial(self.status, batch))
        return status

    def _follow(self, batch: StoredBatch) -> None:
        """See what was decided about doubts since somebody ran the batch last."""
        self.perform(follow_doubts(batch, "run"))

    def status(self, batch: StoredBatch) -> BatchStatus:
        """How far a batch is."""
        return self._show(self.perform(read_status(batch)))

    def change(self, flow: Flow[Any]) -> BatchStatus:
        """Change a batch, and say how far it is."""
        return self._show(self.perform(flow))

    def _show(self, found: BatchFound) -> BatchStatus:
        return status_of(found, self._engine.companion(Pace).rate(found))

    def results(
        self, batch: StoredBatch, status: int | None, shape: codec.Shape, first: int
    ) -> Iterator[ItemResult[Any]]:
        """What became of items, in their order.

        Raises:
            RecordNotFound: the batch has expired, before or while it was read.
        """
        if batch.state == "loading":  # when it was found
            batch = (self.perform(read_again(batch))).known
        while first < batch.total:
            for item, record in self.perform(results_page(batch, first, status)):
                yield result_of(item, record, shape)
            first += PAGE_OF_RESULTS
        self.perform(read_again(batch))  # of one that goes meanwhile, a part is not told as the whole

    def list(self, scope: str, state: State | None, show: Callable[[StoredBatch], Any]) -> Iterator[Any]:
        """Batches of a scope, in the order in which they were begun, as `show` shows them."""
        after: int | None = 0
        while after is not None:
            page = self.perform(list_page(scope, state, after))
            for batch in page:
                yield show(batch)
            after = page[-1].number if page else None

    def _give_back(self, call: Any) -> None:
        try:
            call.give_back()
        except (LeaseLost, TryLater):
            return  # its lease ends by itself, or has ended

    def _refuse_joining(self) -> None:
        if context.joined_here(self._engine.store.name) is not None:
            raise UsageError(
                "A batch has transactions of its own, and was used inside within(); nothing ran. Use it outside."
            )
