"""Values that are sure to come back unchanged are not read back for proof; what is stored of them is the same."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.core import codec, serializer
from semel.core.codec import PLAIN, same, shape_of
from semel.core.record import is_tombstone, pack_outcome
from semel.http.response import Response

LARGE = 10_000_000
KINDS: dict[Any, st.SearchStrategy[Any]] = {
    None: st.none(),
    bool: st.booleans(),
    int: st.integers(),
    str: st.text(),
    bytes: st.binary(),
}


@pytest.mark.parametrize("declared", [*KINDS, codec.NO_ANNOTATION], ids=str)
@given(data=st.data())
def test_what_is_stored_is_what_a_value_proved_by_reading_would_leave(declared: Any, data: st.DataObject) -> None:
    value = data.draw(st.one_of(*KINDS.values()) if declared is codec.NO_ANNOTATION else KINDS[declared])
    shape = shape_of(declared)
    stored = codec.encode(value, shape, LARGE)
    assert same(codec.decode(stored, shape), value)
    if type(value) is not int or abs(value) < 2**63:
        assert stored == pack_outcome(PLAIN, serializer.dumps(value))


@pytest.mark.parametrize(("value", "declared"), [(True, int), (2, bool), ("x", bytes), (2**64, int), ("\ud800", str)])
def test_what_is_not_sure_is_tried_as_ever(value: object, declared: type) -> None:
    shape = shape_of(declared)
    assert codec._encode_certain(value, shape) == b""


@given(st.integers(100, 599), st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=4), st.binary())
def test_a_response_comes_back_as_it_was_stored(status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    response, shape = Response(status, tuple(headers), body), shape_of(Response)
    assert codec._encode_certain(response, shape), "it took the long way"
    assert codec.decode(codec.encode(response, shape, LARGE), shape) == response


def test_a_response_whose_text_cannot_be_encoded_leaves_a_tombstone() -> None:
    response = Response(200, (("Name", "\ud800"),), b"")
    stored = codec.encode(response, shape_of(Response), LARGE)
    assert is_tombstone(stored)


def test_a_struct_of_somebody_else_is_proved_by_reading() -> None:
    class Receipt(msgspec.Struct):
        total: int

    assert codec._encode_certain(Receipt(3), shape_of(Receipt)) == b""
