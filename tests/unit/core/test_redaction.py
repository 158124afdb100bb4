"""Members at given paths are replaced before a value becomes bytes; what does not fit any more is not kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

from semel import Policy
from semel.core import codec, serializer
from semel.errors import PolicyInvalid, ResultNotKept

LIMIT = 10_000
PAN = "4111111111111111"


@dataclass
class Card:
    number: str
    brand: str


@dataclass
class Payment:
    receipt: str
    card: Card | None


class Model(pydantic.BaseModel):
    number: str
    brand: str


class Other(pydantic.BaseModel):
    receipt: str


class Pair(NamedTuple):
    number: str
    brand: str


class Row(msgspec.Struct, array_like=True):
    number: str


@dataclass
class Counted:
    number: int


class Quoting(msgspec.Struct):
    number: str

    def __post_init__(self) -> None:
        if self.number == serializer.REDACTED:
            raise ValueError(f"{PAN} was expected")


def stored(value: Any, *paths: str, annotation: Any = codec.NO_ANNOTATION) -> bytes:
    return codec.encode(value, codec.shape_of(annotation), LIMIT, paths)


def replayed(value: Any, *paths: str, annotation: Any = codec.NO_ANNOTATION) -> Any:
    return codec.decode(stored(value, *paths, annotation=annotation), codec.shape_of(annotation))


@pytest.mark.parametrize(
    ("value", "path", "expected"),
    [
        ({"card": {"number": PAN, "brand": "v"}}, "card.number", {"card": {"number": "[redacted]", "brand": "v"}}),
        ({"card": {"number": PAN}}, "card", {"card": "[redacted]"}),
        ({"items": [{"pan": PAN}, {"id": 1}]}, "items.*.pan", {"items": [{"pan": "[redacted]"}, {"id": 1}]}),
        ({"by": {"a": {"pan": PAN}}}, "by.*.pan", {"by": {"a": {"pan": "[redacted]"}}}),
        ([PAN, 1], "*", ["[redacted]", "[redacted]"]),
        ((PAN,), "*", ("[redacted]",)),
        ({PAN}, "*", {"[redacted]"}),
        ({7: PAN}, "7", {7: "[redacted]"}),
        ({"card": None}, "card.number", {"card": None}),
        ({"receipt": "r"}, "card.number", {"receipt": "r"}),
        (None, "card.number", None),
        ("reference", "card.number", "reference"),
        ([1, 2], "card.number", [1, 2]),
    ],
)
def test_what_stands_at_a_path_is_replaced(value: Any, path: str, expected: Any) -> None:
    assert codec.same(replayed(value, path), expected)


def test_several_paths_are_all_replaced() -> None:
    assert replayed({"a": PAN, "b": PAN, "c": 1}, "a", "b") == {"a": "[redacted]", "b": "[redacted]", "c": 1}


def test_an_object_comes_back_as_its_class() -> None:
    paid = Payment("r", Card(PAN, "visa"))
    assert replayed(paid, "card.number", annotation=Payment) == Payment("r", Card("[redacted]", "visa"))
    assert paid.card == Card(PAN, "visa")  # what the caller holds is not changed


def test_a_model_comes_back_as_its_class() -> None:
    found = replayed(Model(number=PAN, brand="visa"), "number", annotation=Model)
    assert found == Model(number="[redacted]", brand="visa")


def test_a_member_of_a_union_is_looked_into() -> None:
    kept = stored(Model(number=PAN, brand="visa"), "number", annotation=Model | Other)
    assert PAN.encode() not in kept
    assert codec.decode(kept, codec.shape_of(Model | Other)) == Model(number="[redacted]", brand="visa")


def test_a_result_of_another_type_than_declared_is_redacted_too() -> None:
    assert replayed({"number": PAN}, "number", annotation=int) == {"number": "[redacted]"}


def test_an_annotation_with_an_upgrade_is_redacted_too() -> None:
    shape = codec.UpgradingAdapter(codec.shape_of(Model | Other), lambda data: data)
    kept = codec.encode(Model(number=PAN, brand="visa"), shape, LIMIT, ("number",))
    assert codec.decode(kept, shape) == Model(number="[redacted]", brand="visa")


@pytest.mark.parametrize(
    ("value", "path", "annotation"),
    [
        (Counted(int(PAN)), "number", Counted),
        ({"items": [{"pan": PAN}]}, "items.pan", codec.NO_ANNOTATION),
        ({"card": PAN}, "card.number", codec.NO_ANNOTATION),
        (Pair(PAN, "visa"), "number", Pair),
        (Row(PAN), "number", Row),
        (Quoting(PAN), "number", Quoting),
        (object(), "number", codec.NO_ANNOTATION),
    ],
    ids=["number", "list without star", "text", "named tuple", "row", "validator", "not plain"],
)
def test_what_does_not_fit_once_redacted_is_not_kept(value: Any, path: str, annotation: Any) -> None:
    kept = stored(value, path, annotation=annotation)
    assert PAN.encode() not in kept
    assert msgspec.msgpack.encode(int(PAN))[1:] not in kept
    with pytest.raises(ResultNotKept):
        codec.decode(kept, codec.shape_of(annotation))


@pytest.mark.parametrize(
    "wrong", ["card.number", None, ("",), ("card..number",), (".card",), ("card.",), (7,), (" a",)]
)
def test_a_path_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(PolicyInvalid, match="redact takes"):
        Policy(redact=wrong)


def test_a_list_of_paths_is_taken_as_a_tuple() -> None:
    assert Policy(redact=["a.b"]).redact == ("a.b",)  # type: ignore[arg-type]
