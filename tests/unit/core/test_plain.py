"""Plain data as bytes: equal value and equal type come back, or it is refused; damage is an error and nothing else."""

import contextlib
import dataclasses
import sys
import threading
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from semel.core.codec import same
from semel.core.serializer import MAX_DEPTH, Damaged, NotPlain, dumps, loads
from tests.unit.core.values import plain_values


@given(plain_values)
def test_value_and_type_come_back(value: Any) -> None:
    assert same(loads(dumps(value)), value)


@given(plain_values)
def test_reading_gives_what_writes_the_same_bytes(value: Any) -> None:
    once = loads(dumps(value))
    assert same(loads(dumps(once)), once)


PARIS = ZoneInfo("Europe/Paris")


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        "",
        b"",
        [],
        (),
        {},
        set(),
        frozenset(),
        2**63,
        2**64,
        -(2**63) - 1,
        -(2**64),
        10**10_000,
        -0.0,
        float("inf"),
        complex(-0.0, float("nan")),
        "\x00\U0010ffff",
        {(1, ("a",)): {frozenset({1}): 2}},
        {1: "a", "1": "b", 1.5: "c", None: "d", b"1": "e", UUID(int=1): "f"},
        {2**70: 1},
        Decimal("1.10"),
        Decimal("-0E-5"),
        datetime(2030, 10, 27, 2, 30, tzinfo=PARIS, fold=1),
        datetime(2030, 3, 31, 2, 30, tzinfo=PARIS),
        datetime(2030, 1, 1, fold=1),  # noqa: DTZ001 - naive ones are data like any other here
        datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=1), "CET")),
        datetime(2030, 1, 1, tzinfo=timezone(timedelta(seconds=-1))),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=23))),
        time(1, 2, tzinfo=UTC, fold=1),
        time(1, 2, tzinfo=PARIS),
        timedelta(days=-1, microseconds=1),
        timedelta.max,
        date.min,
        bytearray(b"x"),
    ],
    ids=lambda value: repr(value)[:40] if not isinstance(value, int) else "int",
)
def test_corners_come_back(value: object) -> None:
    assert same(loads(dumps(value)), value)


@pytest.mark.parametrize("zone", [UTC, PARIS, timezone(timedelta(hours=1), "CET"), timezone(timedelta(hours=1))])
def test_a_zone_keeps_its_kind_and_name(zone: tzinfo) -> None:
    back = loads(dumps(datetime(2030, 1, 1, tzinfo=zone)))
    assert type(back.tzinfo) is type(zone)
    assert str(back.tzinfo) == str(zone)


class _Text(str):
    __slots__ = ()


class _Whole(int):
    pass


class _Bytes(bytes):
    pass


class _List(list[int]):
    pass


class _Moment(datetime):
    pass


class _Zone(tzinfo):
    def utcoffset(self, _moment: datetime | None) -> timedelta:
        return timedelta(hours=1)

    dst = utcoffset

    def tzname(self, _moment: datetime | None) -> str:
        return "here"


class _Region(ZoneInfo):
    pass


class _Word(StrEnum):
    PAY = "pay"


class _Number(IntEnum):
    ONE = 1


class _Colour(Enum):
    RED = 1


class _Pair(NamedTuple):
    x: int


@dataclasses.dataclass
class _Place:
    x: int


class _Point(msgspec.Struct):
    x: int


