"""Envelopes: compressed where it pays, and unreadable, by name, in every case where they cannot be read."""

import contextlib
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.core.record import (
    COMPRESS_FROM,
    TOMBSTONE,
    VERSION,
    Envelope,
    NotKept,
    pack_outcome,
    pack_tombstone,
    unpack_outcome,
)
from semel.errors import RecordUnreadable


def _envelope(**changes: Any) -> bytes:
    fields = {"version": VERSION, "codec": "plain", "compression": "", "seal": "", "body": b"x"}
    return msgspec.msgpack.encode(Envelope(**{**fields, **changes}))


def _compression(packed: bytes) -> str:
    return msgspec.msgpack.decode(packed, type=Envelope).compression


@given(st.binary(max_size=200), st.integers(1, 100))
def test_what_is_packed_is_unpacked(body: bytes, times: int) -> None:
    assert unpack_outcome(pack_outcome("plain", body * times)) == ("plain", body * times)


@pytest.mark.parametrize(("size", "compression"), [(COMPRESS_FROM - 1, ""), (COMPRESS_FROM, "zlib")])
def test_large_bodies_are_compressed(size: int, compression: str) -> None:
    assert _compression(pack_outcome("plain", b"x" * size)) == compression


def test_what_would_not_get_smaller_is_not_compressed() -> None:
    noise = zlib.compress(bytes(range(256)) * 16) + b"".join(
        (n * 2654435761 % 2**32).to_bytes(4, "big") for n in range(2048)
    )
    assert _compression(pack_outcome("plain", noise)) == ""


def test_a_tombstone_says_why() -> None:
    assert unpack_outcome(pack_tombstone("too large")) == NotKept("too large")


def test_a_reason_that_is_broken_text_is_told_all_the_same() -> None:
    assert unpack_outcome(pack_tombstone("half \ud800")) == NotKept("half \\ud800")


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        (_envelope(version=VERSION + 1), "version 2"),
        (_envelope(version=VERSION + 1, codec=TOMBSTONE), "version 2"),
        (_envelope(version=0), "version 0"),
        (_envelope(compression="zstd"), "zstd"),
        (_envelope(seal="key-7"), "sealed"),
        (_envelope(compression="zlib", body=b"x"), "damaged"),
        (_envelope(compression="zlib", body=zlib.compress(b"x" * 100)[:-3]), "damaged"),
        (_envelope(body=5), "damaged"),
        (_envelope(codec=b"plain"), "damaged"),
        (msgspec.msgpack.encode([VERSION, "plain"]), "damaged"),
        (msgspec.msgpack.encode({"version": VERSION}), "damaged"),
        (b"\x95" + b"\x91" * 100_000, "damaged"),
        (b"\x95\x01\xa2\xff\xff\xa0\xa0\xc4\x01x", "damaged"),
        (b"", "damaged"),
        (b"not an envelope", "damaged"),
    ],
    ids=lambda given: given if isinstance(given, str) else None,
)
def test_what_cannot_be_read_says_so_and_that_it_ran(stored: bytes, told: str) -> None:
    with pytest.raises(RecordUnreadable, match=f"{told}.*did run before and nothing ran now"):
        unpack_outcome(stored)


def test_an_envelope_may_grow_at_its_end() -> None:
    grown = msgspec.msgpack.encode([VERSION, "plain", "", "", b"x", "something new"])
    assert unpack_outcome(grown) == ("plain", b"x")


@given(st.binary(max_size=80))
def test_random_bytes_are_unreadable(stored: bytes) -> None:
    try:
        unpacked = unpack_outcome(stored)
    except RecordUnreadable:
        return
    assert unpacked is not None


@given(st.binary(max_size=200), st.data())
def test_truncated_envelopes_are_unreadable(body: bytes, data: st.DataObject) -> None:
    packed = pack_outcome("plain", body * 30)
    with pytest.raises(RecordUnreadable):
        unpack_outcome(packed[: data.draw(st.integers(0, len(packed) - 1))])


@given(st.binary(max_size=200), st.data())
def test_damaged_envelopes_never_raise_anything_else(body: bytes, data: st.DataObject) -> None:
    packed = bytearray(pack_outcome("plain", body * 30))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(RecordUnreadable):
        unpack_outcome(bytes(packed))
