"""Values of every supported kind, for the property tests of keys, fingerprints and results."""

import dataclasses
import unicodedata
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import strategies as st

NFC = "caf\u00e9"
NFD = "cafe\u0301"


class Colour(Enum):
    RED = 1
    BLUE = "blue"


class Size(Enum):
    SMALL = 1


class Word(StrEnum):
    PAY = "pay"


class Number(IntEnum):
    ONE = 1


class Point(msgspec.Struct, frozen=True):
    x: Any
    y: Any = 0


@dataclasses.dataclass(frozen=True)
class Place:
    x: Any
    y: Any = 0


# Small and full of neighbours that a careless encoding would confuse, so that equal and nearly equal values abound.
CONFUSABLE: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    10,
    0.0,
    -0.0,
    1.0,
    0.1,
    1e23,
    10**23,
    Decimal(1),
    Decimal("1.00"),
    Decimal("0.1"),
    Decimal("1E+1"),
    Decimal("-0"),
    "",
    "0",
    "1",
    "1.0",
    "True",
    "None",
    "pay",
    ":",
    "S1:1",
    "L0:",
    NFC,
    NFD,
    b"",
    b"1",
    b"pay",
    bytearray(b"1"),
    Colour.RED,
    Colour.BLUE,
    Size.SMALL,
    Word.PAY,
    Number.ONE,
    UUID(int=1),
    date(2030, 1, 1),
    time(1, 2),
    timedelta(microseconds=1),
    datetime(2030, 1, 1, tzinfo=UTC),
    datetime(2030, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    datetime(2030, 1, 1, 1, tzinfo=ZoneInfo("Europe/Paris")),
]


def _nested(leaves: st.SearchStrategy[Any], names: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def wrap(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        lists = st.lists(inner, max_size=3)
        return st.one_of(
            lists,
            lists.map(tuple),
            st.frozensets(names, max_size=3),
            st.sets(names, max_size=3),
            st.dictionaries(names, inner, max_size=3),
            st.builds(Point, inner, inner),
            st.builds(Place, inner, inner),
        )

    return st.recursive(leaves, wrap, max_leaves=5)


_HASHABLE = [value for value in CONFUSABLE if not isinstance(value, bytearray)]
confusable = _nested(st.sampled_from(CONFUSABLE), st.sampled_from(_HASHABLE))

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
offsets = st.timedeltas(min_value=timedelta(hours=-23), max_value=timedelta(hours=23)).map(timezone)
regions = st.sampled_from(["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "UTC"]).map(ZoneInfo)
zones = st.one_of(st.just(UTC), offsets, regions)
# A day from either end, because an offset can push what is nearer out of the calendar.
moments = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=zones)  # noqa: DTZ001
numbers = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False).filter(lambda number: abs(number.adjusted()) < 400),
)
encodable_leaves = st.one_of(
    st.none(), st.booleans(), numbers, text, st.binary(max_size=20), moments, st.dates(), st.timedeltas(), st.uuids()
)
encodable = _nested(encodable_leaves, encodable_leaves)


def meaning(value: Any) -> Any:
    """What the documentation says a value is equal to, worked out without any encoding."""
    match value:
        case None | bool():
            return type(value).__name__, value
        case str():
            return "text", unicodedata.normalize("NFC", str.__str__(value))
        case int() | float() | Decimal():
            return "number", Fraction(value)
        case bytes() | bytearray():
            return "bytes", bytes(value)
        case Enum():
            return "enum", type(value).__name__, meaning(value.value)
        case datetime():
            return "moment", value.astimezone(UTC)
        case list() | tuple():
            return "list", tuple(meaning(item) for item in value)
        case set() | frozenset():
            return "set", frozenset(Counter(meaning(item) for item in value).items())
        case dict():
            return "map", frozenset((meaning(name), meaning(item)) for name, item in value.items())
        case Point() | Place():
            return "object", type(value).__name__, meaning({"x": value.x, "y": value.y})
        case _:
            return type(value).__name__, value


def _plain_leaves() -> st.SearchStrategy[Any]:
    moments_of_all_kinds = st.builds(
        lambda moment, fold: moment.replace(fold=fold),
        st.datetimes(timezones=st.one_of(st.none(), zones), allow_imaginary=True),
        st.sampled_from([0, 1]),
    )
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(min_value=-(2**4000), max_value=2**4000),
        st.floats(),
        st.complex_numbers(),
        st.decimals(),
        st.sampled_from([Decimal("sNaN"), Decimal("-0E-10"), Decimal("1E+1000000"), Decimal("NaN123"), -0.0]),
        text,
        st.binary(max_size=20),
        moments_of_all_kinds,
        st.dates(),
        st.times(timezones=st.one_of(st.none(), offsets)),
        st.timedeltas(),
        st.uuids(),
    )


plain_leaves = _plain_leaves()


def _signals(value: Any) -> bool:
    return isinstance(value, Decimal) and value.is_snan()


hashable = st.recursive(
    plain_leaves.filter(lambda value: not _signals(value)),
    lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), st.frozensets(inner, max_size=3)),
    max_leaves=3,
)
plain_values = st.recursive(
    st.one_of(plain_leaves, st.binary(max_size=20).map(bytearray)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(hashable, max_size=3),
        st.frozensets(hashable, max_size=3),
        st.dictionaries(hashable, inner, max_size=4),
    ),
    max_leaves=8,
)
