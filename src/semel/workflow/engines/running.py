"""What adapters of engines share: what they run, how they run it from either kind of code, and variables as JSON."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol

import msgspec

from semel.core.policy import Policy
from semel.errors import UsageError
from semel.workflow.ends import Completed, End, Incident
from semel.workflow.inputs import KEY

log = logging.getLogger("semel.workflow.engines")

MOST_OUTPUTS: Final = 1024 * 1024
"""Bytes of outputs that every engine takes."""


class Runnable(Protocol):
    """What an adapter runs: a delegate, or the compensation of one."""

    @property
    def semel(self) -> Any:
        """The engine whose records it keeps."""

    @property
    def is_async(self) -> bool:
        """Whether `run` has to be awaited."""

    @property
    def policy(self) -> Policy:
        """How it is claimed and kept."""

    @property
    def run(self) -> Callable[..., Any]:
        """Run a task, as `Delegate.run` does."""


async def run_here(
    delegate: Runnable,
    variables: Mapping[str, Any],
    *,
    instance: str | None,
    activity: str | None,
    business_key: str | None = None,
) -> End:
    """Run a task from an event loop: one that would block the loop runs in a thread."""
    place = {"instance": instance, "activity": activity, "business_key": business_key}
    if delegate.is_async:
        end: End = await delegate.run(variables, **place)
        return end
    return await asyncio.to_thread(delegate.run, variables, **place)


async def run_to_end(
    delegate: Runnable,
    variables: Mapping[str, Any],
    *,
    instance: str | None,
    activity: str | None,
    business_key: str | None = None,
) -> End:
    """Run a task; never raises: where the process or the program has to be changed, a person has to look.

    What a completed task hands over is JSON data.
    """
    try:
        end = await run_here(delegate, variables, instance=instance, activity=activity, business_key=business_key)
        return fit_for_engine(end)
    except Exception as error:
        log.exception("a task of %r cannot be run", delegate)
        return Incident("", f"{type(error).__name__}: {error!s:.400}")


def fit_for_engine(end: End) -> End:
    """A completed task with its outputs as JSON data; an incident where they are more than an engine takes.

    Raises:
        UsageError: an output is no JSON data.
    """
    if not isinstance(end, Completed):
        return end
    variables = as_json_data(end.variables)
    size = len(msgspec.json.encode(variables))
    if size <= MOST_OUTPUTS:
        return Completed(variables, end.value)
    return Incident(
        str(variables.get(KEY, "")),
        f"The task is done and recorded, and its outputs take {size} bytes as JSON, where engines take {MOST_OUTPUTS}. "
        f"Keep the data elsewhere and have outputs() hand over an identifier: it is asked again when the task is tried "
        f"again, and the task is not run.",
    )


def as_json_data(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Variables as engines keep them: decimals and dates become text.

    Raises:
        UsageError: one of them is no JSON data.
    """
    try:
        decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(variables)))
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise UsageError(
            f"The task is done, and its outputs are no JSON data: {problem!s:.200}. Change outputs(): it is asked "
            f"again on the next run, and the task is not."
        ) from None
    return decoded


class BackgroundLoop:
    """An event loop in a thread of its own, for code that cannot await. Begun on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Carry `work` out in the loop, and wait for it here."""
        return asyncio.run_coroutine_threadsafe(work, self._begun()).result()

    def _begun(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="semel-workflow", daemon=True)
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """End the loop; another use begins a new one."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
