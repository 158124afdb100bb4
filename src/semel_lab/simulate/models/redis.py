"""Redis with the scripts of `stores/redis`: each operation is one step on one key, and what was told can be forgotten.

What always holds: a script judges and writes at one instant, so the rules are those of the memory store's table. The
server compares no expiry but in its scripts, so a key that it removes late, or rounds up, changes no answer. Forgetting
is all that is left: an evicted key is gone for good, and a failover, or a restart with a log that was not on disk yet,
takes the last writes back, whoever made them.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from semel.core.operations import Answer, Claim, InDoubtAnswer, Operation, Replay, Reused
from semel.core.record import Entry, StoredRecord
from semel.stores.memory import Table


class Evict(msgspec.Struct, frozen=True):
    """The server needs room, and removes a key, whatever its record says."""

    digest: bytes


class Forget(msgspec.Struct, frozen=True):
    """A replica that had not seen the last writes is promoted, or the server is back without the end of its log."""

    writes: int


class RedisModel:
    """A Redis server. `table` is what it knows now."""

    __slots__ = ("_past", "table")

    def __init__(self, table: Table | None = None) -> None:
        self.table = Table() if table is None else table
        self._past: list[tuple[dict[bytes, StoredRecord], dict[bytes, tuple[Entry, ...]]]] = []

    def apply(self, operation: Operation, now: int) -> Answer:
        """Carry out one operation."""
        before = self._known()
        answer = self.table.apply(operation, now)
        self._remember(before)
        match answer:
            case Replay(record) | Reused(record) | InDoubtAnswer(record) if isinstance(operation, Claim):
                # Finished steps are told only to whoever goes on with them.
                return replace(answer, record=replace(record, steps=()))
        return answer

    def evict(self, digest: bytes) -> bool:
        """Remove a key; whether there was one."""
        before = self._known()
        gone = self.table.records.pop(digest, None)
        self.table.histories.entries.pop(digest, None)
        self._remember(before)
        return gone is not None

    def forget(self, writes: int) -> set[bytes]:
        """Take the last writes back; the keys whose records are others now."""
        now = dict(self.table.records)
        for _ in range(min(writes, len(self._past))):
            self.table.records, self.table.histories.entries = self._past.pop()
        then = self.table.records
        return {digest for digest in now.keys() | then.keys() if now.get(digest) != then.get(digest)}

    @property
    def writes(self) -> int:
        """How many writes could be forgotten."""
        return len(self._past)

    def mark(self) -> tuple[object, ...]:
        """What forgetting would lead back to, for telling states apart."""
        return tuple(
            [tuple([(r.nonce, r.fence, r.status, r.lease_us) for r in past.values()]) for past, _ in self._past]
        )

    def _known(self) -> tuple[dict[bytes, StoredRecord], dict[bytes, tuple[Entry, ...]]]:
        """A record and its history are one hash: they are forgotten together."""
        return dict(self.table.records), dict(self.table.histories.entries)

    def _remember(self, before: tuple[dict[bytes, StoredRecord], dict[bytes, tuple[Entry, ...]]]) -> None:
        if before[0] != self.table.records:
            self._past.append(before)
