"""A handler that dies."""

from __future__ import annotations

from typing import NoReturn

from semel.engine.crash import Crash


def crash() -> NoReturn:
    """End the handler that calls this as if its process had been killed: nothing is recorded, the lease runs out.

    Raises:
        Crash: always. The test catches it: `with pytest.raises(Crash)`. It is no `Exception`, so the code under test
            does not catch it by accident.
    """
    message = "The process was killed here, as a test wanted."
    raise Crash(message)
