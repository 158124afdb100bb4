"""Driving a flow by hand: what a shell does with `run`, as a flow of its own that stops wherever it has to wait."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from semel.core.flow import Flow

Inline = Mapping[type, Callable[[Any], Generator[Any, Any, Any]]]


class Gone(BaseException):
    """What the caller of a cancelled call sees."""


class Point:
    """A point of a handler that others can see."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


START, EFFECT, LOOK = Point("start"), Point("effect"), Point("look at the ledger")
GONE = Gone("cancelled")


def driven(flow: Flow[Any], inline: Inline) -> Flow[Any]:
    """The same flow, some of its wishes fulfilled by flows of the caller; as `core.flow.run` does it."""
    try:
        wanted = next(flow)
        while True:
            try:
                act = inline.get(type(wanted))
                answer = (yield wanted) if act is None else (yield from act(wanted))
            except Exception as error:  # noqa: BLE001 - the flow decides what an error means
                wanted = flow.throw(error)
            else:
                wanted = flow.send(answer)
    except StopIteration as stop:
        return stop.value
    finally:
        flow.close()
