"""`semel batch run` and `work`: run the items of one batch, or of all batches of an operation, in this process.

A function that is a coroutine function runs in an event loop, any other in threads. SIGINT and SIGTERM let running
items end; what was claimed and not begun is given back, so nobody has to wait for it.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from semel.batch import Batch, Batches, BatchStatus
from semel.batch.batches import settings_of_run, stoppable
from semel.cli.commands.batch.opening import Id, Scope, open_batch, scope_of
from semel.cli.commands.batch.view import batch_table, failure_table, failures_by_class, status_object, status_view
from semel.cli.commands.events.live import AsJson, Every, showing, stop_signals
from semel.cli.exit_codes import IN_DOUBT, INTERRUPTED, OTHER, not_found_error, usage_error
from semel.cli.printing import complain, console
from semel.cli.store_option import Url, load_object, open_async_engine, open_engine
from semel.cli.timefmt import duration
from semel.engine.clock import Backoff
from semel.engine.engine import engine_of
from semel.errors import RecordNotFound, SemelError, StoreUnavailable

_BACKOFF: Final = Backoff(first=1.0, most=60.0, spread=0)
_COLUMNS: Final = ("state", "completed", "failed", "skipped", "in_doubt", "remaining", "rate", "eta_s")
FunctionPath = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION", help="Your function, which takes an item, or its data.", show_default=False
    ),
]
Concurrency = Annotated[int, typer.Option(min=1, help="How many items this process works on at a time.")]
Page = Annotated[int, typer.Option(min=1, help="How many items are claimed together; the first run decides.")]
MaxAttempts = Annotated[int, typer.Option(min=1, help="How often an item is tried that fails.")]
MaxFailed = Annotated[
    str | None,
    typer.Option(metavar="N", help="Pause the batch when more items than that fail: 100, or 5%.", show_default=False),
]
PerSecond = Annotated[
    float | None,
    typer.Option(
        "--rate", min=0.001, help="How many items may begin in a second, over all processes.", show_default=False
    ),
]
InDoubtPolicy = Annotated[
    str, typer.Option("--in-doubt", help="What is done with items whose end nobody saw: rerun, hold.")
]
Transaction = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:CALLABLE",
        help="What begins a transaction, in which the record of an item commits together with its effect.",
        show_default=False,
    ),
]
Commit = Annotated[str, typer.Option(help="With --transaction: one for each item, or one for each page.")]


@dataclass(frozen=True)
class Show:
    """How what is done is shown."""

    every: timedelta
    as_json: bool


@dataclass
class Working:
    """What this process does at the moment, and how it is asked to stop."""

    is_stopping: bool = False
    stop_run: Callable[[], None] | None = None
    done: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, stop_run: Callable[[], None]) -> None:
        """A run has begun, which this ends."""
        self.stop_run = stop_run
        if self.is_stopping:
            stop_run()

    def stop(self) -> None:
        """Let running items end."""
        self.is_stopping = True
        self.wake.set()
        if self.stop_run is not None:
            self.stop_run()


@dataclass
class RetrySchedule:
    """When batches that stopped with an error are run again: later after each time."""

    failures: Counter[str] = field(default_factory=Counter)
    due: dict[str, float] = field(default_factory=dict)

    def is_due(self, id_: str) -> bool:
        """Whether a batch may be run now."""
        return time.monotonic() >= self.due.get(id_, 0.0)

    def postpone(self, id_: str) -> float:
        """A batch has stopped; answers in how many seconds it is run again."""
        self.failures[id_] += 1
        seconds = _BACKOFF.after(self.failures[id_]).total_seconds()
        self.due[id_] = time.monotonic() + seconds
        return seconds

    def clear(self, id_: str) -> None:
        """A batch was run without an error."""
        del self.failures[id_]
        self.due.pop(id_, None)


def run(
    path: FunctionPath,
    id_: Id,
    url: Url = None,
    *,
    concurrency: Concurrency = 64,
    page: Page = 100,
    max_attempts: MaxAttempts = 1,
    max_failed: MaxFailed = None,
    rate: PerSecond = None,
    in_doubt: InDoubtPolicy = "rerun",
    transaction: Transaction = None,
    commit: Commit = "item",
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End when there is nothing to do here, though others still work on it.")
    ] = False,
    scope: Scope = None,
    every: Every = "10s",
    as_json: AsJson = False,
) -> None:
    """Run a batch in this process until it is completed, paused or cancelled. Other processes may run it as well.

    Ctrl-C and SIGTERM let running items end; the exit code is 130 then, and the next run goes on. It is 4 if items are
    in doubt, and 1 if some failed or the batch is paused, cancelled or not loaded to its end, so that nothing ran.
    """
    function = load_function(path)
    options = _options(
        concurrency=concurrency,
        page=page,
        max_attempts=max_attempts,
        max_failed=max_failed,
        rate=rate,
        in_doubt=in_doubt,
        transaction=transaction,
        commit=commit,
    )
    office, working, show = Office(function, url, scope), Working(), Show(duration(every), as_json)
    status = asyncio.run(_run(office, id_, options | {"wait": not no_wait}, working, show))
    if status.failed and not as_json:
        with open_batch(id_, url, scope) as batch:
            console().print(failure_table(failures_by_class(batch)))
    if working.is_stopping and status.state == "running":
        raise typer.Exit(INTERRUPTED)
    if status.in_doubt:
        raise typer.Exit(IN_DOUBT)
    if status.failed or status.state in ("loading", "paused", "cancelled", "failed"):
        raise typer.Exit(OTHER)


def work(
    path: FunctionPath,
    url: Url = None,
    *,
    operation: Annotated[str, typer.Option(help="The operation whose batches are run.", show_default=False)],
    concurrency: Concurrency = 64,
    page: Page = 100,
    max_attempts: MaxAttempts = 1,
    max_failed: MaxFailed = None,
    rate: PerSecond = None,
    in_doubt: InDoubtPolicy = "rerun",
    transaction: Transaction = None,
    commit: Commit = "item",
    poll: Annotated[str, typer.Option(metavar="DURATION", help="How often to look for batches.")] = "1s",
    scope: Scope = None,
    every: Every = "10s",
    as_json: AsJson = False,
) -> None:
    """Run all batches of an operation that wait to be run or are running, one after the other, until Ctrl-C or SIGTERM.

    Then running items end. Start as many of these as you like, on any number of machines. A batch that stops with an
    error is told on the standard error and run again later; the others go on.
    """
    function = load_function(path)
    options = _options(
        concurrency=concurrency,
        page=page,
        max_attempts=max_attempts,
        max_failed=max_failed,
        rate=rate,
        in_doubt=in_doubt,
        transaction=transaction,
        commit=commit,
    )
    pause = duration(poll).total_seconds()
    show = Show(duration(every), as_json)
    asyncio.run(_work(Office(function, url, scope), operation, options | {"wait": False}, pause, show))


def load_function(path: str) -> Callable[..., Any]:
    """The function named `package.module:function`.

    Raises:
        Refused: there is none, or it cannot be called.
    """
    found = load_object(path)
    if not callable(found) or inspect.isclass(found):
        raise usage_error(f"{path} is a {type(found).__qualname__}, not a function; nothing was done.")
    function: Callable[..., Any] = found
    return function


def _options(
    *,
    concurrency: int,
    page: int,
    max_attempts: int,
    max_failed: str | None,
    rate: float | None,
    in_doubt: str,
    transaction: str | None,
    commit: str,
) -> dict[str, Any]:
    if in_doubt not in ("rerun", "hold"):
        raise usage_error(f"--in-doubt is rerun or hold, not {in_doubt!r}; nothing was done.")
    is_number = max_failed is not None and max_failed.isdecimal()
    return {
        "concurrency": concurrency,
        "page": page,
        "max_attempts": max_attempts,
        "max_failed": int(max_failed) if max_failed is not None and is_number else max_failed,
        "rate": rate,
        "in_doubt": in_doubt,
        "transaction": None if transaction is None else load_object(transaction, "--transaction "),
        "commit": commit,
    }


class Office:
    """Batches as an engine of either kind has them; whatever blocks runs in a thread."""

    def __init__(self, function: Callable[..., Any], url: str | None, scope: str | None) -> None:
        self._is_async = inspect.iscoroutinefunction(function)
        self._function = function
        self.semel: Any = open_async_engine(url) if self._is_async else open_engine(url)
        self.batches: Batches[Any] = Batches(self.semel, scope_of(scope))

    async def do(self, call: Callable[[], Any]) -> Any:
        """What a call gives."""
        if self._is_async:
            awaitable: Awaitable[Any] = call()
            return await awaitable
        return await asyncio.to_thread(call)

    def check(self, operation: str, options: dict[str, Any]) -> None:
        """Refuse what no batch of an operation could be run with.

        Raises:
            UsageError: the function or an option cannot be used so.
        """
        settings_of_run(engine_of(self.semel), operation, Any, self._function, **options)

    async def get(self, id_: str) -> Batch[Any]:
        """The batch of an id.

        Raises:
            Refused: there is none.
        """
        try:
            batch: Batch[Any] = await self.do(lambda: self.batches.get(id_))
        except RecordNotFound as error:
            raise not_found_error(error.message) from None
        return batch

    async def list(self, state: Any) -> list[Batch[Any]]:
        """Batches of a state."""
        found: Any = self.batches.list(state=state)
        if self._is_async:
            return [batch async for batch in found]
        return await asyncio.to_thread(list, found)

    async def run(self, batch: Batch[Any], working: Working, options: dict[str, Any]) -> BatchStatus:
        """Run a batch until it is over here, or asked to stop."""
        running: Any = stoppable(batch, working.begin)
        try:
            status: BatchStatus = await self.do(lambda: running.run(self._function, **options))
        finally:
            working.stop_run = None
        return status

    async def close(self) -> None:
        """Let go of the connections."""
        await self.do(self.semel.close)


async def _run(office: Office, id_: str, options: dict[str, Any], working: Working, show: Show) -> BatchStatus:
    async with AsyncExitStack() as stack:
        stack.push_async_callback(office.close)
        batch = await office.get(id_)

        async def look() -> tuple[dict[str, Any], RenderableType]:
            status = await office.do(batch.status)
            figures = status_object(status)
            return (figures if show.as_json else _short(figures)), status_view(status)

        with stop_signals(working.stop):
            async with showing(look, every=show.every, as_json=show.as_json):
                return await office.run(batch, working, options)


async def _work(office: Office, operation: str, options: dict[str, Any], pause: float, show: Show) -> None:
    working, retries = Working(), RetrySchedule()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(office.close)
        office.check(operation, options)

        async def look() -> tuple[dict[str, Any], RenderableType]:
            found = [await office.do(batch.status) for batch in await _open_batches(office, operation)]
            return {
                "operation": operation,
                "runs": working.done,
                "batches": len(found),
                "remaining": sum(one.remaining for one in found),
            }, _work_view(operation, working, found)

        with stop_signals(working.stop):
            async with showing(look, every=show.every, as_json=show.as_json):
                while not working.is_stopping:
                    for batch in await _look_for_work(office, operation):
                        if working.is_stopping:
                            break
                        if retries.is_due(batch.id):
                            await _run_one(office, batch, options, working, retries)
                    await _rest(working, pause)


async def _run_one(
    office: Office, batch: Batch[Any], options: dict[str, Any], working: Working, retries: RetrySchedule
) -> None:
    """Run a batch; what stops it stops no other one."""
    try:
        await office.run(batch, working, options)
    except Exception as error:  # noqa: BLE001 - told, and tried again
        seconds = retries.postpone(batch.id)
        code, text = (
            (error.code, error.message) if isinstance(error, SemelError) else (type(error).__name__, str(error))
        )
        complain(code, f"the batch {batch.id!r} stopped here, and is run again in {seconds:.0f} s: {text}")
    else:
        retries.clear(batch.id)
        working.done += 1


async def _look_for_work(office: Office, operation: str) -> list[Batch[Any]]:
    """The batches to be run; none while the store does not answer."""
    try:
        return await _open_batches(office, operation)
    except StoreUnavailable as error:
        complain(error.code, error.message)
        return []


async def _open_batches(office: Office, operation: str) -> list[Batch[Any]]:
    found = [batch for state in ("running", "pending") for batch in await office.list(state)]
    return [batch for batch in found if batch.operation == operation]


async def _rest(working: Working, seconds: float) -> None:
    """Wait, unless it is stopped first."""
    try:
        await asyncio.wait_for(working.wake.wait(), seconds)
    except TimeoutError:
        return


def _short(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: figures[name] for name in _COLUMNS if figures[name] is not None}


def _work_view(operation: str, working: Working, found: list[BatchStatus]) -> RenderableType:
    title = Text(f"operation {operation}: {len(found)} batches to run, {working.done} runs so far", "bold")
    return Group(title, batch_table(found)) if found else title
