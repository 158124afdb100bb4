"""Items as handlers and readers of results see them, and how their data is encoded and decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from semel.core.batch.values import ItemStatus, StoredItem
from semel.core.record import Failure
from semel.core.sealing.values import refuse_sealed
from semel.engine.decorator import name_of
from semel.errors import UsageError
from semel.handlers import (
    DoesNotDecode,
    check_decodable,
    data_annotation,
    describe_places,
    is_pydantic,
    is_untyped,
    parameters_of,
)

T = TypeVar("T")
PARAMETERS: Final = ("item", "data", "session", "attempt")
Decode = Callable[[bytes], Any]
ResultStatus = Literal["pending", "completed", "failed", "skipped", "in_doubt"]
STATUS_NAMES: Final[tuple[ResultStatus, ...]] = ("pending", "completed", "failed", "skipped", "in_doubt")


class Skip(Exception):
    """Raised by a handler: there is nothing to do for this item. It is counted as skipped, and never runs again."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item, as its handler sees it.

    Attributes:
        id: what names it in its batch.
        data: as it was loaded, decoded to the type that `start` was given.
        position: where it stood in the input, from 0.
        number: which attempt this is, from 1.
        in_doubt: whether an earlier attempt may have had its effect.
    """

    id: str
    data: Any
    position: int
    number: int
    in_doubt: bool


@dataclass(frozen=True, slots=True)
class ItemResult(Generic[T]):
    """What became of an item.

    Attributes:
        id: what names it in its batch.
        position: where it stood in the input, from 0.
        status: `pending`, `completed`, `failed`, `skipped` or `in_doubt`.
        value: what its handler returned; None where it is not completed, or was erased.
        error: why it failed, was skipped, or is in doubt, or why there is no value of an item that is completed.
        attempts: how often it was tried.
    """

    id: str
    position: int
    status: ResultStatus
    value: T | None
    error: Failure | None
    attempts: int


@dataclass(frozen=True, slots=True)
class ItemHandler:
    """A function that takes items, the parameters it has, and how the data becomes what it is annotated with."""

    function: Callable[..., Any]
    parameters: frozenset[str]
    decode_item: Decode
    decode_data: Decode

    def arguments(self, item: Item, data: bytes, attempt: Any, session: Any) -> dict[str, Any]:
        """What it is called with.

        Raises:
            DoesNotDecode: the data is not what the handler is annotated with.
        """
        known = {"item": item, "attempt": attempt, "session": session}
        given = {name: known[name] for name in self.parameters if name != "data"}
        if "data" in self.parameters:
            given["data"] = self.decode_data(data)
        return given


def make_item_handler(function: Callable[..., Any], type_: Any) -> ItemHandler:
    """Work out what a handler of items is called with.

    Raises:
        UsageError: it has a parameter that nobody gives, or data cannot be decoded to its annotation.
    """
    parameters = parameters_of(function, PARAMETERS, "items")
    annotation = data_annotation(function)
    own = type_ if is_untyped(annotation) else annotation
    return ItemHandler(function, parameters, decoder_of(type_, "the items"), decoder_of(own, name_of(function)))


def decoder_of(annotation: Any, owner: str) -> Decode:
    """How the JSON of an item becomes a value of `annotation`.

    Raises:
        UsageError: there is no way.
    """
    if is_untyped(annotation):
        return msgspec.json.decode
    if is_pydantic(annotation):
        return lambda data: _decode_pydantic(annotation, data)
    check_decodable(annotation, owner)
    decoder = msgspec.json.Decoder(annotation)
    return lambda data: _decode_json(decoder, data)


def _decode_json(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise DoesNotDecode(f"the data is not as annotated: {problem!s:.300}") from None


def _decode_pydantic(model: Any, data: bytes) -> Any:
    try:
        return model.model_validate_json(data)
    except ValueError as problem:
        raise DoesNotDecode(f"the data is not as annotated: {describe_places(problem)}") from None


def refuse_sealed_items(items: Iterable[StoredItem]) -> None:
    """Refuse items that are sealed, where no keyring was given.

    Raises:
        RecordUnreadable: one of them is.
    """
    for item in items:
        refuse_sealed(item.data)


def status_number(name: str | None) -> int | None:
    """The number of a status that results are asked for.

    Raises:
        UsageError: there is no such status.
    """
    if name is None:
        return None
    if name not in STATUS_NAMES:
        raise UsageError(f"status is one of {', '.join(STATUS_NAMES)}, not {name!r}; nothing was read.")
    return int(ItemStatus[name.upper()])
