"""Stored outcomes: what people stated fits leniently, what this release cannot read is unreadable, by name."""

import contextlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.core import codec, serializer
from semel.core.codec import same
from semel.core.record import VERSION, Envelope, pack_outcome, pack_tombstone
from semel.errors import RecordUnreadable, ResultNotKept, UsageError
from tests.unit.core.results import SUPPORTED, Card, Colour, Inner, Left, Level, Line, Order, Pair, Right, Row
from tests.unit.core.values import plain_values


def stated(value: object, annotation: Any = codec.NO_ANNOTATION) -> Any:
    """What a duplicate gets for a value that a person stated."""
    return codec.decode(codec.encode_manual(value), codec.shape_of(annotation))


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("7", int, 7),
        ("1.50", Decimal, Decimal("1.50")),
        (7, float, 7.0),
        ("true", bool, True),
        ("2030-01-01", date, date(2030, 1, 1)),
        ("2030-01-01T00:00:00Z", datetime, datetime(2030, 1, 1, tzinfo=UTC)),
        (str(UUID(int=1)), UUID, UUID(int=1)),
        ("red", Colour, Colour.RED),
        ("1", Level, Level.LOW),
        ([1, 2], tuple[int, ...], (1, 2)),
        ([1, 1], set[int], {1}),
        ({"x": "1"}, Left, Left(1)),
        ({"x": 1}, Left | Right, Left(1)),
        ({"number": "1", "type": "Card"}, Card, Card("1")),
        ([1, "a"], Pair, Pair(1, "a")),
        ({"name": "a", "price": "1.5"}, Row, {"name": "a", "price": Decimal("1.5")}),
        ({"name": "a", "price": 2}, Line, Line("a", Decimal(2))),
        (None, int | None, None),
        ("null", int | None, None),
        ((1, {2}), Any, (1, {2})),
        (None, None, None),
    ],
    ids=repr,
)
def test_what_a_person_states_fits_the_annotation(value: object, annotation: Any, expected: object) -> None:
    assert same(stated(value, annotation), expected)


@given(plain_values)
def test_stated_plain_data_comes_back_where_nothing_is_declared(value: Any) -> None:
    assert same(stated(value), value)


@given(st.sampled_from(["struct", "dataclass", "named tuple", "typed dict", "decimal", "uuid", "bytes"]), st.data())
def test_a_result_stated_as_it_is_comes_back_as_it_is(kind: str, data: st.DataObject) -> None:
    annotation, values = SUPPORTED[kind]
    value = data.draw(values)
    assert same(stated(value, annotation), value)


@pytest.mark.parametrize(
    "value", [Left(1), Inner(UUID(int=1), datetime(2030, 1, 1, tzinfo=UTC)), Pair(1, "a"), Colour.RED], ids=repr
)
def test_the_very_object_can_be_stated(value: object) -> None:
    assert stated(value, type(value)) == value


def _selfish() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [object(), lambda: 1, "\ud800", _selfish(), iter([])], ids=lambda v: type(v).__name__)
def test_what_cannot_be_stored_cannot_be_stated(value: object) -> None:
    with pytest.raises(UsageError, match="nothing was resolved"):
        codec.encode_manual(value)


@pytest.mark.parametrize(
    ("value", "annotation"), [("seven", int), ({"y": 1}, Left), ([], Left | Right), ("green", Colour), (None, Order)]
)
def test_what_was_stated_and_does_not_fit_is_unreadable(value: object, annotation: Any) -> None:
    with pytest.raises(RecordUnreadable, match="does not fit the declared result"):
        stated(value, annotation)


def test_a_tombstone_is_a_result_not_kept() -> None:
    with pytest.raises(ResultNotKept, match="because") as caught:
        codec.decode(pack_tombstone("because"), codec.shape_of(int))
    assert caught.value.reason == "because"  # type: ignore[attr-defined]  # facts are attributes


@pytest.mark.parametrize(
    "stored",
    [
        pack_outcome("pickle", serializer.dumps(1)),
        pack_outcome("", serializer.dumps(1)),
        pack_outcome("plain", b""),
        pack_outcome("plain", b"\xc1"),
        pack_outcome("undeclared", b"\xc1"),
        pack_outcome("stated", b"\xc1"),
        pack_outcome("plain", serializer.dumps("not a number")),
        msgspec.msgpack.encode(Envelope(VERSION + 1, "plain", "", "", serializer.dumps(1))),
        msgspec.msgpack.encode(Envelope(VERSION, "plain", "zstd", "", serializer.dumps(1))),
        msgspec.msgpack.encode(Envelope(VERSION, "plain", "", "key-1", serializer.dumps(1))),
        b"",
        b"cos\nsystem\n(S'true'\ntR.",
    ],
    ids=lambda stored: ascii(stored)[:40],
)
def test_what_this_release_cannot_read_is_unreadable(stored: bytes) -> None:
    with pytest.raises(RecordUnreadable, match="did run before and nothing ran now"):
        codec.decode(stored, codec.shape_of(int))


@given(st.sampled_from(sorted(SUPPORTED)), st.data())
def test_a_record_of_another_shape_is_a_value_or_unreadable(kind: str, data: st.DataObject) -> None:
    written, read = SUPPORTED[kind], SUPPORTED[data.draw(st.sampled_from(sorted(SUPPORTED)))]
    stored = codec.encode(data.draw(written[1]), codec.shape_of(written[0]), 10**6)
    with contextlib.suppress(RecordUnreadable):
        codec.decode(stored, codec.shape_of(read[0]))


@given(st.binary(max_size=100))
def test_random_bodies_are_a_value_or_unreadable(body: bytes) -> None:
    for name in ("plain", "undeclared", "stated"):
        with contextlib.suppress(RecordUnreadable):
            codec.decode(pack_outcome(name, body), codec.shape_of(Order))


def test_an_unreadable_record_does_not_tell_what_it_held() -> None:
    with pytest.raises(RecordUnreadable) as caught:
        codec.decode(pack_outcome("plain", serializer.dumps({"x": "4111-1111"})), codec.shape_of(Left))
    assert "4111" not in str(caught.value)
