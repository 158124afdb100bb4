"""What a store may be asked about the audit chain.

- An entry is appended by moving the head of its chain from what was seen to what follows, in the same transaction: of
  two that saw the same head one goes on, and the other looks again. Nobody locks the last entry.
- Nothing is ever changed in an entry, but that what a person wrote may be taken out of it.
- Entries are deleted only from the beginning of a chain, only below a seal, and never by themselves.
"""

from __future__ import annotations

import msgspec

from semel.core.flow import Asks
from semel.core.operators.chain import (
    ChainHead,
    Phase,
    Seal,
    StoredEntry,
    hash_entry,
    hash_range,
    hash_seal,
    hash_written,
)


class AppendEntry(msgspec.Struct, Asks["EntryAppended"], frozen=True, kw_only=True):
    """Append an entry to the chain of a scope. Sent again after a lost reply, it answers as the first time."""

    scope: str
    id: bytes
    actor: str
    action: str
    target: str
    outcome: str
    written: bytes
    phase: int = Phase.WHOLE
    ends: int = 0


class ReadHeads(msgspec.Struct, Asks["HeadsFound"], frozen=True):
    """At most `limit` heads after that chain, in the order of their names; of one scope, or of all."""

    scope: str | None
    after: bytes
    limit: int


class FindStrays(msgspec.Struct, Asks["StraysFound"], frozen=True):
    """What is in the tables and belongs to no head, lies behind it, or before the first entry."""


class ReadEntries(msgspec.Struct, Asks["EntriesFound"], frozen=True):
    """At most `limit` entries of a chain in order, after `after` and up to `upto`."""

    chain: bytes
    after: int
    upto: int
    limit: int


class ReadSeals(msgspec.Struct, Asks["SealsFound"], frozen=True):
    """At most `limit` seals of a chain in order, whose last entry is after `after` and up to `upto`."""

    chain: bytes
    after: int
    upto: int
    limit: int


class AddSeal(msgspec.Struct, Asks["SealAdded"], frozen=True):
    """Seal a range, if the chain is still sealed as far as it was seen to be."""

    chain: bytes
    seal: Seal


class ScanEntries(msgspec.Struct, Asks["EntriesFound"], frozen=True, kw_only=True):
    """At most `limit` entries, newest first, before that place: instant, number, and name of the chain.

    With `only_open`, entries that begin an action whose end is not in the chain.
    """

    scopes: tuple[str, ...] | None
    actor: str | None
    action: str | None
    target: str | None
    only_open: bool
    before: tuple[int, int, bytes] | None
    limit: int


class RedactEntry(msgspec.Struct, Asks["EntryRedacted"], frozen=True):
    """Take what a person wrote out of an entry."""

    chain: bytes
    seq: int


class KeepFrom(msgspec.Struct, Asks["EntriesDropped"], frozen=True):
    """Delete at most `limit` entries below a number. The head is told first, by compare-and-set.

    Only what is sealed goes, and never what another one has kept meanwhile.
    """

    chain: bytes
    kept_from: int
    limit: int


class EntryAppended(msgspec.Struct, frozen=True):
    """The entry as it is kept, and the head of its chain, as it was after this entry or later ones."""

    entry: StoredEntry
    head: ChainHead


class HeadsFound(msgspec.Struct, frozen=True):
    """Heads, and the instant of the store."""

    heads: tuple[ChainHead, ...]
    now_us: int


class Stray(msgspec.Struct, frozen=True):
    """Something that its chain does not reach: an entry, or else a seal.

    `head` is how far its head says that the chain is, or is sealed; None: it has no head. The scope of a seal
    without a head is not known.
    """

    chain: bytes
    scope: str
    seq: int
    is_entry: bool
    head: int | None


class StraysFound(msgspec.Struct, frozen=True):
    """What belongs to no chain."""

    strays: tuple[Stray, ...]


class EntriesFound(msgspec.Struct, frozen=True):
    """Entries in the order asked for."""

    entries: tuple[StoredEntry, ...]


class SealsFound(msgspec.Struct, frozen=True):
    """Seals in order."""

    seals: tuple[Seal, ...]


class SealAdded(msgspec.Struct, frozen=True):
    """Whether the range was sealed; otherwise somebody else has sealed meanwhile."""

    is_done: bool


class EntryRedacted(msgspec.Struct, frozen=True):
    """Whether there was something to take out."""

    is_done: bool


class EntriesDropped(msgspec.Struct, frozen=True):
    """How many entries were deleted."""

    count: int


AboutAudit = (
    AppendEntry | ReadHeads | FindStrays | ReadEntries | ReadSeals | AddSeal | ScanEntries | RedactEntry | KeepFrom
)
AuditAnswer = (
    EntryAppended | HeadsFound | StraysFound | EntriesFound | SealsFound | SealAdded | EntryRedacted | EntriesDropped
)


def entry_after(head: ChainHead, operation: AppendEntry, now: int) -> StoredEntry:
    """The entry that follows a head; its instant is never before that of the entry before it."""
    bare = StoredEntry(
        scope=head.scope,
        seq=head.seq + 1,
        id=operation.id,
        at_us=max(now, head.at_us),
        phase=int(operation.phase),
        ends=operation.ends,
        actor=operation.actor,
        action=operation.action,
        target=operation.target,
        outcome=operation.outcome,
        written=operation.written,
        written_hash=hash_written(operation.written),
        previous=head.hash,
        hash=b"",
    )
    return msgspec.structs.replace(bare, hash=hash_entry(bare))


def head_at(head: ChainHead, entry: StoredEntry) -> ChainHead:
    """A head that was moved to an entry."""
    return msgspec.structs.replace(head, seq=entry.seq, hash=entry.hash, at_us=entry.at_us)


def head_sealed(head: ChainHead, seal: Seal) -> ChainHead:
    """A head that was sealed up to the end of a range."""
    return msgspec.structs.replace(head, sealed=seal.last, sealed_us=seal.at_us, seal_hash=seal.hash)


def seal_after(head: ChainHead, entries: tuple[StoredEntry, ...], now: int) -> Seal:
    """The seal over entries that follow what is sealed."""
    bare = Seal(
        first=head.sealed + 1,
        last=entries[-1].seq,
        at_us=max(now, entries[-1].at_us),
        last_hash=entries[-1].hash,
        range_hash=hash_range(entry.hash for entry in entries),
        previous=head.seal_hash,
        hash=b"",
    )
    return msgspec.structs.replace(bare, hash=hash_seal(head.scope, bare))
