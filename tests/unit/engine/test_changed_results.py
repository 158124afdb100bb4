"""Result types that were changed while values are kept: what each release reads of the values of the other."""

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pydantic
import pytest

from semel import Semel
from semel.errors import RecordUnreadable
from semel.stores.memory import MemoryStore

Fields = dict[str, tuple[Any, ...]]


def _dataclass(name: str, fields: Fields) -> Any:
    made: list[Any] = [
        (one, kind, *(dataclasses.field(default=d) for d in default)) for one, (kind, *default) in fields.items()
    ]
    return dataclasses.make_dataclass(name, made)


def _struct(name: str, fields: Fields) -> Any:
    made: list[Any] = [(one, *rest) for one, rest in fields.items()]
    return msgspec.defstruct(name, made)


def _model(name: str, fields: Fields) -> Any:
    made: dict[str, Any] = {one: (kind, *(default or [...])) for one, (kind, *default) in fields.items()}
    return pydantic.create_model(name, **made)


MODELS = {"dataclass": _dataclass, "Struct": _struct, "pydantic model": _model}
NUMBER: Fields = {"number": (int,)}
UNREADABLE = "unreadable"

# What there was, what there is, and what the new code reads of an old value, the old code of a new one.
CHANGES: dict[str, tuple[Fields, Fields, object, object]] = {
    "a field with a default": (NUMBER, {**NUMBER, "tip": (int, 0)}, {"number": 7, "tip": 0}, {"number": 7}),
    "a required field": (NUMBER, {**NUMBER, "tip": (int,)}, UNREADABLE, {"number": 7}),
    "a field less": ({**NUMBER, "tip": (int,)}, NUMBER, {"number": 7}, UNREADABLE),
    "a field with a default less": ({**NUMBER, "tip": (int, 0)}, NUMBER, {"number": 7}, {"number": 7, "tip": 0}),
    "a field renamed": (NUMBER, {"id": (int,)}, UNREADABLE, UNREADABLE),
    "a field of another type": (NUMBER, {"number": (list[int],)}, UNREADABLE, UNREADABLE),
}


def read(store: MemoryStore, written: Any, given: dict[str, Any], declared: Any) -> object:
    """What a function that declares one type reads of a value that one of another type gave."""
    Semel(store).run("o-1", lambda: written(**given), operation="pay", fingerprint=None, returns=written)
    try:
        value: Any = Semel(store).run("o-1", pytest.fail, operation="pay", fingerprint=None, returns=declared).value
    except RecordUnreadable:
        return UNREADABLE
    assert isinstance(value, declared)
    return {name: getattr(value, name) for name in declared.__annotations__}


def values_of(fields: Fields) -> dict[str, Any]:
    return {name: [7] if kind == list[int] else 7 for name, (kind, *_) in fields.items()}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize(("before", "since", "by_new", "by_old"), CHANGES.values(), ids=CHANGES.keys())
def test_each_release_reads_what_fits_of_the_values_of_the_other(
    model: Callable[..., Any], before: Fields, since: Fields, by_new: object, by_old: object
) -> None:
    old, new = model("Receipt", before), model("Receipt", since)
    assert read(MemoryStore(), old, values_of(before), new) == by_new, "an old value, by the new code"
    assert read(MemoryStore(), new, values_of(since), old) == by_old, "a new value, by the old code"


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_a_class_may_be_renamed(model: Callable[..., Any]) -> None:
    old, new = model("Receipt", NUMBER), model("Invoice", NUMBER)
    assert read(MemoryStore(), old, {"number": 7}, new) == {"number": 7}


@dataclasses.dataclass
class First:
    number: int


@dataclasses.dataclass
class Second:
    id: int


def test_a_value_of_one_type_is_not_guessed_to_be_a_member_of_a_union() -> None:
    store = MemoryStore()
    assert read(store, First, {"number": 7}, First | Second) == UNREADABLE
