"""The engine that the server works with: async, on the store of whichever engine it was given.

Hooks and handlers are of the kind of their own engine, so what calls them stays with that engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from semel.api import AsyncSemel, Semel
from semel.core.flow import Flow
from semel.engine.admin import SweepReport
from semel.engine.engine import engine_of


def as_async(semel: Semel | AsyncSemel) -> AsyncSemel:
    """The engine itself, or an async one on its store that knows the same operations."""
    if isinstance(semel, AsyncSemel):
        return semel
    engine = engine_of(semel)
    made = AsyncSemel(engine.store, policy=engine.policy, observer=engine.observer)
    other = engine_of(made)
    other.known = engine.known  # one registry: operations that are decorated later are known here, too
    other.erasables = engine.erasables  # the same for what keeps personal data
    other.secrets, other.fingerprints = engine.secrets, engine.fingerprints
    return made


async def run_sweep(semel: Semel | AsyncSemel, limit: int | None) -> SweepReport:
    """Sweep once, with the hooks of this engine."""
    if isinstance(semel, AsyncSemel):
        return await semel.sweep(limit=limit)
    return await asyncio.to_thread(semel.sweep, limit=limit)


async def call_either(function: Callable[..., Any], *args: Any, is_async: bool, **named: Any) -> Any:
    """Call what is awaited, or in a thread what is not."""
    if is_async:
        return await function(*args, **named)
    return await asyncio.to_thread(function, *args, **named)


async def perform(semel: AsyncSemel, flow: Flow[Any]) -> Any:
    """Carry out a flow on a connection of the engine's own."""
    return await engine_of(semel).perform_on(None, flow)
