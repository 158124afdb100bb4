"""What users test with: a virtual clock, engines on another store, crashes, a faulty broker, the contract of stores.

Other names than `crash` are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.engine.clock import Crash
    from semel.testing.broker import DeliveryReport, FaultyBroker
    from semel.testing.clock import VirtualClock
    from semel.testing.overriding import override

_HOMES = {
    "Crash": "semel.engine.clock",
    "DeliveryReport": "semel.testing.broker",
    "FaultyBroker": "semel.testing.broker",
    "VirtualClock": "semel.testing.clock",
    "override": "semel.testing.overriding",
}

__all__ = ["Crash", "DeliveryReport", "FaultyBroker", "VirtualClock", "crash", "override"]


def crash() -> Any:
    """End the handler that calls this as if its process had been killed: nothing is recorded, the lease runs out.

    It may be a handler or a step itself, which is why it is not declared to return nothing.

    Raises:
        Crash: always. The test catches it: `with pytest.raises(Crash)`. It is no `Exception`, so the code under test
            does not catch it by accident.
    """
    from semel.engine.clock import Crash

    message = "The process was killed here, as a test wanted."
    raise Crash(message)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
