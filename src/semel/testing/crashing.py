"""A handler that dies."""

from __future__ import annotations

from typing import Any

from semel.engine.clock import Crash


def crash() -> Any:
    """End the handler that calls this as if its process had been killed: nothing is recorded, the lease runs out.

    It may be a handler or a step itself, which is why it is not declared to return nothing.

    Raises:
        Crash: always. The test catches it: `with pytest.raises(Crash)`. It is no `Exception`, so the code under test
            does not catch it by accident.
    """
    message = "The process was killed here, as a test wanted."
    raise Crash(message)
