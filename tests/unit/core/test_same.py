"""`same` is stricter than `==`: it sees types, signs, zones, and what was set on an object besides its fields."""

import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given

from semel.core.codec import same
from tests.unit.core.values import hashable, plain_values

NAN = float("nan")


class _Pair(NamedTuple):
    x: object
    y: object


class _Point(msgspec.Struct):
    x: object


@dataclasses.dataclass
class _Place:
    x: object

    @cached_property
    def shown(self) -> str:
        return str(self.x)


@dataclasses.dataclass
class _Elsewhere:
    x: object


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    x: Any
    _hidden: int = pydantic.PrivateAttr(default=0)


def _model(hidden: int, **extra: Any) -> _Model:
    model = _Model(x=1, **extra)
    model._hidden = hidden
    return model


def _place(**besides: object) -> _Place:
    place = _Place(1)
    vars(place).update(besides)
    return place


@given(plain_values)
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert same(value, value)


@given(hashable, hashable)
def test_it_is_never_looser_than_equality(left: Any, right: Any) -> None:
    if same(left, right) and left == left:  # noqa: PLR0124 - what holds NaN does not even equal itself
        assert left == right


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ([0.0], [-0.0]),
        (complex(0.0, 0.0), complex(0.0, -0.0)),
        (Decimal(1), Decimal("1.0")),
        ([1], (1,)),
        ({1}, frozenset({1})),
        ({1}, {1.0}),
        ({(1, 2)}, {(1.0, 2)}),
        ({1: "a"}, {1.0: "a"}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ((1, 2), _Pair(1, 2)),
        (_Pair(1, 2), _Pair(1, 2.0)),
        (_Point(1), _Point(1.0)),
        (_Place(1), _Place(True)),
        (_Place(1), _Elsewhere(1)),
        (_place(), _place(z=1)),
        (_place(z=1), _place(z=2)),
        (_model(0), _model(1)),
        (_model(0, z=1), _model(0)),
        (_model(0, z=1), _model(0, z=1.0)),
        (b"a", bytearray(b"a")),
        (datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
        (datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=ZoneInfo("UTC"))),
        (
            datetime(2030, 1, 1, tzinfo=ZoneInfo("Europe/Paris")),
            datetime(2030, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        ),
        (datetime(2030, 1, 1, fold=0), datetime(2030, 1, 1, fold=1)),  # noqa: DTZ001 - naive ones are data too
        ({NAN}, {1.0}),
        ({NAN, 1.0}, {NAN, 2.0}),
        ({(float("nan"), 1), (float("nan"), 2)}, {(float("nan"), 1), (float("nan"), 1)}),
        ([NAN], [None]),
    ],
)
def test_what_differs_in_type_or_detail_is_not_the_same(left: object, right: object) -> None:
    assert not same(left, right)
    assert not same(right, left)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (float("nan"), float("nan")),
        ({float("nan"), 1.0}, {1.0, float("nan")}),
        ({float("nan"): 1}, {float("nan"): 1}),
        (Decimal("NaN"), Decimal("NaN")),
        (Decimal("sNaN"), Decimal("sNaN")),
        (complex(NAN, 1), complex(float("nan"), 1)),
        (_Point([1]), _Point([1])),
        (_model(3, z=(1,)), _model(3, z=(1,))),
    ],
)
def test_equal_values_of_equal_types_are_the_same(left: object, right: object) -> None:
    assert same(left, right)


def test_what_an_object_has_only_worked_out_does_not_count() -> None:
    place = _Place(1)
    assert place.shown == "1"
    assert same(place, _Place(1))