@pytest.mark.parametrize(
    "value",
    [
        _Text("a"),
        _Whole(1),
        _Bytes(b"a"),
        _List([1]),
        _Moment(2030, 1, 1),
        datetime(2030, 1, 1, tzinfo=_Zone()),
        time(1, tzinfo=_Zone()),
        datetime(2030, 1, 1, tzinfo=_Region("Europe/Paris")),
        _Word.PAY,
        _Number.ONE,
        _Colour.RED,
        _Pair(1),
        _Place(1),
        _Point(1),
        OrderedDict(a=1),
        defaultdict(int),
        Counter("a"),
        UserDict(a=1),
        deque([1]),
        range(1),
        memoryview(b"a"),
        Fraction(1, 2),
        PurePosixPath("a"),
        object(),
        len,
        int,
        iter([1]),
        ValueError("a"),
        "\ud800",
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_come_back_as_another_type_is_refused(value: Any) -> None:
    for held in (value, [value], ((value,),), {"a": [value]}):
        with pytest.raises(NotPlain):
            dumps(held)


@pytest.mark.parametrize("name", [_Text("a"), _Whole(1), _Word.PAY, _Number.ONE, _Pair(1)], ids=repr)
def test_names_that_would_come_back_as_another_type_are_refused(name: object) -> None:
    with pytest.raises(NotPlain):
        dumps({name: 1})


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: (value,), lambda value: {"a": value}])
def test_nesting_is_bounded(wrap: Any) -> None:
    value: Any = None
    for _ in range(MAX_DEPTH):
        value = wrap(value)
    assert same(loads(dumps(value)), value)
    with pytest.raises(NotPlain, match="levels deep"):
        dumps(wrap(value))


def test_nesting_without_end_is_refused_without_recursion() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotPlain, match="levels deep"):
        dumps(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value += [value, {"again": value}]
    with pytest.raises(NotPlain, match="levels deep"):
        dumps(value)


@given(st.binary(max_size=60))
def test_random_bytes_are_a_value_or_an_error(data: bytes) -> None:
    with contextlib.suppress(Damaged):
        loads(data)


@given(plain_values, st.data())
def test_damaged_bytes_are_a_value_or_an_error(value: Any, data: st.DataObject) -> None:
    whole = bytearray(dumps(value))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Damaged):
        loads(bytes(whole))


@given(plain_values, st.data())
def test_truncated_bytes_are_an_error(value: Any, data: st.DataObject) -> None:
    whole = dumps(value)
    with pytest.raises(Damaged):
        loads(whole[: data.draw(st.integers(0, len(whole) - 1))])


def _ext(code: int, body: object) -> bytes:
    return msgspec.msgpack.encode(Ext(code, body if isinstance(body, bytes) else msgspec.msgpack.encode(body)))


@pytest.mark.parametrize(
    "data",
    [
        _ext(99, b""),
        _ext(3, [[1]]),
        _ext(2, 7),
        _ext(5, b"ten"),
        _ext(5, b"\xff"),
        _ext(6, ["2030-13-01", 0, None]),
        _ext(6, ["2030-01-01", 2, None]),
        _ext(6, ["2030-01-01", 0, "Nowhere/Land"]),
        _ext(6, ["2030-01-01", 0, "../../etc/passwd"]),
        _ext(6, ["2030-01-01", 0, "Europe"]),
        _ext(6, ["2030-01-01", 0, [10**15, "far"]]),
        _ext(7, b"yesterday"),
        _ext(8, ["25:00", 0, None]),
        _ext(9, [10**12]),
        _ext(10, b"short"),
        _ext(11, ["one", 2]),
        _ext(13, [[[1], 2]]),
        _ext(13, 5),
        b"",
        b"\xc1",
        b"\x92\x01",
        b"\x01\x01",
        b"\x91" * 100_000,
    ],
    ids=lambda data: data[:12].hex(),
)
def test_what_dumps_never_wrote_is_an_error(data: bytes) -> None:
    with pytest.raises(Damaged):
        loads(data)


def _nested_extensions(depth: int) -> bytes:
    data = msgspec.msgpack.encode([1])
    for _ in range(depth):
        data = msgspec.msgpack.encode([Ext(2, data)])
    return data


def test_extensions_nested_without_end_are_an_error_on_a_small_stack_too() -> None:
    found: list[BaseException] = []

    def read() -> None:
        try:
            loads(_nested_extensions(3_000))
        except Damaged as error:
            found.append(error)

    before = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert [type(error) for error in found] == [Damaged]


def test_reading_imports_nothing() -> None:
    before = set(sys.modules)
    for name in (b"os.system", b"antigravity", b"this"):
        with pytest.raises(Damaged, match="unknown"):
            loads(_ext(100, name))
    assert set(sys.modules) <= before | {"zoneinfo._common"}
