"""Signals as values, handed to an observer that cannot disturb what it observes.

- An observer never sees a key's value, only its reference.
- An error that it raises is logged and dropped.
- A tracer, if the observer has one, is told when work begins, so that what happens inside belongs to its span. The
  signal of that work hands back what the tracer gave, and ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, Protocol

import msgspec

_log = logging.getLogger("semel")
_LOUD = frozenset(
    {
        "in_doubt",
        "lapsed",
        "lease_lost",
        "stalled",
        "not_kept",
        "store_down",
        "store_open",
        "store_closed",
        "cache_open",
        "cache_closed",
        "unprotected",
        "dead_letter",
    }
)


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to one operation, or to a store or cache: then operation and reference are empty."""

    kind: Literal[
        "ran",
        "replayed",
        "failed",
        "rolled_back",
        "in_doubt",
        "lapsed",
        "lease_lost",
        "stalled",
        "waited",
        "refused",
        "unprotected",
        "reused",
        "not_kept",
        "store_down",
        "store_open",
        "store_closed",
        "cache_hit",
        "cache_miss",
        "cache_open",
        "cache_closed",
        "consumed",
        "dead_letter",
        "published",
        "parked",
        "publishing_failed",
        "batch_items",
        "swept",
    ]
    operation: str
    reference: str
    seconds: float = 0.0
    detail: str = ""
    handler_seconds: float | None = None
    tier: Literal["process", "redis", "store"] | None = None
    process_instance: str | None = None
    number: int = 1
    trace: object | None = None
    first_trace: str | None = None


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Something that begins, as a tracer sees it.

    Attributes:
        kind: a handler runs, a consumer processes an event, or a relay sends events.
        operation: of the key; for `send` the name of the stream.
        reference: of the record, if there is one.
        seconds: for how long it has been going on, by waiting and claiming.
        number: how many events.
        event_type: of the event that is processed.
        parents: the spans that the events were made in, as W3C trace contexts.
        trace: what was given when the same work began; None: it begins now.
    """

    kind: Literal["run", "process", "send"]
    operation: str
    reference: str = ""
    seconds: float = 0.0
    number: int = 1
    event_type: str = ""
    parents: tuple[str, ...] = ()
    trace: object | None = None


class Tracer(Protocol):
    """Makes spans of work that is under way; an observer has one as its attribute `tracer`.

    Attributes:
        keeps_traces: whether the span in which a key is claimed is to be kept with its record.
    """

    keeps_traces: bool

    def begin(self, work: Work, /) -> AbstractContextManager[object]:
        """A block in which the span of `work` is the current one; what it gives is the `trace` of the work's signal."""

    def traceparent(self) -> str | None:
        """The current span as a W3C trace context; None: there is none."""


TRACE_TAG = "semel.trace"
"""The tag of a record that says in which span its key was first claimed."""


class Observer(Protocol):
    """Receives signals; telemetry adapters implement it."""

    def observe(self, signal: Signal, /) -> None:
        """Take note of `signal`."""


class Logging:
    """The default observer: through `logging`, quiet unless something needs a look."""

    def observe(self, signal: Signal) -> None:
        """Log `signal`, at a level that fits it."""
        level = logging.WARNING if signal.kind in _LOUD else logging.DEBUG
        if _log.isEnabledFor(level):
            _log.log(level, "%s %s %s %s", signal.kind, signal.operation, signal.reference[:16], signal.detail)


def is_loud(kind: str) -> bool:
    """Whether a signal of this kind needs a look."""
    return kind in _LOUD


def is_heard(observer: Observer, kind: str) -> bool:
    """Whether a signal of this kind is worth making: what the default observer would drop is not."""
    return type(observer) is not Logging or kind in _LOUD or _log.isEnabledFor(logging.DEBUG)


def tracer_of(observer: Observer) -> Tracer | None:
    """The observer's tracer, if it has one."""
    return getattr(observer, "tracer", None)


@contextmanager
def tracing(tracer: Tracer, work: Work) -> Iterator[object | None]:
    """A block inside the span of `work`; gives what its signal hands back, and survives what the tracer does.

    An error that leaves the block is shown to the tracer, and goes on.
    """
    block, trace = None, None
    try:
        block = tracer.begin(work)
        trace = block.__enter__()
    except Exception:  # noqa: BLE001 - as for observers
        block = None
        _log.exception("a tracer failed; the operation is not affected")
    error: BaseException | None = None
    try:
        yield trace
    except BaseException as problem:
        error = problem
        raise
    finally:
        if block is not None:
            _leave(block, error)


def _leave(block: AbstractContextManager[object], error: BaseException | None) -> None:
    try:
        block.__exit__(None if error is None else type(error), error, None if error is None else error.__traceback__)
    except Exception:  # noqa: BLE001 - as for observers
        _log.exception("a tracer failed; the operation is not affected")


def current_trace(tracer: Tracer) -> str | None:
    """The current span as a W3C trace context; None: there is none, or the tracer failed."""
    try:
        return tracer.traceparent()
    except Exception:  # noqa: BLE001 - as for observers
        _log.exception("a tracer failed; the operation is not affected")
        return None


def notify(observer: Observer, signal: Signal) -> None:
    """Tell the observer, and survive what it does."""
    try:
        observer.observe(signal)
    except Exception:  # noqa: BLE001 - whatever an observer does, the operation goes on
        _log.exception("an observer failed; the operation is not affected")
