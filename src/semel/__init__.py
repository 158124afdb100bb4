"""semel makes an operation happen once, however often it is asked for.

The names below are loaded when they are first used, so that importing `semel` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel import errors
    from semel.core.key import SHARED, Key, is_key, make_key
    from semel.core.outcome import Cancelled, DidNotHappen, Happened, Unknown
    from semel.core.policy import Policy
    from semel.core.record import About, Record
    from semel.engine.aio_shell import AsyncAttempt
    from semel.engine.request import Result
    from semel.engine.sync_shell import Attempt
    from semel.entry import AsyncSemel, Semel

_HOMES = {
    "About": "semel.core.record",
    "AsyncAttempt": "semel.engine.aio_shell",
    "AsyncSemel": "semel.entry",
    "Attempt": "semel.engine.sync_shell",
    "Cancelled": "semel.core.outcome",
    "DidNotHappen": "semel.core.outcome",
    "Happened": "semel.core.outcome",
    "Key": "semel.core.key",
    "Policy": "semel.core.policy",
    "Record": "semel.core.record",
    "Result": "semel.engine.request",
    "SHARED": "semel.core.key",
    "Semel": "semel.entry",
    "Unknown": "semel.core.outcome",
    "is_key": "semel.core.key",
    "make_key": "semel.core.key",
}

__all__ = [
    "SHARED",
    "About",
    "AsyncAttempt",
    "AsyncSemel",
    "Attempt",
    "Cancelled",
    "DidNotHappen",
    "Happened",
    "Key",
    "Policy",
    "Record",
    "Result",
    "Semel",
    "Unknown",
    "errors",
    "is_key",
    "make_key",
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
