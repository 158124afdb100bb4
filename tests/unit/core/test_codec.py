"""Results: first run and replay give equal values of equal type, for every annotation; no value ever changes."""

import dataclasses
import time as clock
from collections import OrderedDict, defaultdict
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.core import codec
from semel.core.codec import same
from semel.core.record import NotKept, unpack_outcome
from semel.errors import ResultNotKept
from tests.unit.core import results
from tests.unit.core.effort import fewer
from tests.unit.core.results import SUPPORTED, Inner, Left, Line, Pair, Priced, Receipt, Row, Word
from tests.unit.core.values import plain_values

LIMIT = 1024 * 1024


def replayed(value: object, annotation: Any = codec.NO_ANNOTATION, *, max_result: int = LIMIT) -> Any:
    """What a duplicate gets for a result."""
    shape = codec.shape_of(annotation)
    return codec.decode(codec.encode(value, shape, max_result), shape)


def kept_or_left_out(value: object, annotation: Any = codec.NO_ANNOTATION) -> bool:
    """Whether a value came back; one that did came back unchanged."""
    try:
        back = replayed(value, annotation)
    except ResultNotKept:
        return False
    assert same(value, back)
    return True


@pytest.mark.parametrize("kind", SUPPORTED)
@fewer(4)
@given(data=st.data())
def test_replay_equals_the_first_run(kind: str, data: st.DataObject) -> None:
    annotation, values = SUPPORTED[kind]
    value = data.draw(values)
    assert same(replayed(value, annotation), value)


@fewer(3)
@given(plain_values)
def test_without_an_annotation_plain_data_comes_back(value: Any) -> None:
    assert same(replayed(value), value)


@given(st.sampled_from(sorted(SUPPORTED)), st.sampled_from(sorted(SUPPORTED)), st.data())
def test_a_value_of_another_type_than_declared_never_changes(declared: str, given_: str, data: st.DataObject) -> None:
    kept_or_left_out(data.draw(SUPPORTED[given_][1]), SUPPORTED[declared][0])


@pytest.mark.parametrize("value", [None, 0, 0.0, False, "", b"", [], (), {}, set()], ids=repr)
def test_nothing_much_is_a_result_like_any_other(value: object) -> None:
    assert same(replayed(value), value)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1, float),
        (True, int),
        (1.0, int),
        ("text", int),
        (None, int),
        ((1, 2), list[int]),
        ([1, 2], tuple[int, int]),
        ([1], list[float]),
        ({1, 2}, list[int]),
        ({1: 2}, dict[float, int]),
        ({(1, 2)}, set[tuple[float, float]]),
        ({"a": 1}, dict[str, str]),
        ({"name": "a", "price": Decimal(1), "more": 1}, Row),
        ({"name": "a"}, Row),
        ({"x": 1}, Left),
        ({"x": 1}, Left | results.Right),
        ((1, "a"), Pair),
        ("red", results.Colour),
        ("paid", Word),
        (1, results.Level),
        ("2030-01-01", datetime),
        (str(UUID(int=1)), UUID),
        ("1.10", Decimal),
        (1, Decimal),
        (b"x", str),
        ("x", bytes),
        (10**5000, float),
    ],
    ids=lambda item: repr(item)[:30] if not isinstance(item, int) else "int",
)
def test_plain_data_of_another_type_is_kept_as_what_it_is(value: object, annotation: Any) -> None:
    assert same(replayed(value, annotation), value)


class _Text(str):
    __slots__ = ()


@dataclasses.dataclass
class _Dearer(Line):
    extra: int = 0


@dataclasses.dataclass
class _Float:
    x: float


@dataclasses.dataclass
class _Marked:
    x: int

    @cached_property
    def shown(self) -> str:
        return str(self.x)


@dataclasses.dataclass
class _Counting:
    x: int

    def __post_init__(self) -> None:
        self.x += 1


@dataclasses.dataclass
class _Anything:
    x: Any


def _priced_otherwise() -> Priced:
    priced = Priced(net=1)
    priced.gross = 7
    return priced


