"""The audit chain as a store keeps it: entries, heads and seals, and how each of them is hashed.

- Each scope has a chain of its own. An entry has the next number of its chain, and its hash covers all that it says,
  the number, the instant in whole microseconds, and the hash of the entry before.
- Fields are hashed with their lengths in front, so that no two entries look alike to the hash.
- What a person wrote (reason and details) is hashed apart, with random bytes: it can be taken out of an entry later
  without breaking the chain, and cannot be guessed from its hash.
- A seal covers a range of entries and the seal before. It outlives entries that are deleted because they are old.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

import msgspec

SALT_BYTES: Final = 16
ID_BYTES: Final = 16
HASH_BYTES: Final = 32
_WRITTEN: Final = msgspec.json.Encoder(order="sorted")


class Phase(IntEnum):
    """What an entry is about: something that is over, the begin of an action, or its end."""

    WHOLE = 0
    BEGUN = 1
    ENDED = 2


class Note(msgspec.Struct, frozen=True):
    """What a person wrote: why something was done, and details."""

    reason: str
    detail: dict[str, str]


class StoredEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry.

    Attributes:
        scope: whose chain it is in.
        seq: its number in it, from 1.
        id: random; of two entries with one id the second was never written.
        at_us: when, by the store's clock; never before the entry before it.
        phase: whether something is over, begins or ends.
        ends: the number of the entry whose action ends here; 0: none.
        actor: who did it.
        action: what was done.
        target: to what: a reference, never what it is about.
        outcome: what came of it.
        written: random bytes and a `Note` as JSON; None: it was taken out.
        written_hash: the hash of that.
        previous: the hash of the entry before.
        hash: covers all of this but `written`.
        is_open: begins an action whose end is not in the chain; not part of the hash.
    """

    scope: str
    seq: int
    id: bytes
    at_us: int
    phase: int
    ends: int
    actor: str
    action: str
    target: str
    outcome: str
    written: bytes | None
    written_hash: bytes
    previous: bytes
    hash: bytes
    is_open: bool = False


class ChainHead(msgspec.Struct, frozen=True, kw_only=True):
    """How far the chain of a scope is.

    Attributes:
        chain: names the chain in the tables.
        scope: whose it is.
        seq: the number of the last entry.
        hash: its hash.
        at_us: its instant.
        kept_from: entries below were old and are deleted.
        sealed: up to which entry the chain is sealed.
        sealed_us: when that was done; of a chain without seals, when it began.
        seal_hash: the hash of the last seal.
    """

    chain: bytes
    scope: str
    seq: int
    hash: bytes
    at_us: int
    kept_from: int
    sealed: int
    sealed_us: int
    seal_hash: bytes


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """A range of entries that were hashed together.

    Attributes:
        first: its first entry.
        last: its last entry.
        at_us: when it was sealed.
        last_hash: the hash of its last entry.
        range_hash: the hash over the hashes of all of its entries.
        previous: the hash of the seal before.
        hash: covers all of this.
    """

    first: int
    last: int
    at_us: int
    last_hash: bytes
    range_hash: bytes
    previous: bytes
    hash: bytes


def _hash(*parts: bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _number(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def name_chain(scope: str) -> bytes:
    """What the chain of a scope is called in the tables: the same length for each, and compared byte by byte."""
    return _hash(b"semel audit chain", _text(scope))[:16]


def hash_origin(scope: str) -> bytes:
    """What stands for the hash of the entry before the first one, and of the seal before the first one."""
    return _hash(b"semel audit origin 1", _text(scope))


def write_note(salt: bytes, reason: str, detail: Mapping[str, str]) -> bytes:
    """What a person wrote, as it is kept."""
    return salt + _WRITTEN.encode(Note(reason, dict(detail)))


def read_note(written: bytes) -> Note:
    """What a person wrote."""
    return msgspec.json.decode(written[SALT_BYTES:], type=Note)


def hash_written(written: bytes) -> bytes:
    """The hash of what a person wrote."""
    return _hash(b"semel audit note 1", written)


def hash_entry(entry: StoredEntry) -> bytes:
    """The hash that an entry has to have."""
    return _hash(
        b"semel audit entry 1",
        entry.previous,
        _text(entry.scope),
        _number(entry.seq),
        entry.id,
        _number(entry.at_us),
        _number(entry.phase),
        _number(entry.ends),
        _text(entry.actor),
        _text(entry.action),
        _text(entry.target),
        _text(entry.outcome),
        entry.written_hash,
    )


def hash_range(hashes: Iterable[bytes]) -> bytes:
    """The hash over the hashes of a range of entries."""
    return _hash(b"semel audit range 1", *hashes)


def hash_seal(scope: str, seal: Seal) -> bytes:
    """The hash that a seal has to have."""
    return _hash(
        b"semel audit seal 1",
        seal.previous,
        _text(scope),
        _number(seal.first),
        _number(seal.last),
        _number(seal.at_us),
        seal.last_hash,
        seal.range_hash,
    )


def new_head(scope: str, now: int) -> ChainHead:
    """The head of a chain without entries."""
    origin = hash_origin(scope)
    return ChainHead(
        chain=name_chain(scope),
        scope=scope,
        seq=0,
        hash=origin,
        at_us=0,
        kept_from=1,
        sealed=0,
        sealed_us=now,
        seal_hash=origin,
    )
