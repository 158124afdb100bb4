"""semel makes an operation happen once, however often it is asked for.

The names below are loaded when they are first used, so that importing `semel` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel import errors
    from semel.api import AsyncSemel, Semel, verify_key
    from semel.core.circuit import Limits
    from semel.core.key import SHARED, Key, KeyRing, is_key, make_key
    from semel.core.observer import Observer, Signal
    from semel.core.policy import Policy
    from semel.core.record import (
        About,
        Cancelled,
        Count,
        DidNotHappen,
        Failed,
        Happened,
        HistoryEntry,
        Holder,
        Record,
        Unknown,
    )
    from semel.core.store import Capability
    from semel.engine.async_engine import AsyncAttempt
    from semel.engine.call_flow import Result
    from semel.engine.sync_engine import Attempt
    from semel.stores.cache import Cache

_HOMES = {
    "About": "semel.core.record",
    "AsyncAttempt": "semel.engine.async_engine",
    "AsyncSemel": "semel.api",
    "Attempt": "semel.engine.sync_engine",
    "Cache": "semel.stores.cache",
    "Cancelled": "semel.core.record",
    "Capability": "semel.core.store",
    "Count": "semel.core.record",
    "DidNotHappen": "semel.core.record",
    "Failed": "semel.core.record",
    "Happened": "semel.core.record",
    "HistoryEntry": "semel.core.record",
    "Holder": "semel.core.record",
    "Key": "semel.core.key",
    "KeyRing": "semel.core.key",
    "Limits": "semel.core.circuit",
    "Observer": "semel.core.observer",
    "Policy": "semel.core.policy",
    "Record": "semel.core.record",
    "Result": "semel.engine.call_flow",
    "SHARED": "semel.core.key",
    "Semel": "semel.api",
    "Signal": "semel.core.observer",
    "Unknown": "semel.core.record",
    "is_key": "semel.core.key",
    "make_key": "semel.core.key",
    "verify_key": "semel.api",
}

__all__ = [
    "SHARED",
    "About",
    "AsyncAttempt",
    "AsyncSemel",
    "Attempt",
    "Cache",
    "Cancelled",
    "Capability",
    "Count",
    "DidNotHappen",
    "Failed",
    "Happened",
    "HistoryEntry",
    "Holder",
    "Key",
    "KeyRing",
    "Limits",
    "Observer",
    "Policy",
    "Record",
    "Result",
    "Semel",
    "Signal",
    "Unknown",
    "errors",
    "is_key",
    "make_key",
    "verify_key",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("semel.errors")
    home = _HOMES.get(name)
    if home is None:
        message = f"module 'semel' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
