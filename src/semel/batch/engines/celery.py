"""Celery: `batch_task` makes a task that runs chunks of items of a batch, and `dispatch` sends what is left of one.

- A chunk is a list of ids. Each item in it runs under its own record, so a chunk that is delivered twice, or whose
  worker was killed, repeats nothing that is recorded.
- What became of an item is in the batch. The task itself fails only where nothing can be said of its items.
- Items that somebody else runs, or that may be tried again, are sent again as a smaller chunk, with a countdown.
- `dispatch` may be called at any time and any number of times: after a pause, a retry, or a broker that lost messages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, cast

from semel.api import Semel
from semel.batch.batches import Batch, Batches, parts_of
from semel.batch.engines.single import ITEM_POLICY_FIELDS, make_item_runner
from semel.batch.items import Skip
from semel.celery_tasks.settings import POLICY
from semel.celery_tasks.tasks import check_when_a_worker_starts, send_again, task_settings
from semel.core.batch.operations import FindItems
from semel.core.batch.rows import follow_doubts
from semel.core.batch.values import ItemStatus
from semel.core.flow import Flow, ask
from semel.core.policy import PolicyFields
from semel.engine.engine import engine_of
from semel.errors import (
    FailedBefore,
    InDoubt,
    KeyReused,
    LeaseLost,
    RecordUnreadable,
    ResultNotKept,
    StoreUnavailable,
    TryLater,
    UsageError,
)
from semel.extras import requires

with requires("semel.batch.engines.celery", "celery"):
    from celery.exceptions import SoftTimeLimitExceeded

_SOON: Final = timedelta(seconds=1)
_MOST_IDS: Final = 10_000


def batch_task(
    app: Any,
    batches: Batches[Semel],
    *,
    type: Any = Any,  # noqa: A002 - as in `Batches.get`
    transaction: Callable[[], Any] | str | None = None,
    max_attempts: int = 1,
    **options: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function that takes items, so that it is a task of `app` that runs chunks of them.

    Args:
        app: the Celery application.
        batches: where the batches are, on a `Semel`.
        type: what the data of items is read as.
        transaction: as for `Batch.run`: the record of an item commits together with what the function writes.
        max_attempts: how often an item is tried that fails.
        options: fields of the policy of items, and whatever `app.task` takes.

    Raises:
        UsageError: a message could be lost, or something cannot be used so.
    """
    if not isinstance(batches, Batches) or not isinstance(batches.semel, Semel):
        raise UsageError("batch_task() takes Batches of a Semel: Celery calls plain functions; nothing was decorated.")
    policy = {name: options.pop(name) for name in ITEM_POLICY_FIELDS & options.keys()}
    policy = {"when_running": "reject", **policy}
    changes = cast("PolicyFields", policy)
    settings = task_settings(app, options, "batch_task()", ITEM_POLICY_FIELDS)
    if settings.pop("bind", False):
        raise UsageError("batch_task() calls its function with items, not with a task: leave bind out.")

    def decorate(function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def run(task: Any, batch: str, ids: Sequence[str]) -> int:
            chunk = Chunk(ids, is_tried_again=max_attempts > 1)
            try:
                known = batches.get(batch, type=type)
                make = make_item_runner(known, function, transaction=transaction, max_attempts=max_attempts, **policy)
                chunk.run(known, make)
            except TryLater as error:  # the store does not answer
                chunk.leave(chunk.remaining, error.retry_after)
            if chunk.left:
                raise _left(task, batch, chunk)
            return chunk.ended

        del run.__wrapped__  # the parameters are those of a chunk
        settled = engine_of(batches.semel).policy_of(None, changes)
        made = app.task(bind=True, **settings, **{POLICY: settled})(run)
        check_when_a_worker_starts(app, made, settled.max_runtime)
        return made

    return decorate


def _left(task: Any, batch: str, chunk: Chunk) -> Exception:
    """What tells Celery, or the caller of a task that was called as a function, that items are left."""
    error = TryLater(
        f"{len(chunk.left)} items of the batch {batch!r} have not ended; what ended is recorded.",
        retry_after=chunk.wait,
    )
    if task.request.called_directly:
        return error
    return send_again(task, error, chunk.wait, (batch, chunk.left))


class Chunk:
    """Items of a batch that are run one after the other.

    Attributes:
        ended: how many of them have ended, now or before.
        left: those that are to be sent again.
        wait: when.
        remaining: those that were not looked at yet.
    """

    def __init__(self, ids: Sequence[str], *, is_tried_again: bool) -> None:
        self._is_tried_again = is_tried_again
        self.ended = 0
        self.left: list[str] = []
        self.wait = timedelta(0)
        self.remaining = list(ids)

    def run(self, batch: Batch[Semel], make_runner: Callable[[], Any]) -> None:
        """Run them; stops where the batch is paused or cancelled.

        Raises:
            TryLater: the store does not answer.
            UsageError: the program has to be changed.
        """
        while self.remaining:
            id_, runner = self.remaining[0], make_runner()
            try:
                is_over = self._run_one(batch, runner, id_)
            except SoftTimeLimitExceeded as error:
                # One that may be tried again, or was cut off before or after its function, has not ended.
                has_ended = error is runner.handler_error and not self._is_tried_again
                self.leave(self.remaining[has_ended:], _SOON)
                return
            if is_over:
                return
            del self.remaining[0]

    def leave(self, ids: Sequence[str], wait: timedelta) -> None:
        """Have items sent again."""
        self.left.extend(ids)
        self.wait = max(self.wait, wait, _SOON)

    def _run_one(self, batch: Batch[Semel], runner: Any, id_: str) -> bool:
        """Run an item. Answers whether the batch lets no more of them run."""
        try:
            runner.run_one(id_)
        except SoftTimeLimitExceeded:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the function raised
            if error is not runner.handler_error:
                return self._is_over_after(error, batch, id_)
            # It is recorded, and the batch tells of it: errors of semel as well, where the function raised them.
            self._end_or_leave(id_, may_run_again=self._is_tried_again and not isinstance(error, Skip))
        else:
            self.ended += 1
        return False

    def _is_over_after(self, error: Exception, batch: Batch[Semel], id_: str) -> bool:
        """What an answer of semel means for an item. Answers whether the batch lets no more of them run.

        Raises:
            Exception: it concerns the whole batch.
        """
        match error:
            case StoreUnavailable():
                raise error
            case Skip() | FailedBefore() | KeyReused() | ResultNotKept():
                self.ended += 1
            case RecordUnreadable():
                if _is_pending(batch, id_):
                    raise error  # such as of a worker that was given no keys: no item of the chunk would run
                self.ended += 1
            case InDoubt(retry_after=None):
                self.ended += 1
            case InDoubt(retry_after=wait):
                self.leave([id_], wait or _SOON)
            case UsageError():
                if batch.status().state in ("cancelled", "failed"):
                    return True
                raise error
            case TryLater():
                if batch.status().state == "paused":
                    return True
                self.leave([id_], error.retry_after)
            case LeaseLost():
                self.leave([id_], _SOON)
            case _:
                self._end_or_leave(id_, may_run_again=self._is_tried_again)
        return False

    def _end_or_leave(self, id_: str, *, may_run_again: bool) -> None:
        if may_run_again:
            self.leave([id_], _SOON)
        else:
            self.ended += 1


def _is_pending(batch: Batch[Semel], id_: str) -> bool:
    """Whether an item has not ended."""
    engine, stored, _ = parts_of(batch)

    def look() -> Flow[bool]:
        found = yield from ask(FindItems(stored.number, (id_,)))
        return any(item.status == ItemStatus.PENDING for item in found.items)

    return bool(engine.perform_on(None, look()))


def dispatch(task: Any, batch: Batch[Semel], *, chunk: int = 100, **options: Any) -> int:
    """Send the items of a batch that have not ended as tasks; gives how many tasks were sent.

    Items that are on their way already are sent again, which repeats nothing.

    Args:
        task: what `batch_task` made.
        batch: which batch.
        chunk: how many items a task has.
        options: whatever `apply_async` takes, such as `queue` or `priority`.

    Raises:
        UsageError: nothing of the batch may run, or the chunk is too large.
    """
    if isinstance(chunk, bool) or not isinstance(chunk, int) or not 1 <= chunk <= _MOST_IDS:
        raise UsageError(f"chunk is a whole number from 1 to {_MOST_IDS}, not {chunk!r}; nothing was sent.")
    state = batch.status().state
    if state not in ("pending", "running", "completed"):
        raise UsageError(f"The batch {batch.id!r} is {state}, so none of its items runs; nothing was sent.")
    engine, stored, _ = parts_of(batch)
    engine.perform_on(None, follow_doubts(stored, "run"))  # as a run does first
    sent = 0
    for ids in _chunks(batch, chunk):
        task.apply_async((batch.id, ids), **options)
        sent += 1
    if not sent and state == "running":
        make_item_runner(batch, _nothing, transaction=None, max_attempts=1)().finish_left_pages()
    return sent


def _nothing() -> None:
    """Stands for a function where no item is left."""


def _chunks(batch: Batch[Semel], size: int) -> Iterator[list[str]]:
    ids: list[str] = []
    for result in batch.results(status="pending"):
        ids.append(result.id)
        if len(ids) == size:
            yield ids
            ids = []
    if ids:
        yield ids
