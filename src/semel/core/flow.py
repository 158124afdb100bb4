"""Flows: work written once, without colour, and the two runners that give it one.

A flow is a generator that yields what it needs done and receives the answer. Engine flows yield operations and calls;
a store's plan yields commands. What always holds: an ordinary error is thrown into the flow at its `yield`; anything
harder (cancellation, an interrupt) closes the flow without another `yield`, and cleaning up is another flow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")
Flow = Generator[Any, Any, T]


def run(flow: Flow[T], perform: Callable[[Any], Any]) -> T:
    """Drive `flow` to its end, performing what it asks for."""
    try:
        wanted = next(flow)
        while True:
            try:
                answer = perform(wanted)
            except Exception as error:  # noqa: BLE001 - the flow decides what an error means
                wanted = flow.throw(error)
            else:
                wanted = flow.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()


async def arun(flow: Flow[T], perform: Callable[[Any], Awaitable[Any]]) -> T:
    """Drive `flow` to its end, awaiting what it asks for."""
    try:
        wanted = next(flow)
        while True:
            try:
                answer = await perform(wanted)
            except Exception as error:  # noqa: BLE001 - the flow decides what an error means
                wanted = flow.throw(error)
            else:
                wanted = flow.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        flow.close()
