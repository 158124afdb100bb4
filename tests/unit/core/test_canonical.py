"""The encoding under keys and fingerprints: equal bytes only for equal values, and a typed refusal for the rest."""

import dataclasses
import time as clock
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntFlag, StrEnum
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Self

import pydantic
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from semel.core.fingerprint import MAX_BYTES, MAX_DEPTH, CannotEncode, FixedFields, encode_canonical
from tests.unit.core.values import NFC, NFD, Colour, Number, Place, Point, Size, Word, confusable, encodable, meaning
from tests.unit.core.values import numbers as any_number

Pair = namedtuple("Pair", ["x", "y"])  # noqa: PYI024 - the untyped kind is what is tested


def encoded(value: object, *, exact: bool = False) -> bytes:
    """The encoding, for values that only sometimes have one."""
    try:
        return encode_canonical(value, exact=exact)
    except CannotEncode:
        assume(False)
        raise


@given(confusable, confusable)
def test_encodings_are_equal_only_for_equal_values(left: Any, right: Any) -> None:
    assert (encoded(left) == encoded(right)) == (meaning(left) == meaning(right))


@given(encodable, encodable)
def test_wide_values_are_told_apart_too(left: Any, right: Any) -> None:
    assert (encoded(left) == encoded(right)) == (meaning(left) == meaning(right))


@given(encodable)
def test_encoding_does_not_depend_on_the_order_members_were_added(value: Any) -> None:
    assert encoded({"a": value, "b": 1}) == encoded({"b": 1, "a": value})


@given(st.lists(st.text(max_size=3), max_size=4), st.lists(st.text(max_size=3), max_size=4))
def test_neighbours_never_run_into_each_other(left: list[str], right: list[str]) -> None:
    assert (encoded(left, exact=True) == encoded(right, exact=True)) == (left == right)


@given(any_number, any_number)
def test_numbers_are_equal_exactly_when_python_says_so(left: Any, right: Any) -> None:
    assert (encode_canonical(left) == encode_canonical(right)) == (left == right)


@given(st.integers(min_value=-(10**60), max_value=10**60))
def test_a_whole_number_is_one_in_every_numeric_type(number: int) -> None:
    assert encode_canonical(number) == encode_canonical(Decimal(number)) == encode_canonical(Decimal(f"{number}.000"))


@pytest.mark.parametrize("zeros", [0, 1, 38, 39, 40, 41, 50, 958, 998])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_large_whole_number_is_one_in_every_spelling(sign: int, zeros: int) -> None:
    written = encode_canonical(sign * 10**zeros)
    assert (
        written
        == encode_canonical(sign * Decimal(f"1e{zeros}"))
        == encode_canonical(sign * Decimal(f"0.10e{zeros + 1}"))
    )
    assert written != encode_canonical(sign * (10**zeros + 1)), "a neighbour has the same encoding"


@pytest.mark.parametrize("exponent", ["999", "4299", "999999", "-999999"])
def test_a_number_is_not_written_out_as_long_as_its_exponent_says(exponent: str) -> None:
    assert len(encode_canonical(Decimal(f"1e{exponent}"))) < 50


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_the_decimal_of_its_exact_value(number: float) -> None:
    assert encode_canonical(number) == encode_canonical(Decimal(number))


@given(st.dictionaries(st.text(st.characters(max_codepoint=127), min_size=1, max_size=5), encodable, max_size=4))
def test_members_worked_out_once_give_what_encode_gives(values: dict[str, Any]) -> None:
    expected = encoded(values)
    assert FixedFields(values).encode({**values, "more": object()}) == expected


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1.0),
        (100, 1e2),
        (100, Decimal("1E+2")),
        (1500, Decimal("1500.00")),
        (0, -0.0),
        (0, Decimal("-0.00")),
        (0.5, Decimal("0.50")),
        (NFC, NFD),
        ([1, 2], (1, 2)),
        ((1, 2), Pair(1, 2)),
        ({1, 2}, frozenset({2, 1})),
        ({"a": 1}, OrderedDict(a=1)),
        ({"a": 1}, UserDict(a=1)),
        ("pay", Word.PAY),
        (1, Number.ONE),
        (b"1", bytearray(b"1")),
        (b"1", memoryview(b"1")),
        (datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_documented_equals_are_one(left: object, right: object) -> None:
    assert encode_canonical(left) == encode_canonical(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True),
        (0, False),
        (1, "1"),
        (True, "True"),
        (None, "None"),
        (None, ""),
        (None, 0),
        ("", b""),
        ("1", b"1"),
        ([], {}),
        ([], set()),
        ([], None),
        ([[]], []),
        ([1, [2]], [[1], 2]),
        (["a", "b"], ["ab"]),
        (["a:b"], ["a", "b"]),
        ({"a": None}, {}),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        (Point(1), Place(1)),
        (Point(1), {"x": 1, "y": 0}),
        (Colour.RED, Size.SMALL),
        (Colour.RED, 1),
        (date(2030, 1, 1), datetime(2030, 1, 1, tzinfo=UTC)),
        (date(2030, 1, 1), "2030-01-01"),
        (0.1, Decimal("0.1")),
        (1e23, 10**23),
        (Decimal("1E400"), Decimal("2E400")),
        (Decimal("1E400"), Decimal("1E401")),
        (Decimal("1E-400"), Decimal("1E-401")),
        (PurePosixPath("a"), PureWindowsPath("a")),
        (PurePosixPath("a"), "a"),
    ],
)
def test_what_python_tells_apart_is_told_apart(left: object, right: object) -> None:
    assert encode_canonical(left) != encode_canonical(right)


