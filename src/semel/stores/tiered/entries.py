"""A cached record as bytes, and back.

What always holds: what this release cannot read is no entry, so it counts as a miss. Finished steps are left out: a
completed record is replayed without them.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from semel.core.record import NOTHING, Record

LARGEST: Final = 262_144
"""Larger records are not cached: a round of them would take longer than the cache is given."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    now_us: int
    record: Record


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Entry)


def size_of(record: Record) -> int:
    """Bytes of what has no bound of its own in a record, roughly: its outcome, and what it is about."""
    about = record.about
    return len(record.outcome or b"") + (0 if about is NOTHING else sum(map(len, about.texts())))


def fits(record: Record) -> bool:
    """Whether a record is small enough."""
    return size_of(record) <= LARGEST


def packed(record: Record, now_us: int) -> bytes:
    """An entry; `now_us` is the store's now when the record was read there."""
    return _ENCODER.encode(_Entry(now_us, replace(record, steps=()) if record.steps else record))


def unpacked(body: bytes) -> tuple[Record, int] | None:
    """The record of an entry and when it was read; None where it cannot be read."""
    try:
        entry = _DECODER.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return None
    return entry.record, entry.now_us
