"""Handlers by the types of events they take, and what each of them is called with.

- The parameters of a handler are given by name: `event`, `data`, `attempt` and `session`, each optional, in any order.
  Another name is refused at decoration.
- `data` is decoded from JSON to its annotation before the handler is called; what does not decode never reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from semel.engine.decorator import name_of
from semel.errors import UsageError
from semel.events.event import Event
from semel.handlers import (
    DoesNotDecode,
    check_decodable,
    data_annotation,
    describe_places,
    is_pydantic,
    is_untyped,
    parameters_of,
)

PARAMETERS: Final = ("event", "data", "attempt", "session")


Decoder = Callable[[Event], Any]


@dataclass(frozen=True, slots=True)
class EventHandler:
    """A function that takes events, the parameters it has, and how the data becomes what it is annotated with."""

    function: Callable[..., Any]
    parameters: frozenset[str]
    decode: Decoder

    def arguments(self, event: Event, attempt: Any, session: Any) -> dict[str, Any]:
        """What it is called with.

        Raises:
            DoesNotDecode: the data is not what the handler is annotated with.
        """
        known = {"event": event, "attempt": attempt, "session": session}
        given = {name: known[name] for name in self.parameters if name != "data"}
        if "data" in self.parameters:
            given["data"] = self.decode(event)
        return given


class Handlers:
    """The handlers of one consumer, by type.

    Args:
        fallback: takes events of every type that has no handler of its own.
    """

    def __init__(self, fallback: EventHandler | None = None) -> None:
        self._by_type: dict[str, EventHandler] = {}
        self._fallback = fallback

    def add(self, types: tuple[str, ...], function: Callable[..., Any]) -> None:
        """Take `function` for events of these types.

        Raises:
            UsageError: no type, a type that has a handler, or a parameter that nobody gives.
        """
        if not types or not all(isinstance(type_, str) and type_ for type_ in types):
            raise UsageError(f"{name_of(function)} needs the types it takes, such as on('asset.moved'); nothing ran.")
        for type_ in types:
            if type_ in self._by_type:
                other = name_of(self._by_type[type_].function)
                raise UsageError(f"{type_!r} is taken by {other} already, so {name_of(function)} cannot; nothing ran.")
        handler = make_handler(function)
        self._by_type |= dict.fromkeys(types, handler)

    def find(self, type_: str) -> EventHandler | None:
        """The handler of a type, if there is one."""
        return self._by_type.get(type_, self._fallback)

    def __iter__(self) -> Iterator[tuple[str, EventHandler]]:
        return iter(sorted(self._by_type.items(), key=lambda item: item[0]))


def make_handler(function: Callable[..., Any]) -> EventHandler:
    """Work out what a handler is called with.

    Raises:
        UsageError: it has a parameter that nobody gives, or data cannot be decoded to its annotation.
    """
    parameters = parameters_of(function, PARAMETERS, "events")
    return EventHandler(function, parameters, make_decoder(data_annotation(function), function))


def make_decoder(annotation: Any, function: Callable[..., Any]) -> Decoder:
    """How the data of an event becomes a value of `annotation`.

    Raises:
        UsageError: there is no way.
    """
    if is_untyped(annotation):
        return lambda event: event.data
    if annotation is bytes:
        return lambda event: event.body
    if is_pydantic(annotation):
        return lambda event: _decode_pydantic(annotation, event)
    check_decodable(annotation, name_of(function))
    return lambda event: _decode_json(annotation, event)


def _decode_json(annotation: Any, event: Event) -> Any:
    try:
        if isinstance(event.data, bytes):
            return msgspec.json.decode(event.data, type=annotation)
        return msgspec.convert(event.data, annotation, str_keys=True)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise DoesNotDecode(f"the data of {event.type} is not as annotated: {problem!s:.300}") from None


def _decode_pydantic(model: Any, event: Event) -> Any:
    try:
        return model.model_validate_json(event.body)
    except ValueError as problem:
        raise DoesNotDecode(f"the data of {event.type} is not as annotated: {describe_places(problem)}") from None