def test_exact_form_keeps_text_byte_for_byte() -> None:
    assert encode_canonical(NFC, exact=True) != encode_canonical(NFD, exact=True)
    assert encode_canonical([{"a": NFC}], exact=True) != encode_canonical([{"a": NFD}], exact=True)


@pytest.mark.parametrize("exact", [False, True])
def test_both_forms_agree_on_ascii(exact: bool) -> None:
    assert encode_canonical(["plain", 1], exact=exact) == encode_canonical(["plain", 1])


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        datetime(2030, 1, 1),  # noqa: DTZ001 - naive is the point
        "\ud800",
        {"\udfff": 1},
        PurePosixPath("caf\udce9"),
        object(),
        type,
        len,
        iter([]),
        {NFC: 1, NFD: 2},
        10**1000,
        -(10**1000),
        10**5000,
        Decimal("1." + "3" * 1000),
        b"x" * (MAX_BYTES + 1),
    ],
    ids=lambda value: f"{type(value).__name__} {repr(value)[:20] if not isinstance(value, int) else 'long'}",
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(CannotEncode):
        encode_canonical([value])


@pytest.mark.parametrize("value", [10**999, -(10**999), Decimal("9" * 1000), 5e-324, 1.7976931348623157e308])
def test_numbers_up_to_the_limit_are_taken(value: Any) -> None:
    assert encode_canonical(value) == encode_canonical(Decimal(value))


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_up_to_the_limit_is_taken() -> None:
    assert encode_canonical(_nested(MAX_DEPTH - 1))


@pytest.mark.parametrize("depth", [MAX_DEPTH, 100_000])
def test_deeper_nesting_is_refused_without_recursion(depth: int) -> None:
    value = _nested(depth)
    with pytest.raises(CannotEncode, match="levels deep"):
        encode_canonical(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value += [value, value]
    with pytest.raises(CannotEncode):
        encode_canonical(value)


def test_a_value_that_repeats_itself_is_refused_before_it_grows() -> None:
    value: list[Any] = ["x" * 100_000]
    for _ in range(60):
        value = [value, value]
    began = clock.process_time()
    with pytest.raises(CannotEncode, match="bytes"):
        encode_canonical(value)
    assert clock.process_time() - began < 2


def test_long_numbers_are_refused_at_once() -> None:
    number = 1 << 50_000_000
    began = clock.process_time()
    with pytest.raises(CannotEncode, match="digits"):
        encode_canonical(number)
    assert clock.process_time() - began < 1


class _BrokenZone(tzinfo):
    def utcoffset(self, _moment: datetime | None) -> timedelta:
        raise RuntimeError("no such zone")

    dst = utcoffset

    def tzname(self, _moment: datetime | None) -> str:
        return "nowhere"


@dataclasses.dataclass
class _Broken:
    held: int = dataclasses.field(init=False)


@pytest.mark.parametrize("value", [datetime(2030, 1, 1, tzinfo=_BrokenZone()), _Broken()], ids=["zone", "field"])
def test_a_value_that_cannot_be_read_is_refused_and_not_raised_through(value: object) -> None:
    with pytest.raises(CannotEncode, match="reading it failed"):
        encode_canonical(value)


def test_the_ends_of_the_calendar_are_moments_too() -> None:
    first = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
    last = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12)))
    assert encode_canonical(first) != encode_canonical(last)


class _Loud(str):
    __slots__ = ()


class _Half(float):
    def __repr__(self) -> str:
        return "half"


class _Mode(IntFlag):
    READ = 1
    WRITE = 2


class _Label(StrEnum):
    """A member whose value is not its text."""

    PAY = "pay"

    def __new__(cls, text: str) -> Self:
        member = str.__new__(cls, text)
        member._value_ = "other"
        return member


@pytest.mark.parametrize(
    ("special", "simple"),
    [(_Loud("a"), "a"), (_Half(0.5), 0.5), (_Mode.READ | _Mode.WRITE, 3), (_Label.PAY, "pay")],
    ids=["str", "float", "flag", "enum"],
)
def test_a_subclass_enters_as_what_it_is_equal_to(special: object, simple: object) -> None:
    assert special == simple
    assert encode_canonical(special) == encode_canonical(simple)


class _Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int


def test_models_enter_by_their_fields() -> None:
    assert encode_canonical(_Open(a=1)) == encode_canonical(_Open(a=1))
    assert encode_canonical(_Open(a=1)) != encode_canonical(_Open(a=2))


def test_what_a_model_was_given_beyond_its_fields_counts() -> None:
    assert encode_canonical(_Open(a=1, b=2)) != encode_canonical(_Open(a=1, b=3))  # type: ignore[call-arg]  # extras are allowed here


class _Rows:
    """Quacks like a sequence, and is none."""

    def __iter__(self) -> Iterator[int]:
        return iter([1])


def test_what_merely_quacks_is_refused() -> None:
    with pytest.raises(CannotEncode, match="_Rows"):
        encode_canonical(_Rows())
