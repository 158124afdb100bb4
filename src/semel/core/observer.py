"""Signals as values, handed to an observer that cannot disturb what it observes.

- An observer never sees a key's value, only its reference.
- An error that it raises is logged and dropped.
"""

from __future__ import annotations

import logging
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
    ]
    operation: str
    reference: str
    seconds: float = 0.0
    detail: str = ""
    handler_seconds: float | None = None
    tier: Literal["process", "redis", "store"] | None = None
    process_instance: str | None = None


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


def is_heard(observer: Observer, kind: str) -> bool:
    """Whether a signal of this kind is worth making: what the default observer would drop is not."""
    return type(observer) is not Logging or kind in _LOUD or _log.isEnabledFor(logging.DEBUG)


def notify(observer: Observer, signal: Signal) -> None:
    """Tell the observer, and survive what it does."""
    try:
        observer.observe(signal)
    except Exception:  # noqa: BLE001 - whatever an observer does, the operation goes on
        _log.exception("an observer failed; the operation is not affected")
