"""A caller of either colour: asks an engine for keys by plain calls, so that one test serves both.

What always holds: a handler is an ordinary function; what it does is in the hands of the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from semel import AsyncAttempt, AsyncSemel, Attempt, Policy, Semel
from semel.engine.call_flow import Result
from tests.decorated import CallStyle, call
from tests.faults.users import Colour

Handler = Callable[[Attempt | AsyncAttempt], Any]


class Caller:
    """One engine on a store, and a loop of its own where it needs one; it asks by `run` or by a decorated function."""

    def __init__(self, store: Any, colour: Colour, style: CallStyle = "run", **settings: Any) -> None:
        self._style = style
        self._runner = asyncio.Runner() if colour == "loop" else None
        self.semel: Any = AsyncSemel(store, **settings) if self._runner else Semel(store, **settings)

    def run(self, key: str, handler: Handler, policy: Policy | None = None) -> Result[Any]:
        """Ask for a key."""
        if self._runner is None:

            def plain() -> Any:
                return handler(self.semel.current())

            result: Result[Any] = call(self._style, self.semel, key, plain, operation="charge", policy=policy)
            return result

        async def awaited() -> Any:
            return handler(self.semel.current())

        return self._runner.run(call(self._style, self.semel, key, awaited, operation="charge", policy=policy))

    def read(self, key: str) -> Any:
        """Look a key up."""
        found = self.semel.read(key, operation="charge")
        return found if self._runner is None else self._runner.run(found)

    def close(self) -> None:
        """Let go of the store."""
        if self._runner is None:
            self.semel.close()
        else:
            self._runner.run(self.semel.close())
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
