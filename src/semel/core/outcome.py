"""Outcomes as bytes, and what a person or a hook may say of one that is in doubt.

What always holds: an envelope says by itself how to read it. One this version cannot read raises `RecordUnreadable`
and is never taken for "nothing there". No object is ever rebuilt from a name found in data.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from semel.errors import RecordUnreadable

VERSION = 1
COMPRESS_FROM = 4096


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """An outcome as stored: how it is encoded, compressed and sealed, and the bytes."""

    version: int
    codec: str
    compression: str
    seal: str
    body: bytes


class NotKept(msgspec.Struct, frozen=True):
    """A tombstone: it is done, and its value was not kept, for this reason."""

    reason: str


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Envelope)
TOMBSTONE = "none"
_TOMBSTONE_START = b"\x95" + _ENCODER.encode(VERSION) + _ENCODER.encode(TOMBSTONE)  # an array of five begins with 95


def pack(codec: str, body: bytes) -> bytes:
    """Put an encoded value in an envelope, compressed where that makes it smaller."""
    if len(body) >= COMPRESS_FROM:
        smaller = zlib.compress(body, 1)
        if len(smaller) < len(body):
            return _ENCODER.encode(Envelope(VERSION, codec, "zlib", "", smaller))
    return _ENCODER.encode(Envelope(VERSION, codec, "", "", body))


def pack_tombstone(reason: str) -> bytes:
    """An envelope that says only why the value was not kept."""
    return _ENCODER.encode(Envelope(VERSION, TOMBSTONE, "", "", reason.encode(errors="backslashreplace")))


def is_tombstone(stored: bytes) -> bool:
    """Whether an envelope of this release is a tombstone, without reading all of it."""
    return stored.startswith(_TOMBSTONE_START)


def tombstone_reason(stored: bytes) -> str:
    """Why a tombstone holds no value."""
    return _DECODER.decode(stored).body.decode(errors="replace")


def unpack(stored: bytes) -> tuple[str, bytes] | NotKept:
    """Codec and bytes of an envelope, or the tombstone.

    Raises:
        RecordUnreadable: written by a newer version, or damaged.
    """
    try:
        envelope = _DECODER.decode(stored)
    except Exception as problem:
        raise unreadable("its envelope is damaged") from problem
    if envelope.version != VERSION:
        raise unreadable(f"it has version {envelope.version}, and this release reads {VERSION}")
    if envelope.seal:
        raise unreadable(f"it is sealed with key {envelope.seal!r}, which is not at hand")
    if envelope.codec == TOMBSTONE:
        return NotKept(envelope.body.decode(errors="replace"))
    match envelope.compression:
        case "":
            return envelope.codec, envelope.body
        case "zlib":
            return envelope.codec, _decompress(envelope.body)
        case other:
            raise unreadable(f"its compression {other!r} is unknown to this release")


def _decompress(body: bytes) -> bytes:
    try:
        return zlib.decompress(body)
    except zlib.error as problem:
        raise unreadable("its compressed body is damaged") from problem


def unreadable(why: str) -> RecordUnreadable:
    """The error for a stored outcome that cannot be given back."""
    return RecordUnreadable(
        f"The stored outcome cannot be read: {why}. It did run before and nothing ran now; "
        f"read it with the release that wrote it."
    )


@dataclass(frozen=True, slots=True)
class Happened:
    """It happened, with this value: what a duplicate shall get."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class DidNotHappen:
    """It did not happen: the key may be claimed again, without doubt."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It cannot be told yet: the record stays in doubt."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """It shall not happen any more: duplicates get `FailedBefore`."""


Verdict = Happened | DidNotHappen | Unknown
Resolution = Happened | DidNotHappen | Cancelled
Ending = Literal["final", "retry", "doubt"]
