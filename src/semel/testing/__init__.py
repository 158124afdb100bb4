"""What users test with: a virtual clock, engines put on another store, crashes, the contract suite and the simulator.

The names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.engine.clock import Crash
    from semel.testing.clock import VirtualClock
    from semel.testing.crashing import crash
    from semel.testing.overriding import override

_HOMES = {
    "Crash": "semel.engine.clock",
    "VirtualClock": "semel.testing.clock",
    "crash": "semel.testing.crashing",
    "override": "semel.testing.overriding",
}

__all__ = ["Crash", "VirtualClock", "crash", "override"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