def _with_something_besides() -> _Marked:
    marked = _Marked(1)
    marked.besides = 1  # type: ignore[attr-defined]  # that it is not declared is the point
    return marked


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (_Dearer("a", Decimal(1)), Line),
        (_Float(1), _Float),
        (_Counting(1), _Counting),
        (_priced_otherwise(), Priced),
        (_with_something_besides(), _Marked),
        (_Anything({1, 2}), _Anything),
        (_Anything(Left(1)), _Anything),
        (_Text("a"), str),
        ({"a": _Text("a")}, dict[str, str]),
        ({_Text("a"): 1}, dict[str, int]),
        (Word.PAID, str),
        (results.Level.LOW, int),
        (Pair(1, "a"), tuple[int, str]),
        ([Left(1)], list),
        (OrderedDict(a=1), dict[str, int]),
        (defaultdict(int, a=1), dict[str, int]),
        (Left(1), results.Right),
        (object(), Any),
        (lambda: 1, codec.NO_ANNOTATION),
        (iter([1]), codec.NO_ANNOTATION),
        (ValueError("a"), codec.NO_ANNOTATION),
        ("\ud800", str),
        (Left("\ud800"), Left),  # type: ignore[arg-type]  # a value that does not fit is the point
        (Left("one"), Left),  # type: ignore[arg-type]
    ],
    ids=lambda item: type(item).__name__,
)
def test_what_would_change_leaves_a_tombstone(value: object, annotation: Any) -> None:
    with pytest.raises(ResultNotKept, match=r"ran before and is done.*Nothing ran now"):
        replayed(value, annotation)


def test_what_an_object_has_worked_out_does_not_stand_in_the_way() -> None:
    marked = _Marked(1)
    assert marked.shown == "1"
    assert replayed(marked, _Marked) == _Marked(1)


class _Zone(tzinfo):
    def utcoffset(self, _moment: datetime | None) -> Any:
        raise RuntimeError("no such zone")

    dst = tzname = utcoffset


class _Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


class _Hostile:
    """Raises whatever one asks it."""

    def __getattribute__(self, name: str) -> Any:
        raise _Rude

    def __eq__(self, other: object) -> bool:
        raise _Rude

    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass
class _Odd:
    x: Any

    def __post_init__(self) -> None:
        if self.x == "raise":
            raise _Rude


def _odd() -> _Odd:
    odd = _Odd(1)
    odd.x = "raise"
    return odd


def _selfish() -> list[Any]:
    value: list[Any] = []
    value += [value, value]
    return value


def _linked() -> Receipt:
    receipt = Receipt(Decimal(1), Inner(UUID(int=1), datetime(2030, 1, 1, tzinfo=UTC)), Word.PAID)
    receipt.link = receipt
    return receipt


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (_Hostile(), codec.NO_ANNOTATION),
        (_Hostile(), Left),
        (Left(_Hostile()), Left),  # type: ignore[arg-type]  # a value that does not fit is the point
        (_odd(), _Odd),
        (datetime(2030, 1, 1, tzinfo=_Zone()), datetime),
        (_selfish(), codec.NO_ANNOTATION),
        (_selfish(), list),
        (_selfish(), list[Any]),
        (_Anything(_selfish()), _Anything),
        (_linked(), Receipt),
        (_deep(), codec.NO_ANNOTATION),
        (_deep(), list),
    ],
    ids=[
        "hostile",
        "hostile for a dataclass",
        "hostile inside",
        "raises when rebuilt",
        "broken zone",
        "selfish",
        "selfish list",
        "selfish list of anything",
        "selfish inside",
        "linked to itself",
        "deep",
        "deep list",
    ],
)
def test_encoding_never_raises_and_never_hangs(value: object, annotation: Any) -> None:
    began = clock.process_time()
    stored = codec.encode(value, codec.shape_of(annotation), LIMIT)
    assert isinstance(unpack_outcome(stored), NotKept)
    assert clock.process_time() - began < 2


@pytest.mark.parametrize(("size", "kept"), [(0, True), (1, False)])
def test_the_limit_counts_the_packed_size(size: int, kept: bool) -> None:
    value = "x" * 10
    shape = codec.shape_of(str)
    packed = len(codec.encode(value, shape, LIMIT))
    stored = codec.encode(value, shape, packed - size)
    assert (not isinstance(unpack_outcome(stored), NotKept)) == kept


def test_what_compresses_well_may_be_large() -> None:
    assert replayed("x" * 500_000, str, max_result=5_000) == "x" * 500_000


def test_a_result_over_the_limit_says_so() -> None:
    with pytest.raises(ResultNotKept, match="more than max_result=100") as caught:
        replayed(bytes(range(256)), bytes, max_result=100)
    assert "max_result=100" in caught.value.reason  # type: ignore[attr-defined]  # facts are attributes


def test_a_tombstone_does_not_tell_what_the_value_was() -> None:
    class Model(msgspec.Struct):
        number: int

    with pytest.raises(ResultNotKept) as caught:
        replayed(Model("4111-1111"), Model)  # type: ignore[arg-type]  # a value that does not fit is the point
    assert "4111" not in str(caught.value)
