"""Batches: begun by an id and items, run by any number of processes, read while they run and afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from copy import copy
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar, Unpack, overload

from semel.api import AsyncSemel, Semel
from semel.batch.actions import AsyncActions, SyncActions, TellStop
from semel.batch.control import ErasureReport, Retried, change, erase_subject, read_batch, retry
from semel.batch.items import ItemResult, ResultStatus, make_item_handler, status_number
from semel.batch.loading import Loading, encode_metadata
from semel.batch.settings import Commit, ItemPolicyFields, RunSettings, make_settings
from semel.batch.sources import AboutRule, Source, check_source, make_reader
from semel.batch.status import STATES, BatchState, BatchStatus
from semel.core import codec
from semel.core.batch.operations import OpenBatch
from semel.core.batch.values import StoredBatch
from semel.core.flow import Flow
from semel.core.key import SHARED, Key
from semel.core.policy import microseconds
from semel.core.store import Capability
from semel.engine.async_engine import AsyncEngine
from semel.engine.decorator import check_async_function, check_sync_function
from semel.engine.engine import engine_of, refuse_unknown, shape_of
from semel.errors import KeyInvalid, UsageError
from semel.transactions import transaction_of
from semel.validation import Duration, to_timedelta

S = TypeVar("S", Semel, AsyncSemel)
T = TypeVar("T")
KEEP_FOR: Final = timedelta(days=30)
ITEM_FIELDS: Final = frozenset(ItemPolicyFields.__annotations__)


_NOT_OF_ITEMS: Final = {
    "keep_for": "A batch is kept as a whole: give keep_for to start().",
    "when_running": "Nobody waits for an item that another process runs: the batch goes on with the others.",
    "wait_for": "Nobody waits for an item that another process runs: the batch goes on with the others.",
}


class Batch(Generic[S]):
    """One batch. `Batches` gives it: by `start`, `get` or `list`."""

    def __init__(self, semel: S, batch: StoredBatch, type: Any = Any) -> None:  # noqa: A002 - as in `start`
        self.semel: S = semel
        self._engine: Any = engine_of(semel)
        self._actions: Any = _actions_of(self._engine)
        self._batch = batch
        self._type = type
        self._tell_stop: TellStop | None = None

    def __repr__(self) -> str:
        return f"Batch({self.id!r})"

    @property
    def id(self) -> str:
        """What its owner calls it."""
        return self._batch.id

    @property
    def operation(self) -> str:
        """The operation of its items."""
        return self._batch.operation

    @property
    def total(self) -> int:
        """How many items it has; 0 where it was still being loaded when it was found."""
        return self._batch.total

    @overload
    def run(
        self: Batch[AsyncSemel],
        handler: Callable[..., Awaitable[Any]],
        *,
        concurrency: int = 64,
        page: int = 100,
        max_failed: int | str | None = None,
        rate: float | None = None,
        transaction: Callable[[], Any] | str | None = None,
        commit: Commit = "item",
        max_attempts: int = 1,
        wait: bool = True,
        **policy: Unpack[ItemPolicyFields],
    ) -> Awaitable[BatchStatus]: ...

    @overload
    def run(
        self: Batch[Semel],
        handler: Callable[..., Any],
        *,
        concurrency: int = 64,
        page: int = 100,
        max_failed: int | str | None = None,
        rate: float | None = None,
        transaction: Callable[[], Any] | str | None = None,
        commit: Commit = "item",
        max_attempts: int = 1,
        wait: bool = True,
        **policy: Unpack[ItemPolicyFields],
    ) -> BatchStatus: ...

    def run(
        self,
        handler: Callable[..., Any],
        *,
        concurrency: int = 64,
        page: int = 100,
        max_failed: int | str | None = None,
        rate: float | None = None,
        transaction: Callable[[], Any] | str | None = None,
        commit: Commit = "item",
        max_attempts: int = 1,
        wait: bool = True,
        **policy: Any,
    ) -> Any:
        """Work on the batch until it is completed, paused, cancelled or failed; gives its status.

        Any number of processes may run the same batch. After a crash run it again: what is done is not repeated.

        Args:
            handler: called once for each item, with those of `item`, `data`, `session` and `attempt` that it names.
            concurrency: how many items this process works on at the same time.
            page: how many items are claimed together; the first run decides.
            max_failed: how many items may fail before the batch is paused: a number, or a part such as "5%".
            rate: how many items may begin in a second, over all processes. Under `commit="page"` all items of a page
                begin together, and the next page so much later.
            transaction: gives a context manager that begins a transaction, gives what `within` takes, and commits at
                its end. Then the record of an item commits together with what its handler writes.
            commit: "item", or "page" for effects in the database alone: one transaction for each page.
            max_attempts: how often an item is tried that fails.
            wait: whether to wait for items that other processes work on, and to take over what they leave.
            policy: fields of the policy of items.

        Raises:
            UsageError: the handler or a setting cannot be used so.
            StoreUnavailable: the store did not answer for two minutes; what ended is recorded.
        """
        settings = settings_of_run(
            self._engine,
            self._batch.operation,
            self._type,
            handler,
            concurrency=concurrency,
            page=page,
            max_attempts=max_attempts,
            max_failed=max_failed,
            rate=rate,
            transaction=transaction,
            commit=commit,
            wait=wait,
            **policy,
        )
        return self._actions.run(self._batch, settings, self._tell_stop)

    @overload
    def status(self: Batch[AsyncSemel]) -> Awaitable[BatchStatus]: ...

    @overload
    def status(self: Batch[Semel]) -> BatchStatus: ...

    def status(self) -> Any:
        """How far it is.

        Raises:
            RecordNotFound: it has expired.
        """
        return self._actions.status(self._batch)

    @overload
    def pause(self: Batch[AsyncSemel], reason: str = "") -> Awaitable[BatchStatus]: ...

    @overload
    def pause(self: Batch[Semel], reason: str = "") -> BatchStatus: ...

    def pause(self, reason: str = "") -> Any:
        """Have every process let its running items end, and begin no others, within two seconds.

        A page that is on its way under `commit="page"` is rolled back, and runs anew when the batch is resumed.

        Raises:
            UsageError: it is not being worked on.
        """
        return self._change(change(self._batch, "paused", _text("reason", reason)))

    @overload
    def resume(self: Batch[AsyncSemel]) -> Awaitable[BatchStatus]: ...

    @overload
    def resume(self: Batch[Semel]) -> BatchStatus: ...

    def resume(self) -> Any:
        """Let a paused batch be run again; `run` goes on where it was.

        Raises:
            UsageError: it was cancelled, or has ended.
        """
        return self._change(change(self._batch, "running", ""))

    @overload
    def cancel(self: Batch[AsyncSemel], reason: str = "") -> Awaitable[BatchStatus]: ...

    @overload
    def cancel(self: Batch[Semel], reason: str = "") -> BatchStatus: ...

    def cancel(self, reason: str = "") -> Any:
        """End it for good, also while it is loaded; running items end. One that `max_failed` paused is `failed` then.

        Raises:
            UsageError: it is completed.
        """
        return self._change(change(self._batch, "cancelled", _text("reason", reason)))

    @overload
    def retry(self: Batch[AsyncSemel], which: Retried, *, reason: str = "") -> Awaitable[int]: ...

    @overload
    def retry(self: Batch[Semel], which: Retried, *, reason: str = "") -> int: ...

    def retry(self, which: Retried, *, reason: str = "") -> Any:
        """Have items run again that "failed", or are "in_doubt"; gives how many. Then `run` runs them.

        To retry what is in doubt is to say that it did not happen, so that needs a reason.

        Raises:
            UsageError: the batch was cancelled or has failed, or there is no reason.
        """
        if which not in ("failed", "in_doubt"):
            raise UsageError(f'retry() takes "failed" or "in_doubt", not {which!r}; nothing was changed.')
        if which == "in_doubt" and not _text("reason", reason).strip():
            raise UsageError(
                'retry("in_doubt") says that these items did not happen, and needs a reason; nothing was changed.'
            )
        flow = retry(self._batch, which, _text("reason", reason), self._engine.new_nonce, self._engine.fingerprints)
        return self._actions.perform(flow)

    @overload
    def results(
        self: Batch[AsyncSemel], *, status: ResultStatus | None = None, type: type[T], after: int | None = None
    ) -> AsyncIterator[ItemResult[T]]: ...

    @overload
    def results(
        self: Batch[AsyncSemel], *, status: ResultStatus | None = None, type: Any = Any, after: int | None = None
    ) -> AsyncIterator[ItemResult[Any]]: ...

    @overload
    def results(
        self: Batch[Semel], *, status: ResultStatus | None = None, type: type[T], after: int | None = None
    ) -> Iterator[ItemResult[T]]: ...

    @overload
    def results(
        self: Batch[Semel], *, status: ResultStatus | None = None, type: Any = Any, after: int | None = None
    ) -> Iterator[ItemResult[Any]]: ...

    def results(
        self,
        *,
        status: ResultStatus | None = None,
        type: Any = Any,  # noqa: A002 - of a value
        after: int | None = None,
    ) -> Any:
        """What became of its items, in the order of the input.

        Args:
            status: only items that ended so.
            type: what their values are read as.
            after: go on after this position.

        Raises:
            RecordNotFound: it has expired, perhaps while it was read: then some of its items were not told.
        """
        shape = codec.shape_of(codec.NO_ANNOTATION) if type is Any else shape_of(type)
        if isinstance(after, bool) or not isinstance(after, int | None):
            raise UsageError(f"after is the position of an item, not {after!r:.80}; nothing was read.")
        first = 0 if after is None else max(0, after + 1)
        return self._actions.results(self._batch, status_number(status), shape, first)

    def _change(self, flow: Flow[Any]) -> Any:
        return self._actions.change(flow)


class Batches(Generic[S]):
    """The batches of one scope.

    Args:
        semel: the engine; of an `AsyncSemel` handlers are coroutine functions, and everything is awaited.
        scope: whose batches; `SHARED` for those of nobody in particular.

    Raises:
        UsageError: the store keeps no batches.
    """

    def __init__(self, semel: S, scope: object = SHARED) -> None:
        self.semel: S = semel
        self._engine: Any = engine_of(semel)
        if Capability.BATCH not in self._engine.store.capabilities:
            raise UsageError(
                f"{self._engine.store.name} cannot change items and their counts together, so a batch there would lose "
                f"count of itself; nothing was made. Keep batches in the SQL database of your service."
            )
        self._scope = "" if scope is SHARED else Key.of("any", operation="any", scope=scope).scope
        self._actions: Any = _actions_of(self._engine)

    def __repr__(self) -> str:
        return f"Batches({self.semel!r})"

    @overload
    def start(
        self: Batches[AsyncSemel],
        id: str,
        items: Source,
        *,
        operation: str,
        item_id: str | None = None,
        type: Any = Any,
        metadata: Any = None,
        about: AboutRule | None = None,
        keep_for: Duration = KEEP_FOR,
    ) -> Awaitable[Batch[AsyncSemel]]: ...

    @overload
    def start(
        self: Batches[Semel],
        id: str,
        items: Source,
        *,
        operation: str,
        item_id: str | None = None,
        type: Any = Any,
        metadata: Any = None,
        about: AboutRule | None = None,
        keep_for: Duration = KEEP_FOR,
    ) -> Batch[Semel]: ...

    def start(
        self,
        id: str,  # noqa: A002 - what people call it
        items: Source,
        *,
        operation: str,
        item_id: str | None = None,
        type: Any = Any,  # noqa: A002 - as everywhere
        metadata: Any = None,
        about: AboutRule | None = None,
        keep_for: Duration = KEEP_FOR,
    ) -> Any:
        """Load items under an id, or find the batch that was begun with them.

        Nothing runs before all items are there. A crash on the way is no matter: start it again.

        Args:
            id: of the batch; the same id with the same items is the same batch.
            items: an iterable, an async iterable, or a path that ends in `.jsonl` or `.csv`. It is read once.
            operation: what is done with each item; part of the key of its record.
            item_id: the name of the member that names an item; without it they are numbered.
            type: what the data of every item has to be: a Struct, dataclass, TypedDict or pydantic model.
            metadata: what else to keep of the batch, as JSON.
            about: what the record of an item is searched by, as a callable of the item.
            keep_for: how long the batch, its items and their records are kept after its end, unless the settings file
                says so of the operation.

        Raises:
            BatchInvalid: some items cannot be loaded; all are counted, and the first thousand are named.
            BatchChanged: there is a batch of that id with other items, or for another operation.
            InProgress: another process has been loading it for an hour.
            UsageError: something cannot be used so, or the batch was cancelled while it was loaded.
        """
        key = Key.of(_check_id(id, "nothing was loaded"), operation=operation)
        name = key.value
        given = to_timedelta("keep_for", keep_for, may_be_zero=True, error=UsageError)
        kept = self._engine.kept_for(key.operation, given)
        check_source(items, may_be_awaited=isinstance(self._engine, AsyncEngine))
        has_one_writer = self._engine.store.has_one_writer
        reader = make_reader(name, items, item_id, type, about, has_one_writer=has_one_writer)
        opening = OpenBatch(
            scope=self._scope,
            id=name,
            operation=key.operation,
            metadata=encode_metadata(metadata),
            keep_us=microseconds(kept),
            token=self._engine.new_nonce(),
        )
        loading = Loading(opening, reader)
        return self._give(self._actions.load(loading, items, reader, scope=self._scope, id_=name), type)

    @overload
    def get(self: Batches[AsyncSemel], id: str, *, type: Any = Any) -> Awaitable[Batch[AsyncSemel]]: ...

    @overload
    def get(self: Batches[Semel], id: str, *, type: Any = Any) -> Batch[Semel]: ...

    def get(self, id: str, *, type: Any = Any) -> Any:  # noqa: A002 - as in `start`
        """The batch of an id; `type` is what the data of its items is read as.

        Raises:
            RecordNotFound: there is none.
        """
        return self._give(self._actions.perform(read_batch(self._scope, _check_id(id, "nothing was read"))), type)

    @overload
    def list(self: Batches[AsyncSemel], *, state: BatchState | None = None) -> AsyncIterator[Batch[AsyncSemel]]: ...

    @overload
    def list(self: Batches[Semel], *, state: BatchState | None = None) -> Iterator[Batch[Semel]]: ...

    def list(self, *, state: BatchState | None = None) -> Any:
        """Batches, in the order in which they were begun; of one state, or of any."""
        if state is not None and state not in STATES:
            raise UsageError(f"state is one of {', '.join(STATES)}, not {state!r}; nothing was read.")
        return self._actions.list(self._scope, state, lambda batch: Batch(self.semel, batch))

    @overload
    def erase(self: Batches[AsyncSemel], *, subject: str, reason: str) -> Awaitable[ErasureReport]: ...

    @overload
    def erase(self: Batches[Semel], *, subject: str, reason: str) -> ErasureReport: ...

    def erase(self, *, subject: str, reason: str) -> Any:
        """Take out of items about a subject, and out of their records, what may be personal.

        Items that have not ended are left alone, and reported. What an item is about is said by `start(about=…)`.

        Raises:
            UsageError: no reason was given.
        """
        if not _text("reason", reason).strip():
            raise UsageError("erase() needs a reason, which is kept; nothing was erased.")
        return self._actions.perform(erase_subject(self._scope, _text("subject", subject), reason))

    def _give(self, found: Any, type_: Any) -> Any:
        """The batch that is found, as the kind of engine gives it."""
        if not isinstance(self._engine, AsyncEngine):
            return self._batch(found, type_)

        async def give() -> Batch[S]:
            return self._batch(await found, type_)

        return give()

    def _batch(self, found: Any, type_: Any) -> Batch[S]:
        return Batch(self.semel, found if isinstance(found, StoredBatch) else found.known, type_)


def parts_of(batch: Batch[Any]) -> tuple[Any, StoredBatch, Any]:
    """The engine of a batch, the batch as it was found, and the type of its items."""
    return engine_of(batch.semel), batch._batch, batch._type  # noqa: SLF001 - for this package


def settings_of_run(
    engine: Any,
    operation: str,
    type_: Any,
    handler: Callable[..., Any],
    *,
    concurrency: int,
    page: int,
    max_failed: int | str | None,
    rate: float | None,
    transaction: Callable[[], Any] | str | None,
    commit: Commit,
    max_attempts: int,
    wait: bool,
    **policy: Any,
) -> RunSettings:
    """What a run of a batch of that operation is told, checked.

    Raises:
        UsageError: the handler or a setting cannot be used so.
    """
    (check_async_function if isinstance(engine, AsyncEngine) else check_sync_function)(handler)
    refuse_unknown("run()", policy.keys() - ITEM_FIELDS, ITEM_FIELDS, _NOT_OF_ITEMS)
    return make_settings(
        make_item_handler(handler, type_),
        engine.shapes.of(handler),
        engine.policy_for(operation, None, policy),
        concurrency=concurrency,
        page=page,
        max_attempts=max_attempts,
        max_failed=max_failed,
        rate=rate,
        transaction=transaction_of(transaction, engine),
        commit=commit,
        wait=wait,
    )


def stoppable(batch: Batch[S], tell_stop: TellStop) -> Batch[S]:
    """The same batch, whose run tells at its beginning what ends it early: items that run end then, no others begin."""
    own = copy(batch)
    own._tell_stop = tell_stop  # noqa: SLF001 - for the command line, which is told to stop by signals
    return own


def _actions_of(engine: Any) -> AsyncActions | SyncActions:
    return AsyncActions(engine) if isinstance(engine, AsyncEngine) else SyncActions(engine)


def _check_id(given: object, outcome: str) -> str:
    """The id of a batch.

    Raises:
        KeyInvalid: it is no text.
    """
    if not isinstance(given, str):
        raise KeyInvalid(f"A batch is named by a text, not by a {type(given).__name__}; {outcome}.")
    return given


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} is text, not a {type(value).__name__}; nothing was changed.")
    return value
