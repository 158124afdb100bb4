"""Loading a batch: in lots, behind what is there, and never twice; or comparing the input with what was loaded.

- An input is read once. What was loaded before a crash is compared with it, lot by lot; from the first difference on it
  is loaded anew, because nothing of it has run.
- Workers see a batch when all of it is there. An input with mistakes leaves nothing behind.
- The same id with the same items is the same batch, whatever their order; with others it is `BatchChanged`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from semel.batch.sources import ItemReader, Lot, encode_value
from semel.core.batch.operations import (
    AbandonLoad,
    AddItems,
    DropItems,
    DuplicateItems,
    FindItems,
    FinishLoad,
    LoadLost,
    NoteBatch,
    OpenBatch,
    ReadBatch,
    ReadItems,
)
from semel.core.batch.retention import forget_expired
from semel.core.batch.rows import follow_doubts
from semel.core.batch.values import ENDED, STOPPED, NewItem, StoredBatch, StoredItem
from semel.core.flow import Flow, ask
from semel.errors import BatchChanged, InProgress, UsageError

_SHOWN: Final = 10
_LOT: Final = 5000
_OTHER_METADATA: Final = "A later start() had other metadata; the first stays."


@dataclass(slots=True)
class Differences:
    """How an input differs from what was loaded: the first ten, and which positions it has."""

    texts: list[str] = field(default_factory=list)
    seen: bytearray = field(default_factory=bytearray)

    def mark(self, position: int) -> None:
        """The input has what is at this position."""
        self.seen[position >> 3] |= 1 << (position & 7)

    def missing(self, total: int) -> list[int]:
        """The first positions that the input does not have."""
        found: list[int] = []
        for position in range(total):
            if not self.seen[position >> 3] >> (position & 7) & 1:
                found.append(position)
                if len(found) == _SHOWN:
                    break
        return found

    def add(self, text: str) -> None:
        """Note a difference."""
        if len(self.texts) < _SHOWN:
            self.texts.append(text)


class Loading:
    """One `start` on its way: what it asks of the store, as flows."""

    def __init__(self, opening: OpenBatch, reader: ItemReader) -> None:
        self._opening = opening
        self._reader = reader
        self._batch: StoredBatch | None = None
        self._loaded = 0
        self._differences = Differences()

    @property
    def batch(self) -> StoredBatch:
        """The batch, once it is open."""
        assert self._batch is not None  # noqa: S101 - asked after `open`
        return self._batch

    def open(self) -> Flow[None]:
        """Begin, or find what there is.

        Raises:
            BatchChanged: it was begun for another operation.
        """
        while True:
            found = yield from ask(self._opening)
            batch = found.known
            is_over = (
                batch.state in ENDED and batch.ended_us is not None and batch.ended_us + batch.keep_us <= found.now_us
            )
            if batch.state != "expired" and not is_over:
                break
            if batch.state != "expired":
                yield from follow_doubts(batch, "fail")
            if not (yield from forget_expired(1, batch.number)):
                break  # it has doubtful items, and stays until they are resolved
        self._batch, self._loaded = batch, batch.loaded
        if batch.state != "loading":
            self._differences.seen = bytearray(batch.total // 8 + 1)
        if batch.operation != self._opening.operation:
            raise self._changed([f"the operation was {batch.operation!r} and is {self._opening.operation!r}"])

    def add(self, lot: Lot) -> Flow[None]:
        """Load a lot, or compare it with what is there.

        Raises:
            InProgress: another process loads the batch by now.
            UsageError: it was cancelled meanwhile.
        """
        if not lot.items:
            return
        if self.batch.state != "loading":
            yield from self._compare(lot)
            return
        if lot.offset < self._loaded:
            if lot.end <= self._loaded and (yield from self._is_loaded(lot)):
                return
            yield from self._drop(lot.offset)
        yield from self._add(lot)

    def finish(self) -> Flow[StoredBatch]:
        """Let workers see the batch, once all of the input was read.

        Raises:
            BatchInvalid: some items cannot be loaded.
            BatchChanged: it was loaded with other items.
            InProgress: another process loads the batch by now.
            UsageError: it was cancelled meanwhile.
        """
        reader, digest = self._reader, self._reader.digest.to_bytes(32, "big")
        if reader.problems.count:
            if self.batch.state == "loading":
                yield from self._drop(0)
            raise reader.problems.error(self.batch.id)
        if self.batch.state == "loading":
            yield from self._drop(reader.count)
            finished = yield from ask(FinishLoad(self.batch.number, self._opening.token, reader.count, digest))
            if isinstance(finished, LoadLost):
                raise (yield from self._lost())
            self._batch = finished.known
        elif (reader.count, digest) != (self.batch.total, self.batch.digest):
            if self.batch.state in STOPPED and not self.batch.total:
                raise (yield from self._lost())
            yield from self._note_missing()
            raise self._changed(self._differences.texts)
        if self._opening.metadata != self.batch.metadata:
            yield from self._note_metadata()
        return self.batch

    def abandon(self) -> Flow[None]:
        """Take the batch back if nothing of it is loaded: nobody knows of it."""
        if self._batch is not None and self._batch.state == "loading":
            yield from ask(AbandonLoad(self._batch.number, self._opening.token))

    def _is_loaded(self, lot: Lot) -> Flow[bool]:
        found = (yield from ask(ReadItems(self.batch.number, lot.offset, lot.end))).items
        return len(found) == len(lot.items) and all(map(_is_same, lot.items, found))

    def _add(self, lot: Lot) -> Flow[None]:
        items = list(lot.items)
        while True:
            adding = AddItems(self.batch.number, self._opening.token, lot.offset, len(lot.items), tuple(items))
            answer = yield from ask(adding)
            if isinstance(answer, LoadLost):
                raise (yield from self._lost())
            if not isinstance(answer, DuplicateItems):
                self._loaded = answer.loaded
                return
            for id_ in answer.ids:
                self._reader.problems.add(lot.lines[id_], f"the id {id_!r} was there already")
            items = [item for item in items if item.id not in answer.ids]

    def _drop(self, offset: int) -> Flow[None]:
        while self._loaded > offset:
            answer = yield from ask(DropItems(self.batch.number, self._opening.token, offset, _LOT))
            if isinstance(answer, LoadLost):
                raise (yield from self._lost())
            self._loaded = answer.loaded

    def _compare(self, lot: Lot) -> Flow[None]:
        found = (yield from ask(ReadItems(self.batch.number, lot.offset, lot.end))).items
        there = {item.position: item for item in found}
        elsewhere = {}
        for item in lot.items:
            stored = there.get(item.position)
            if stored is not None and _is_same(item, stored):
                self._differences.mark(item.position)
            else:
                elsewhere[item.id] = item
        if elsewhere:
            yield from self._find(elsewhere, lot)

    def _find(self, given: dict[str, NewItem], lot: Lot) -> Flow[None]:
        """Items that stand elsewhere in the batch, or have other data, or are not in it."""
        found = (yield from ask(FindItems(self.batch.number, tuple(given)))).items
        stored = {item.id: item for item in found}
        for id_, item in given.items():
            other = stored.get(id_)
            if other is None:
                self._differences.add(f"{id_!r} (in {lot.lines[id_]}) is new")
                continue
            self._differences.mark(other.position)
            if not _is_same(item, other):
                self._differences.add(f"{id_!r} (in {lot.lines[id_]}) has other data")

    def _note_missing(self) -> Flow[None]:
        for position in self._differences.missing(self.batch.total):
            for item in (yield from ask(ReadItems(self.batch.number, position, position + 1))).items:
                self._differences.add(f"{item.id!r} is missing")

    def _note_metadata(self) -> Flow[None]:
        notes: list[str] = msgspec.json.decode(self.batch.notes)
        if _OTHER_METADATA not in notes:
            changed = msgspec.json.encode([*notes, _OTHER_METADATA])
            yield from ask(NoteBatch(self.batch.number, self.batch.notes, changed))

    def _changed(self, differences: list[str]) -> BatchChanged:
        batch = self.batch
        return BatchChanged(
            f"The batch {batch.id!r} was begun with other items, so nothing ran: {'; '.join(differences)}. Give the "
            f"items it was begun with to go on, or another id.",
            differences=tuple(differences),
        )

    def _lost(self) -> Flow[InProgress | UsageError]:
        """Why nothing can be added any more."""
        found = (yield from ask(ReadBatch(self.batch.scope, self.batch.id))).batch
        if found is not None and found.number == self.batch.number and found.state in STOPPED:
            why = f" ({found.reason})" if found.reason else ""
            return UsageError(
                f"The batch {self.batch.id!r} was cancelled while it was loaded{why}; no item ran. Load items under "
                "another id."
            )
        return InProgress(
            f"Another process loads the batch {self.batch.id!r} by now; no item ran. Start it again with its items."
        )


def _is_same(item: NewItem, stored: StoredItem) -> bool:
    """Whether an item is the one that was loaded. What was erased is not compared."""
    return item.id == stored.id and (stored.is_erased or item.data == stored.data)


def encode_metadata(metadata: Any) -> bytes:
    """What a batch keeps of what its owner says of it.

    Raises:
        UsageError: it has no JSON.
    """
    try:
        return encode_value(metadata)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as problem:
        raise UsageError(f"metadata= cannot be kept as JSON: {problem!s:.300}; nothing was loaded.") from None
