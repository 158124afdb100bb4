"""Whether an audit chain is whole: entries, seals and anchors of one scope are compared, and what differs is named.

- Every entry is hashed again, has to follow the one before it, and the last one has to be what the head says.
- A seal has to be what its entries were when it was made, and to follow the seal before; an anchor is a seal that was
  written down elsewhere, where whoever changes the tables does not reach it.
- An entry that was moved still has the hash of its own place, which is how a swap, a shift and an edit are told apart.
- Old entries may be gone only below a seal, and only if an entry says so; the same holds for what a person wrote. What
  is still there of them has to lead to that seal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from semel.core.operators.chain import (
    ChainHead,
    Seal,
    StoredEntry,
    hash_entry,
    hash_origin,
    hash_range,
    hash_seal,
    hash_written,
)

FaultKind = Literal["edit", "deletion", "insertion", "reorder", "truncation"]
REDACT: Final = "audit.redact"
"""The action of an entry that says that what a person wrote is taken out of another one, whose number is its target."""
EXPIRE: Final = "audit.expire"
"""The action of an entry that says that old entries are deleted; its target is the number of the first that stays."""
_MOST_COMPARED: Final = 300


class AuditFault(msgspec.Struct, frozen=True):
    """Something that is not as it was written.

    Attributes:
        scope: whose chain it is in.
        seq: the number of the entry.
        kind: what was done to it.
        text: what was found, in words.
        is_unsaid: whether it would be all right if an entry said who did it.
    """

    scope: str
    seq: int
    kind: FaultKind
    text: str
    is_unsaid: bool = False


class Anchor(msgspec.Struct, frozen=True):
    """A seal that was written down elsewhere: the number of its last entry, and its hash."""

    scope: str
    seq: int
    hash: str
    at_us: int = 0


class ChainCheck:
    """Takes in the entries of one chain in order, and says at the end what is wrong with it.

    Args:
        head: how far the chain is.
        seals: all of its seals, up to what the head says is sealed.
        anchors: those of this scope.
    """

    def __init__(self, head: ChainHead, seals: Sequence[Seal], anchors: Iterable[Anchor] = ()) -> None:
        self._head = head
        self._seals = seals
        self._faults: list[AuditFault] = []
        self._suspects: dict[int, StoredEntry] = {}
        self._unlinked: list[int] = []
        self._missing: list[int] = []
        self._redacted: set[int] = set()
        self._said: dict[str, set[str]] = {REDACT: set(), EXPIRE: set()}
        self._hashes: list[bytes] = []
        self._ranges = [seal for seal in seals if seal.last >= head.kept_from]
        self.entries = 0
        self._check_seals()
        self._check_anchors(anchors)
        base = self._find_base()
        self._last_seq, self._last_hash = head.kept_from - 1, base

    def add(self, entry: StoredEntry) -> None:
        """Take in the next entry."""
        self.entries += 1
        expected = self._last_seq + 1
        if entry.seq != expected:
            self._missing += range(expected, min(entry.seq, expected + _MOST_COMPARED))
        elif entry.previous != self._last_hash:
            self._unlinked.append(entry.seq)
        if entry.scope != self._head.scope or hash_entry(entry) != entry.hash:
            self._suspects[entry.seq] = entry
        elif entry.written is not None and hash_written(entry.written) != entry.written_hash:
            self._fault(entry.seq, "edit", "its reason or details were changed")
        if entry.written is None:
            self._redacted.add(entry.seq)
        if entry.action in self._said:
            self._said[entry.action].add(entry.target)
        self._count_in_seal(entry)
        self._last_seq, self._last_hash = entry.seq, entry.hash

    def finish(self) -> list[AuditFault]:
        """What is wrong, by number."""
        moved = self._find_moved()
        self._judge_moved(moved)
        self._judge_suspects(moved)
        self._judge_links(moved)
        self._judge_missing(moved)
        self._judge_end(moved)
        self._judge_redacted()
        self._judge_ranges()
        return sorted(self._faults, key=lambda fault: fault.seq)

    def _fault(self, seq: int, kind: FaultKind, text: str, *, is_unsaid: bool = False) -> None:
        self._faults.append(AuditFault(self._head.scope, seq, kind, f"entry {seq}: {text}", is_unsaid))

    def _is_faulty(self, seq: int) -> bool:
        return any(fault.seq == seq for fault in self._faults)

    def _check_seals(self) -> None:
        """Each seal has to be whole and to follow the one before; the head has to know the last one."""
        last, previous = 0, hash_origin(self._head.scope)
        for seal in self._seals:
            if seal.first > last + 1:
                self._fault(last + 1, "deletion", f"the seal over the entries up to {seal.first - 1} is missing")
            elif seal.first != last + 1 or seal.previous != previous or hash_seal(self._head.scope, seal) != seal.hash:
                self._fault(seal.last, "edit", "the seal that ends here was changed")
            last, previous = seal.last, seal.hash
        if last < self._head.sealed:
            self._fault(last + 1, "truncation", f"the seals over the entries up to {self._head.sealed} are missing")
        elif previous != self._head.seal_hash:
            self._fault(last, "edit", "the seal that ends here is not the one that the head of the chain names")

    def _check_anchors(self, anchors: Iterable[Anchor]) -> None:
        """What was written down elsewhere has to be there still."""
        by_end = {seal.last: seal for seal in self._seals}
        for anchor in anchors:
            seal = by_end.get(anchor.seq)
            if seal is not None and seal.hash.hex() != anchor.hash:
                self._fault(anchor.seq, "edit", "its anchor names another seal: the chain was written anew")
            elif seal is None and anchor.seq > self._head.sealed:
                text = f"an anchor reaches this far, and the chain is sealed only up to {self._head.sealed}"
                self._fault(anchor.seq, "truncation", text)
            elif seal is None:
                self._fault(anchor.seq, "edit", "an anchor names a seal that ends here, and there is none")

    def _find_base(self) -> bytes:
        """The hash that the first entry has to follow."""
        kept_from = self._head.kept_from
        if kept_from == 1:
            return hash_origin(self._head.scope)
        for seal in self._seals:
            if seal.last == kept_from - 1:
                return seal.last_hash
        self._fault(kept_from - 1, "deletion", "it and those before are gone, and no seal ends there")
        return b""

    def _count_in_seal(self, entry: StoredEntry) -> None:
        while self._ranges and entry.seq > self._ranges[0].last:
            self._close_range()
        if self._ranges and entry.seq >= self._ranges[0].first:
            self._hashes.append(entry.hash)

    def _close_range(self) -> None:
        seal = self._ranges.pop(0)
        is_whole = seal.range_hash == hash_range(self._hashes) and seal.last_hash == (self._hashes or [b""])[-1]
        self._hashes = []
        if not is_whole:
            text = f"the entries from {seal.first} to {seal.last} are not those that were sealed"
            self._fault(seal.last, "edit", text)

    def _find_moved(self) -> dict[int, int]:
        """Entries that were given another number, with the one that their hash was made for."""
        suspects = dict(list(self._suspects.items())[:_MOST_COMPARED])
        places = {*suspects, *(seq - 1 for seq in suspects), *(seq + 1 for seq in suspects)}
        places |= set(self._missing[:_MOST_COMPARED])
        moved: dict[int, int] = {}
        for seq, entry in suspects.items():
            for place in sorted(places - {seq}):
                if hash_entry(msgspec.structs.replace(entry, seq=place)) == entry.hash:
                    moved[seq] = place
                    break
        return moved

    def _judge_moved(self, moved: Mapping[int, int]) -> None:
        """A round of moved entries is a swap; a row of them ends at what was put in, or where something is gone."""
        origins = set(moved.values())
        for seq, place in moved.items():
            if _is_round(moved, seq):
                self._fault(seq, "reorder", f"it was entry {place}")
            elif place not in moved and place not in self._missing and self._head.kept_from <= place <= self._last_seq:
                self._fault(place, "insertion", f"it was put in here; entry {seq} was entry {place}")
            if seq not in origins and not _is_round(moved, seq):
                self._judge_origin(seq, place)

    def _judge_origin(self, seq: int, place: int) -> None:
        """No entry says that it was here: it is gone, or those after it were moved away from here."""
        if place > seq:
            self._fault(seq, "deletion", f"it is gone; what is here was entry {place}")

    def _judge_suspects(self, moved: Mapping[int, int]) -> None:
        for seq in self._suspects:
            if seq not in moved:
                self._fault(seq, "edit", "it was changed: its hash is of something else")

    def _judge_links(self, moved: Mapping[int, int]) -> None:
        """An entry that follows something else than what is before it: that was written anew."""
        for seq in self._unlinked:
            if seq in self._suspects or seq - 1 in moved or self._is_faulty(seq - 1):
                continue
            before = max(seq - 1, self._head.kept_from)
            self._fault(before, "edit", f"it was written anew: entry {seq} follows another one")

    def _judge_missing(self, moved: Mapping[int, int]) -> None:
        gone = sorted(set(self._missing) - set(moved.values()))
        for first, last in _in_runs(gone):
            self._fault(first, "deletion", "it is gone" if first == last else f"it and those up to {last} are gone")

    def _judge_end(self, moved: Mapping[int, int]) -> None:
        head = self._head
        if head.sealed > head.seq:
            self._fault(head.sealed, "truncation", f"it was sealed, and the chain ends at entry {head.seq}")
        if self._last_seq < head.seq:
            if head.seq not in moved.values():
                self._fault(self._last_seq + 1, "truncation", f"it and those up to {head.seq} are gone")
        elif self._last_hash != head.hash and not self._is_faulty(self._last_seq):
            self._fault(self._last_seq, "edit", "it is not the one that the head of the chain names")

    def _judge_redacted(self) -> None:
        for seq in self._redacted:
            if str(seq) not in self._said[REDACT]:
                text = "its reason and details are gone, and no entry says who took them out"
                self._fault(seq, "edit", text, is_unsaid=True)
        if self._head.kept_from > 1 and str(self._head.kept_from) not in self._said[EXPIRE]:
            text = "it and those before are gone, and no entry says who had them deleted"
            self._fault(self._head.kept_from - 1, "deletion", text)

    def _judge_ranges(self) -> None:
        """Seals are compared last: what is wrong with a range that has other faults is known better by these."""
        while self._ranges:
            self._close_range()
        whole = [fault for fault in self._faults if "were sealed" not in fault.text]
        for fault in [fault for fault in self._faults if "were sealed" in fault.text]:
            seal = next(seal for seal in self._seals if seal.last == fault.seq)
            if any(seal.first <= other.seq <= seal.last for other in whole):
                self._faults.remove(fault)


class ExpiredCheck:
    """Takes in the entries below those that are kept, in order, and says which of them no expiry has left there.

    An expiry deletes the oldest first: what it has yet to delete leads without a gap to the seal that ends there.

    Args:
        head: how far the chain is.
        seals: all of its seals.
    """

    def __init__(self, head: ChainHead, seals: Iterable[Seal]) -> None:
        self._scope = head.scope
        self._end = [(seal.last, seal.last_hash) for seal in seals if seal.last == head.kept_from - 1]
        self._found: list[tuple[int, int]] = []
        self._first = 0
        self._last: StoredEntry | None = None

    def add(self, entry: StoredEntry) -> None:
        """Take in the next entry."""
        last = self._last
        if last is None or (entry.seq, entry.previous) != (last.seq + 1, last.hash):
            self._lead_nowhere()
            self._first = entry.seq
        if entry.scope != self._scope or hash_entry(entry) != entry.hash:
            self._found.append((entry.seq, entry.seq))
        self._last = entry

    def finish(self) -> list[tuple[int, int]]:
        """Ranges of what was put in, each with its first and its last number."""
        if self._last is not None and (self._last.seq, self._last.hash) not in self._end:
            self._lead_nowhere()
        return sorted(set(self._found))[:_MOST_COMPARED]

    def _lead_nowhere(self) -> None:
        if self._last is not None:
            self._found.append((self._first, self._last.seq))


def _is_round(moved: Mapping[int, int], seq: int) -> bool:
    place = moved[seq]
    for _ in moved:
        if place == seq:
            return True
        if place not in moved:
            return False
        place = moved[place]
    return False


def _in_runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
