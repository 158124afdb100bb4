"""The store model under watch: the real table, and beside it a checker that looks at every change of a record.

What always holds: after a claim only the highest owner writes, under its own lease, to a record that is running; what
is completed stays; only what is settled and expired is deleted. The checker changes nothing.

What servers do beyond answering: Redis removes keys for want of room, and comes back without its last writes.

What always holds: whatever is forgotten is written down for its key, so that a second effect can be asked whether a
record was forgotten before it; nothing else explains one.

The models of servers under watch: whose model the records of a world are in.

What always holds: the checker is the one of the memory store's table, whatever is beneath it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final

from semel.core import codec
from semel.core.claim_rules import granted
from semel.core.flow import run
from semel.core.operations import (
    AddReplays,
    Claim,
    Complete,
    Confirm,
    CountFailure,
    CountRecords,
    Erase,
    Fail,
    Invalidate,
    LapsedRecords,
    Lost,
    MarkLapsed,
    Operation,
    Pending,
    Purge,
    PurgeWorkers,
    Read,
    ReadHistory,
    Recorded,
    RegisterWorker,
    Renew,
    Renewed,
    Reopen,
    Resolve,
    Scan,
    SkipRecords,
    StateMismatch,
)
from semel.core.record import NOTHING, Entry, Status, StoredRecord
from semel.core.store import Answers, Capabilities, Plan
from semel.stores.dynamodb.clock import Moment
from semel.stores.dynamodb.commands import Call, Item, Now, Together
from semel.stores.dynamodb.items import KEY, seen_of
from semel.stores.dynamodb.plan import digest_of, one, storable_operation
from semel.stores.memory import Table
from semel_lab.simulate.checks.answers import Claims, Life, is_over
from semel_lab.simulate.checks.history import check_history
from semel_lab.simulate.checks.search import Known, check_search
from semel_lab.simulate.checks.violation import Violation, told
from semel_lab.simulate.models.dynamodb import TABLE, DynamoModel
from semel_lab.simulate.models.redis import RedisModel
from semel_lab.simulate.world import ABOUTS, KEYS, SHAPE, World

if TYPE_CHECKING:
    from semel_lab.simulate.process import Worker
    from semel_lab.simulate.simulation import Simulation


_MOST: Final = 3


class Quirks:
    """The quirks of one schedule."""

    __slots__ = ("forgotten", "sim")

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.forgotten: dict[bytes, int] = {}

    def options(self) -> list[str]:
        """What may happen before a round reaches the server."""
        sim = self.sim
        assert isinstance(sim.store, WatchedRedis)
        model, faults = sim.store.model, sim.world.faults
        evicts = [f"evict {number}" for number in range(len(model.table.records))] if "evict" in faults else []
        most = min(model.writes, _MOST) if "forget" in faults else 0
        return evicts + [f"forget {writes}" for writes in range(1, most + 1)]

    def strike(self, kind: str) -> bool:
        """Let it happen; False where it is none of these."""
        sim = self.sim
        word, _, number = kind.partition(" ")
        if word not in ("evict", "forget"):
            return False
        assert isinstance(sim.store, WatchedRedis)
        model = sim.store.model
        if word == "evict":
            digests = {list(model.table.records)[int(number)]}
            model.evict(*digests)
        else:
            digests = model.forget(int(number))
        sim.faults.note(word, digests, "server")
        for digest in digests:
            self._forgotten(digest)
        return True

    def _forgotten(self, digest: bytes) -> None:
        sim = self.sim
        self.forgotten[digest] = self.forgotten.get(digest, 0) + 1
        sim.store.claims.forgotten(digest)
        # Whoever had been granted the key, or had given it back, may find that undone.
        nonces = [nonce for nonce, life in sim.store.claims.life_of.items() if life.digest == digest]
        sim.faults.unknown.update(nonces)
        sim.faults.ghosts.update(nonces)

    def mark(self) -> tuple[object, ...]:
        """All of it, for telling states apart."""
        return tuple(sorted(self.forgotten.items())), self.sim.store.mark()


_RUNNING, _COMPLETED, _FAILED, _IN_DOUBT = Status.RUNNING, Status.COMPLETED, Status.FAILED, Status.IN_DOUBT
_HARMLESS = frozenset(
    {
        Read,
        ReadHistory,
        Scan,
        CountRecords,
        SkipRecords,
        AddReplays,
        Invalidate,
        Pending,
        Confirm,
        RegisterWorker,
        PurgeWorkers,
    }
)  # no record is decided by these
_STAYS = ("fence", "fingerprint", "steps", "doubtful", "in_doubt_policy", "created_us", "keep_us")
_SHUT = ("status", "fence", "nonce", "lease_us", "expires_us")


class WatchedStore:
    """What lanes of the simulation send to."""

    __slots__ = ("claims", "max_operations", "name", "sim", "table")
    capabilities: Capabilities = frozenset()
    skips = True
    """Whether it tells how far so many records reach."""

    def __init__(self, sim: Simulation, batch: int) -> None:
        self.name = "simulated://"
        self.max_operations = batch
        self.sim = sim
        self.table = Table()
        self.claims = Claims(sim)

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """One command: the operations themselves."""
        del joined  # nothing can be joined here
        answers: Answers = yield operations
        return answers

    def apply_all(self, operations: Sequence[Operation]) -> Answers:
        """Carry out a list."""
        return [self.apply(operation) for operation in operations]

    def apply(self, operation: Any) -> Any:
        """Carry out one operation, and look at what it changed."""
        kind, now = type(operation), self.sim.store_now()
        if kind in _HARMLESS:
            return self.perform(operation, now)
        if kind is Purge or kind is MarkLapsed:
            return self._swept(operation, now)
        digest = digest_of(operation)
        records = self.table.records
        before, entries = records.get(digest), self.entries_of(digest)
        answer = self.perform(operation, now)
        self.judge(operation, before, records.get(digest), now, answer)
        check_history(operation, before, records.get(digest), entries, self.entries_of(digest))
        if self.sim.setting.searched:
            self.check_search(now)
        if self.sim.trace is not None:
            self.sim.note("store", f"{told(operation)} -> {told(answer)}")
        return answer

    def check_search(self, now: int) -> None:
        """Records are found by what the last claim of each said, in its scope, and not otherwise."""
        scopes = {key.digest: key.scope for key in KEYS}
        known = [
            Known(record, "" if life.erased else scopes[digest], NOTHING if life.erased else life.about)
            for digest, life in self.claims.lives.items()
            if not life.ended and (record := self.table.records.get(digest)) is not None
        ]
        check_search(known, ABOUTS, lambda asked: self.find(asked, now), skips=self.skips)

    def find(self, operation: Scan | CountRecords | SkipRecords, now: int) -> Any:
        """What a search or a count is told."""
        return self.perform(operation, now)

    def perform(self, operation: Any, now: int) -> Any:
        """What the model makes of it."""
        return self.table.apply(operation, now)

    def judge(
        self, operation: Any, before: StoredRecord | None, after: StoredRecord | None, now: int, answer: Any
    ) -> None:
        """Look at what an operation on one record has changed, and at its answer."""
        kind = type(operation)
        if kind is Claim:
            self.claims.answered(operation, before, after, now, answer)
        elif kind is Resolve:
            self._resolved(operation, before, after, now)
        elif kind is Reopen:
            self._reopened(operation, before, after)
        elif kind is CountFailure:
            self._counted(operation, before, after, now, answer)
        elif kind is Erase:
            self._erased(before, after)
        else:
            self._written(operation, before, after, now, answer)

    def entries_of(self, digest: bytes) -> tuple[Entry, ...]:
        """The history of a record."""
        return self.table.histories.entries.get(digest, ())

    def mark(self) -> tuple[object, ...]:
        """What the model knows beside the records, for telling states apart."""
        return ()

    def _written(
        self, operation: Any, before: StoredRecord | None, after: StoredRecord | None, now: int, answer: Any
    ) -> None:
        kind = type(operation)
        if after is before:
            if type(answer) is Lost:
                self.sim.seen["refused: " + kind.__name__] += 1
            elif before is None or before.nonce != operation.lease.nonce or before.fence != operation.lease.fence:
                raise Violation("I4", f"{kind.__name__} under another's lease was answered {told(answer)}")
            elif kind is Complete:
                self.sim.seen["completed again"] += 1
            return
        lease = operation.lease
        if before is None or after is None or before.nonce != lease.nonce or before.fence != lease.fence:
            raise Violation("I4", f"{kind.__name__} was accepted under a lease that is not the current one")
        if before.status is not _RUNNING:
            raise Violation("I7", f"{kind.__name__} changed a record that is {before.status}")
        if after.nonce != before.nonce or after.fence != before.fence or after.fingerprint != before.fingerprint:
            raise Violation("I4", f"{kind.__name__} changed whose record it is")
        if kind is Renew:
            self.sim.witness.renewed(lease, now)
        elif kind is Complete:
            self._completed(after)
        elif kind is Fail:
            self._failed(operation, before, after)

    def _completed(self, after: StoredRecord) -> None:
        life = self.claims.lives[after.key.digest]
        if life is not self.claims.life_of.get(after.nonce) or after.fence != life.fence:
            raise Violation("I4", "somebody else than the highest owner completed")
        if after.outcome is None:
            raise Violation("I3", "a record was completed without an outcome")
        if life.outcome is not None:
            raise Violation("I7", "a generation was completed twice")
        life.outcome = after.outcome
        life.value = codec.decode(after.outcome, SHAPE)
        self.sim.seen["completed"] += 1

    def _failed(self, fail: Fail, before: StoredRecord, after: StoredRecord) -> None:
        if after.status is _FAILED and after.retryable and (before.doubtful and fail.doubtful):
            raise Violation("I7", "a doubt became a record that expires")
        if after.final:
            self.claims.lives[after.key.digest].failed = True
        self.sim.seen[f"failed: {fail.ending}{'' if fail.started else ', never called'}"] += 1
        if fail.error.type == "semel.CallerGone":
            self.sim.seen["given back"] += 1

    def _resolved(self, resolve: Resolve, before: StoredRecord | None, after: StoredRecord | None, now: int) -> None:
        if after is before or after is None or before is None:
            return
        lapsed = before.status is _RUNNING and before.lease_us <= now
        if resolve.corrects is not None:
            self._corrected(resolve, before, after)
        elif resolve.force and before.status is _RUNNING and not lapsed:
            self._forced(before)
        elif not lapsed and before.status is not _IN_DOUBT:
            raise Violation("I4", f"a record that is {before.status} was resolved")
        else:
            self.sim.witness.superseded(before)
        if after.fence <= before.fence or after.nonce != resolve.nonce:
            raise Violation("I4", "resolving did not raise the fence under a nonce of its own")
        if (after.status, after.outcome, after.fingerprint) != (resolve.status, resolve.outcome, before.fingerprint):
            raise Violation("stated", "what is recorded is not what was stated")
        if after.retryable is not (resolve.status is _FAILED and resolve.error is None):
            raise Violation("stated", "whether it may be tried again is not as it was stated")
        self.claims.lead(resolve.nonce, after)
        if after.retryable:
            self._let_run(self.claims.lives[after.key.digest])
        elif after.status is not _COMPLETED:
            self.claims.lives[after.key.digest].failed = True
        if after.status is _COMPLETED:
            self._completed(after)
            life = self.claims.lives[after.key.digest]
            life.stated[resolve.nonce] = life.value
        self.sim.seen["resolved" if resolve.corrects is None else "corrected"] += 1

    def _forced(self, before: StoredRecord) -> None:
        """A live lease was ended by decision: its holder is told only when it renews, and may have its effect."""
        life = self.claims.lives[before.key.digest]
        life.forced.add(before.nonce)
        self._let_run(life)
        self.sim.seen["forced"] += 1

    def _let_run(self, life: Life) -> None:
        """An operator has decided that it may be done again, or need not be known to be done."""
        life.decided += 1
        self.sim.faults.decided(life.digest)

    def _reopened(self, reopen: Reopen, before: StoredRecord | None, after: StoredRecord | None) -> None:
        """A key may run again whose record was final: the very one that was looked at, with all that it had."""
        if after is before or after is None or before is None:
            return
        if before.status is _COMPLETED:
            raise Violation("I7", "a completed record was reopened")
        if not before.final or before.erased:
            raise Violation("reopened", f"a record that is {before.status} was reopened")
        if before.nonce != reopen.seen:
            raise Violation("reopened", "another record was reopened than its operator looked at")
        if any(getattr(after, name) != getattr(before, name) for name in _STAYS):
            raise Violation("reopened", "reopening took away what was to stay")
        opened = after.status, after.retryable, after.attempts, after.nonce, after.outcome
        if opened != (_FAILED, True, 0, reopen.nonce, None):
            raise Violation("reopened", "a record that was reopened cannot be claimed from the first attempt on")
        self.claims.lead(reopen.nonce, after)
        self._let_run(self.claims.lives[after.key.digest])
        self.sim.seen["reopened"] += 1

    def _counted(
        self, count: CountFailure, before: StoredRecord | None, after: StoredRecord | None, now: int, answer: Any
    ) -> None:
        """An attempt that left nothing behind is counted where the next one may begin, and nowhere else."""
        if after is before:
            self._not_counted(count, before, answer)
            return
        if after is None:
            raise Violation("I7", "counting an attempt deleted a record")
        old = None if before is None or is_over(before, now) else before
        if old is None:
            self.claims.begin(count, before, after)
        else:
            self._counted_again(count, old, after)
        attempts = 1 if old is None else old.attempts + 1
        if (after.status, after.attempts, after.nonce, after.error) != (_FAILED, attempts, count.nonce, count.error):
            raise Violation("counted", "a counted attempt is not what is recorded")
        if after.retryable is (count.max_attempts is not None and attempts >= count.max_attempts):
            raise Violation("counted", f"after {attempts} of {count.max_attempts} attempts final is {after.final}")
        self.claims.lead(count.nonce, after)
        life = self.claims.lives[after.key.digest]
        life.failed |= after.final
        life.counted.add(count.nonce)
        self.sim.seen["counted: final" if after.final else "counted"] += 1

    def _not_counted(self, count: CountFailure, before: StoredRecord | None, answer: Any) -> None:
        if type(answer) is StateMismatch:
            self.sim.seen["not counted"] += 1
        elif before is None or before.nonce != count.nonce:
            raise Violation("counted", "an attempt is said to be counted that is not")
        else:
            self.sim.seen["counted before"] += 1

    def _counted_again(self, count: CountFailure, before: StoredRecord, after: StoredRecord) -> None:
        if before.status is not _FAILED or not before.retryable:
            raise Violation("counted", f"an attempt was counted in a record that is {before.status}")
        if before.fingerprint != count.fingerprint or after.fingerprint != before.fingerprint:
            raise Violation("I5", "an attempt was counted for another fingerprint")
        if after.fence <= before.fence:
            raise Violation("I4", "counting an attempt did not raise the fence")
        if after.steps != before.steps or after.doubtful is not before.doubtful:
            raise Violation("counted", "counting an attempt changed what earlier ones left")
        if count.nonce in self.claims.lives[before.key.digest].counted:
            # Only the last write is known by its nonce: sent again after others, it counts again.
            if before.nonce == count.nonce or count.nonce not in self.sim.faults.unknown:
                raise Violation("counted", "an attempt was counted twice")
            self.sim.seen["counted again, after others"] += 1

    def _corrected(self, resolve: Resolve, before: StoredRecord, after: StoredRecord) -> None:
        """The outcome of a completed record is replaced: only one that was stated, and that its operator saw."""
        if not before.settled:
            raise Violation("I4", f"a correction settled a record that is {before.status}")
        life = self.claims.lives[before.key.digest]
        if before.status is not _COMPLETED or before.erased or after.status is not _COMPLETED:
            raise Violation("stated", f"a correction turned {before.status} into {after.status}")
        if before.nonce != resolve.corrects:
            raise Violation("stated", "a correction replaced what its operator did not look at")
        if before.nonce not in life.stated:
            raise Violation("stated", "a correction replaced what a handler gave")
        life.outcome = life.value = None  # stated anew at once

    def _erased(self, before: StoredRecord | None, after: StoredRecord | None) -> None:
        if after is before or after is None or before is None:
            return
        if not before.settled:
            raise Violation("I7", f"a record that is {before.status} was erased")
        if not after.final or any(getattr(after, name) != getattr(before, name) for name in _SHUT):
            raise Violation("I7", "erasing opened a key that was shut")
        life = self.claims.lives[after.key.digest]
        left = after.key.value or after.steps or (life.outcome is not None and after.outcome == life.outcome)
        if after.fingerprint or left:
            raise Violation("erased", "erasing left what was asked for, or what came of it")
        life.erased = True
        life.failed |= after.status is _FAILED  # it may have been one that could be tried again
        self.sim.seen["erased"] += 1

    def _swept(self, operation: Purge | MarkLapsed, now: int) -> Any:
        before = dict(self.table.records)
        past = {digest: self.entries_of(digest) for digest in before}
        answer = self.perform(operation, now)
        for digest, record in before.items():
            after = self.table.records.get(digest)
            self.judge_swept(record, after, now)
            check_history(operation, record, after, past[digest], self.entries_of(digest))
        if isinstance(answer, LapsedRecords):
            marked = {digest for digest, record in before.items() if self.table.records.get(digest) is not record}
            if {record.digest for record in answer.records} != marked:
                raise Violation("told", "a sweep told of other records than it marked")
        if self.sim.setting.searched:
            self.check_search(now)
        return answer

    def judge_swept(self, record: StoredRecord, after: StoredRecord | None, now: int) -> None:
        """Look at what a sweep has made of one record."""
        if after is record:
            return
        if after is None:
            self.deleted(record, now)
            self.sim.seen["purged"] += 1
        elif record.status is not _RUNNING or record.lease_us > now or after.status is not _IN_DOUBT:
            raise Violation("I4", f"sweeping turned {record.status} into {after.status}")
        else:
            self.sim.seen["lapsed"] += 1

    def deleted(self, record: StoredRecord, now: int) -> None:
        """A record is gone, as those may be that have expired."""
        if not is_over(record, now):
            raise Violation("I7", f"a record that is {record.status} was deleted before its time")
        self.claims.lives[record.key.digest].ended = "expired"


_UNJUDGED = (
    Read,
    Scan,
    CountRecords,
    SkipRecords,
    Purge,
    MarkLapsed,
    AddReplays,
    Resolve,
    Reopen,
    ReadHistory,
    RegisterWorker,
    PurgeWorkers,
)  # where nothing was written


class WatchedRedis(WatchedStore):
    """Redis: an operation is one script, and writes may be forgotten."""

    __slots__ = ("model",)

    def __init__(self, sim: Simulation, batch: int) -> None:
        super().__init__(sim, batch)
        self.model = RedisModel(self.table)

    def perform(self, operation: Any, now: int) -> Any:
        """What the model makes of it."""
        return self.model.apply(operation, now)

    def mark(self) -> tuple[object, ...]:
        """What forgetting would lead back to."""
        return self.model.mark() if "forget" in self.sim.world.faults else ()


class Last:
    """What the last request of an operation met, and whether it wrote."""

    __slots__ = ("met", "wrote")

    def __init__(self) -> None:
        self.met: StoredRecord | None = None
        self.wrote = False


class WatchedDynamo(WatchedStore):
    """DynamoDB: an operation is one request or several, and each is watched by itself."""

    __slots__ = ("_read", "model")
    skips = False

    def __init__(self, sim: Simulation, batch: int) -> None:
        super().__init__(sim, batch)
        self.model = DynamoModel()
        self._read: dict[bytes, Item] = {}

    def moment(self, worker: Worker | None) -> Moment:
        """What time the service has, as a process knows it."""
        del worker  # learnt from the replies, so its own clock does not matter
        now = self.sim.store_now()
        return Moment(now, now)

    def digest_of(self, operation: Operation) -> bytes:
        """The record that an operation is about."""
        return digest_of(operation)

    def watching(self, operation: Operation, last: Last) -> Generator[Any, Any, Any]:
        """The steps of an operation; its answer is looked at when it is there."""
        answer = yield from _in_turn(one(TABLE, self.model.places, storable_operation(operation)))
        self._answered(operation, last, answer)
        return answer

    def answer(self, operation: Operation, last: Last, call: Call, lag: int = 0) -> Any:
        """Carry out one request of an operation, and look at what it changed."""
        now, records = self.sim.store_now(), self.table.records
        digest = digest_of(operation) or call.parameters.get("Key", {}).get(KEY, {}).get("B", b"")
        before, entries = records.get(digest), self.entries_of(digest)
        reply = self.model.answer(call, lag)
        after = self._known(digest)
        last.met, last.wrote = before, after is not before
        if after is not before:
            self._changed(operation, before, after, now)
            if self.sim.setting.searched:
                self.check_search(now)
        check_history(operation, before, after, entries, self.entries_of(digest))
        if self.sim.trace is not None:
            shown = told(operation) if after is before else f"{told(operation)} (writes)"
            self.sim.note("store", f"{shown}: {call.action} -> {type(reply).__name__}")
        return reply

    def entries_of(self, digest: bytes) -> tuple[Entry, ...]:
        """The history of a record, which is part of its item."""
        item = self.model.items.get(digest)
        return () if item is None else seen_of(item).entries

    def find(self, operation: Scan | CountRecords | SkipRecords, now: int) -> Any:
        """By the store's own plan: a tag and a count read all items, anything else goes by an index."""
        return self.model.apply(operation, now)

    def _known(self, digest: bytes) -> StoredRecord | None:
        """The record that is stored, the same object as long as nobody has written it."""
        records, item = self.table.records, self.model.items.get(digest)
        if item is None:
            records.pop(digest, None)
            return None
        known = records.get(digest)
        if known is not None and self._read[digest] is item:
            return known  # no item is changed in place
        self._read[digest], found = item, seen_of(item).record
        if known is None or known != found:
            records[digest] = found
        return records[digest]

    def _changed(self, operation: Operation, before: StoredRecord | None, after: StoredRecord | None, now: int) -> None:
        match operation:
            case Claim() if after is not None:
                self.judge(operation, before, after, now, granted(after))
            case Purge() | MarkLapsed() if before is not None:
                self.judge_swept(before, after, now)
            case AddReplays():
                pass
            case Renew() if after is not None:
                self.judge(operation, before, after, now, Renewed(after.lease_us))
            case _:
                self.judge(operation, before, after, now, Recorded(now))

    def _answered(self, operation: Operation, last: Last, answer: Any) -> None:
        if not last.wrote and not isinstance(operation, _UNJUDGED):
            self.judge(operation, last.met, last.met, self.sim.store_now(), answer)

    def apply(self, operation: Any) -> Any:
        """Carry out a whole operation with nobody in between."""
        last = Last()
        return run(
            self.watching(operation, last),
            lambda wanted: self.moment(None) if isinstance(wanted, Now) else self.answer(operation, last, wanted),
        )

    def expired(self) -> bytes | None:
        """A record that the service may delete."""
        now = self.sim.store_now()
        return next((digest for digest in self.table.records if self.model.is_expired(digest, now)), None)

    def expire(self) -> None:
        """Delete it."""
        digest = self.expired()
        assert digest is not None
        self.deleted(self.table.records[digest], self.sim.store_now())
        self.model.expire(digest, self.sim.store_now())
        self._known(digest)
        if self.sim.setting.searched:
            self.check_search(self.sim.store_now())

    def mark(self) -> tuple[object, ...]:
        """The versions, by which conditions tell writes apart."""
        return tuple([item["version"]["N"] for item in self.model.items.values()])


def _in_turn(flow: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """The same steps, with chains that may go side by side one after the other: each is on a record of its own."""
    reply: Any = None
    error: Exception | None = None
    while True:
        try:
            wanted = flow.send(reply) if error is None else flow.throw(error)
        except StopIteration as stop:
            return stop.value
        reply = error = None
        try:
            if isinstance(wanted, Together):
                reply = []
                for chain in wanted.chains:
                    reply.append((yield from _in_turn(chain)))
            else:
                reply = yield wanted
        except Exception as problem:  # noqa: BLE001 - the steps decide what an error means
            error = problem


def watched(sim: Simulation, world: World) -> WatchedStore:
    """The store of a world."""
    match world.store:
        case "redis":
            return WatchedRedis(sim, world.batch)
        case "dynamodb":
            return WatchedDynamo(sim, world.batch)
        case _:
            return WatchedStore(sim, world.batch)
