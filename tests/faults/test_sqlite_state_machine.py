"""Any sequence of operations gives the same answers, and leaves the same records, in SQLite as in a dictionary."""

import itertools
import os
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from semel.core import operations as ops
from semel.core.key import Key
from semel.core.record import About, Failure, Lease, Status, Step
from semel.stores.sqlite import SqliteStore
from tests.faults.dictionary import LOST, SETTLED, Dictionary, Row, Seen
from tests.faults.strategies import KEYS, SECOND, START, abouts, errors, fingerprints, keys, limits, terms
from tests.faults.views import claim_of, lease_of, row_of, seen


class SqliteIsADictionary(RuleBasedStateMachine):
    """The store, the dictionary, and one clock for both."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="semel-machine-")
        self.now = START
        self.nonces = itertools.count(1)
        self.model = Dictionary()
        self.claims: list[ops.Claim] = []
        self.leases: list[Lease] = []
        self.open()

    def open(self) -> None:
        self.store = SqliteStore(Path(self.folder.name) / "semel.db", synchronous="NORMAL", clock=lambda: self.now)
        self.driver = self.store.driver()

    def teardown(self) -> None:
        self.driver.close()
        self.folder.cleanup()

    def perform(self, *operations: ops.Operation) -> list[ops.Answer]:
        """One plan, one round; an error would be a difference by itself."""
        (answers,) = self.driver.perform([self.store.plan(operations, joined=False)])
        assert not isinstance(answers, Exception), answers
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return cast("list[ops.Answer]", answers)

    def same(self, operation: ops.Operation, expected: Seen) -> None:
        (answer,) = self.perform(operation)
        assert seen(answer) == expected

    def fresh_claim(self, key: Key, fingerprint: bytes, terms: ops.Terms, about: About) -> ops.Claim:
        claim = ops.Claim(key, fingerprint, next(self.nonces).to_bytes(16, "big"), terms, about)
        self.claims.append(claim)
        return claim

    def claim_all(self, *claims: ops.Claim) -> None:
        """In one list."""
        answers = self.perform(*claims)
        assert [seen(answer) for answer in answers] == self.model.claim_together([*map(claim_of, claims)], self.now)
        self.leases += [answer.lease for answer in answers if isinstance(answer, ops.Granted)]

    @initialize(key=keys, terms=terms, about=abouts)
    def begin(self, key: Key, terms: ops.Terms, about: About) -> None:
        self.claim_all(self.fresh_claim(key, b"asked this", terms, about))

    @rule(key=keys, fingerprint=fingerprints, terms=terms, about=abouts)
    def claim(self, key: Key, fingerprint: bytes, terms: ops.Terms, about: About) -> None:
        self.claim_all(self.fresh_claim(key, fingerprint, terms, about))

    @rule(wanted=st.lists(st.tuples(keys, terms), min_size=2, max_size=5))
    def claim_together(self, wanted: list[tuple[Key, ops.Terms]]) -> None:
        self.claim_all(*(self.fresh_claim(key, b"asked this", terms, About()) for key, terms in wanted))

    @precondition(lambda self: self.running())
    @rule(data=st.data(), terms=terms, late=st.sampled_from([-1, 0, 2 * SECOND]))
    def take_over(self, data: st.DataObject, terms: ops.Terms, late: int) -> None:
        """The owner is not heard of again, or only later, as a zombie."""
        row = data.draw(st.sampled_from(self.running()))
        self.now = max(self.now, row["lease"] + late)
        self.claim_all(self.fresh_claim(_key(row), row["fingerprint"], terms, About()))

    def running(self) -> list[Row]:
        return [row for row in self.model.listed() if row["status"] == "running"]

    def settled(self) -> list[Row]:
        return [row for row in self.model.listed() if row["status"] in SETTLED]

    @precondition(lambda self: self.settled())
    @rule(data=st.data(), terms=terms, fingerprint=fingerprints, late=st.sampled_from([-1, 0]))
    def outlive(self, data: st.DataObject, terms: ops.Terms, fingerprint: bytes, late: int) -> None:
        """A record is claimed at the end of its life: a new one begins, or the old one is replayed once more."""
        row = data.draw(st.sampled_from(self.settled()))
        self.now = max(self.now, row["expires"] + late)
        self.claim_all(self.fresh_claim(_key(row), fingerprint, terms, About(business_key="b-1")))

    @rule(data=st.data())
    def same_claim_again(self, data: st.DataObject) -> None:
        self.claim_all(data.draw(st.sampled_from(self.claims[-6:])))

    def some_lease(self, data: st.DataObject) -> Lease:
        held = {(row["nonce"], row["fence"]) for row in self.running()}
        current = [lease for lease in self.leases if (lease.nonce, lease.fence) in held]
        one_of_them = bool(data.draw(st.booleans()))
        return data.draw(st.sampled_from(current if current and one_of_them else self.leases[-6:]))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), length=st.sampled_from([1, SECOND, 5 * SECOND]))
    def renew(self, data: st.DataObject, length: int) -> None:
        lease = self.some_lease(data)
        self.same(ops.Renew(lease, length), self.model.renew(lease_of(lease), length, self.now))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), outcome=st.binary(max_size=4), times=st.integers(1, 2))
    def complete(self, data: st.DataObject, outcome: bytes, times: int) -> None:
        lease = self.some_lease(data)
        for _ in range(times):
            self.same(ops.Complete(lease, outcome), self.model.complete(lease_of(lease), outcome, self.now))
            self.now += 1

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        ending=st.sampled_from(["final", "retry", "doubt"]),
        error=errors,
        doubtful=st.booleans(),
        started=st.booleans(),
        times=st.integers(1, 2),
    )
    def fail(
        self, data: st.DataObject, ending: Any, error: Failure, *, doubtful: bool, started: bool, times: int
    ) -> None:
        lease = self.some_lease(data)
        kept = (error.type, error.message)
        for _ in range(times):
            expected = self.model.fail(lease_of(lease), ending, kept, doubtful=doubtful, started=started, now=self.now)
            self.same(ops.Fail(lease, ending, error, doubtful=doubtful, started=started), expected)
            self.now += 1

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), index=st.integers(0, 2), times=st.integers(1, 2))
    def checkpoint(self, data: st.DataObject, index: int, times: int) -> None:
        lease = self.some_lease(data)
        step = Step(index, f"step {index}", bytes([index]))
        for _ in range(times):
            expected = self.model.checkpoint(lease_of(lease), (step.index, step.name, step.outcome), self.now)
            self.same(ops.Checkpoint(lease, step), expected)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), error=errors, terms=terms, doubtful=st.booleans())
    def retry(self, data: st.DataObject, error: Failure, terms: ops.Terms, *, doubtful: bool) -> None:
        """Nothing happened, says the owner; somebody claims again."""
        row = data.draw(st.sampled_from(self.running()))
        lease = Lease(_key(row), row["fence"], row["nonce"], 0)
        kept = (error.type, error.message)
        expected = self.model.fail(lease_of(lease), "retry", kept, doubtful=doubtful, started=True, now=self.now)
        self.same(ops.Fail(lease, "retry", error, doubtful=doubtful), expected)
        self.claim_all(self.fresh_claim(_key(row), row["fingerprint"], terms, About()))

    @precondition(lambda self: self.stale())
    @rule(data=st.data())
    def zombie(self, data: st.DataObject) -> None:
        """Everything that an attempt can still send after its lease was lost: it changes nothing."""
        lease = data.draw(st.sampled_from(self.stale()))
        error = Failure("app.Late", "")
        self.same(ops.Renew(lease, SECOND), LOST)
        self.same(ops.Checkpoint(lease, Step(0, "late", b"")), LOST)
        self.same(ops.Fail(lease, "retry", error, doubtful=False), LOST)
        self.same(ops.Complete(lease, b"late"), LOST)

    def stale(self) -> list[Lease]:
        now_held = {(row["nonce"], row["fence"]) for row in self.model.rows.values()}
        return [lease for lease in self.leases if (lease.nonce, lease.fence) not in now_held][-6:]

    @rule()
    def crash(self) -> None:
        """The process is gone without a word; another opens the file. What the first had sent may still arrive."""
        self.open()

    @rule(data=st.data())
    def let_time_pass(self, data: st.DataObject) -> None:
        """By anything, or to the very edge of a lease or of a record's life."""
        edges = [
            row[name] + near for row in self.model.rows.values() for name in ("lease", "expires") for near in (-1, 0)
        ]
        ahead = sorted({edge for edge in edges if edge > self.now})
        to_an_edge = bool(data.draw(st.booleans()))
        by = st.sampled_from([1, SECOND, 10 * SECOND])
        self.now = data.draw(st.sampled_from(ahead)) if ahead and to_an_edge else self.now + data.draw(by)

    @rule(
        key=keys,
        status=st.sampled_from([Status.COMPLETED, Status.FAILED, Status.CANCELLED]),
        note=st.sampled_from(["seen", "ü"]),
        stated=st.none() | errors,
        force=st.booleans(),
        times=st.integers(1, 2),
    )
    def resolve(self, key: Key, status: Any, note: str, stated: Failure | None, *, force: bool, times: int) -> None:
        nonce = next(self.nonces).to_bytes(16, "big")
        outcome = b"stated" if status is Status.COMPLETED else None
        error = stated if status is Status.FAILED else None
        decision = {"digest": key.digest, "nonce": nonce, "status": status.value, "outcome": outcome, "note": note}
        decision |= {"error": None if error is None else (error.type, error.message), "force": force}
        for _ in range(times):
            expected = self.model.resolve(decision, self.now)
            self.same(ops.Resolve(key.digest, nonce, status, outcome, note, error=error, force=force), expected)

    @precondition(lambda self: self.settled())
    @rule(data=st.data(), note=st.sampled_from(["seen", "ü"]), stale=st.booleans(), times=st.integers(1, 2))
    def reopen(self, data: st.DataObject, note: str, *, stale: bool, times: int) -> None:
        """A second chance for what is over; now and then for a record that is another by now."""
        row = data.draw(st.sampled_from(self.settled()))
        nonce, digest = next(self.nonces).to_bytes(16, "big"), row["digest"]
        saw = bytes(16) if stale else row["nonce"]
        for _ in range(times):
            expected = self.model.reopen(digest, nonce, saw, note, self.now)
            self.same(ops.Reopen(digest, nonce, saw, note), expected)
            self.now += 1

    @rule(
        failure=st.builds(
            ops.CountFailure,
            key=keys,
            fingerprint=fingerprints,
            nonce=st.just(b""),
            error=errors,
            terms=terms,
            about=abouts,
            max_attempts=st.sampled_from([None, 1, 2, 3]),
        ),
        times=st.integers(1, 2),
    )
    def count_failure(self, failure: ops.CountFailure, times: int) -> None:
        """An attempt was rolled back with its caller's transaction; its reply may be lost, and it is sent again."""
        count = replace(failure, nonce=next(self.nonces).to_bytes(16, "big"))
        told = {**claim_of(count), "error": (count.error.type, count.error.message)}
        for _ in range(times):
            self.same(count, self.model.count(told, count.max_attempts, self.now))
            self.now += 1

    @rule(key=keys, times=st.integers(1, 2), invalidates=st.booleans())
    def erase(self, key: Key, times: int, *, invalidates: bool) -> None:
        for _ in range(times):
            self.same(ops.Erase(key.digest, "asked", invalidates=invalidates), self.model.erase(key.digest, "asked"))

    @rule(limit=limits)
    def purge(self, limit: int) -> None:
        """Which of the expired go first is the store's own affair."""
        expired = self.model.expired(self.now)
        assert self.perform(ops.Purge(limit)) == [ops.SweepCount(min(limit, len(expired)))]
        gone = self.model.rows.keys() - {row["digest"] for row in self.stored()}
        assert gone <= expired
        for digest in gone:
            del self.model.rows[digest]

    @rule(limit=limits)
    def lapse(self, limit: int) -> None:
        lapsed = self.model.lapsed(self.now)
        (answer,) = self.perform(ops.MarkLapsed(limit))
        assert isinstance(answer, ops.LapsedRecords)
        marked = {row["digest"] for row in self.stored() if row["status"] == "in_doubt"} & lapsed
        assert {record.digest for record in answer.records} == marked
        assert len(marked) == min(limit, len(lapsed))
        for digest in marked:
            self.model.lapse(digest, self.now)

    @rule(key=keys, replays=st.integers(1, 5))
    def tally(self, key: Key, replays: int) -> None:
        self.same(ops.AddReplays(key.digest, replays), self.model.tally(key.digest, replays, self.now))

    def stored(self, query: ops.Query = ops.Query(), limit: int = 100) -> list[dict[str, Any]]:  # noqa: B008 - frozen
        """Every record that the store lists, page by page."""
        found: list[dict[str, Any]] = []
        cursor = None
        while True:
            (page,) = self.perform(ops.Scan(query, cursor, limit))
            assert isinstance(page, ops.Page)
            assert len(page.records) <= limit
            found += map(row_of, page.records)
            cursor = page.cursor
            if cursor is None:
                return found

    @rule(key=keys)
    def read(self, key: Key) -> None:
        self.same(ops.Read(key.digest, with_steps=True), ("found", self.model.rows.get(key.digest), self.now))

    @rule(
        limit=limits,
        status=st.none() | st.sampled_from(Status),
        operation=st.none() | st.just("charge"),
        business_key=st.none() | st.sampled_from(["b-1", "ü-2"]),
    )
    def scan(self, limit: int, status: Status | None, operation: str | None, business_key: str | None) -> None:
        query = ops.Query(status=status, operation=operation, business_key=business_key)
        wanted = {"status": status and status.value, "operation": operation, "business_key": business_key}
        expected = self.model.listed(**{name: value for name, value in wanted.items() if value is not None})
        assert self.stored(query, limit) == expected

    @invariant()
    def the_records_are_the_same(self) -> None:
        assert self.stored() == self.model.listed()


def _key(row: Row) -> Key:
    return next(key for key in KEYS if key.digest == row["digest"])


@pytest.mark.slow
@pytest.mark.timeout(14_400 if os.environ.get("SEMEL_EFFORT") == "full" else 900)  # shrinking may take minutes
def test_sqlite_is_a_dictionary() -> None:
    run_state_machine_as_test(SqliteIsADictionary, settings=settings())
