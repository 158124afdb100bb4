"""Flows: logic written once as a generator, and the sync and the async runner for it.

A flow yields what it needs done and receives the answer. Engine flows yield operations and calls; the plan of a store
yields commands.

- An ordinary error is thrown into the flow at its `yield`.
- A cancellation or an interrupt closes the flow without another `yield`; cleaning up is another flow.
- A flow that was stopped at a `yield` can be resumed there by the same runner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Flow = Generator[Any, Any, T]
A = TypeVar("A")
Begin = Callable[[Generator[Any, Any, Any]], Any]
"""Takes a flow to what it asks for first, or next."""


class Asks(Generic[A]):
    """Something that a flow may ask for, and be answered with an `A`."""

    __slots__ = ()


def ask(wanted: Asks[A]) -> Flow[A]:
    """Yield what is wanted and give the answer, of which type checkers then know what it is."""
    return (yield wanted)  # type: ignore[no-any-return]  # the runner answers with that type


def run(
    flow: Flow[T],
    perform: Callable[[Any], Any],
    begin: Begin = next,
    stop: tuple[type, ...] = (),
) -> T:
    """Drive `flow` to its end, performing what it asks for.

    Args:
        flow: the work.
        perform: does what it asks for.
        begin: starts it, or takes it up again where it was stopped.
        stop: what is given back, and not performed: the flow waits there.
    """
    try:
        wanted = begin(flow)
        while not isinstance(wanted, stop):
            try:
                answer = perform(wanted)
            except Exception as error:  # noqa: BLE001 - the flow decides what an error means
                wanted = flow.throw(error)
            else:
                wanted = flow.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    except BaseException:
        flow.close()
        raise
    return wanted  # type: ignore[return-value]  # the caller that stops it knows what it asked for


async def arun(
    flow: Flow[T],
    perform: Callable[[Any], Awaitable[Any]],
    begin: Begin = next,
    stop: tuple[type, ...] = (),
) -> T:
    """Drive `flow` to its end, awaiting what it asks for.

    Args:
        flow: the work.
        perform: does what it asks for.
        begin: starts it, or takes it up again where it was stopped.
        stop: what is given back, and not performed: the flow waits there.
    """
    try:
        wanted = begin(flow)
        while not isinstance(wanted, stop):
            try:
                answer = await perform(wanted)
            except Exception as error:  # noqa: BLE001 - the flow decides what an error means
                wanted = flow.throw(error)
            else:
                wanted = flow.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    except BaseException:
        flow.close()
        raise
    return wanted  # type: ignore[return-value]  # the caller that stops it knows what it asked for
