"""Any sequence of operations gives the same answers, and leaves the same records, in SQLite as in a dictionary."""

import itertools
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from semel.core.key import Key
from semel.core.operations import (
    Answer,
    Checkpoint,
    Claim,
    Complete,
    Fail,
    Granted,
    Lapse,
    Operation,
    Page,
    Purge,
    Query,
    Read,
    Renew,
    Resolve,
    Scan,
    Swept,
    Tally,
    Terms,
)
from semel.core.record import About, Failure, Lease, Status, Step
from semel.stores.sqlite import SqliteStore
from tests.faults.dictionary import Dictionary, Seen
from tests.faults.views import claim_of, lease_of, row_of, seen

KEYS = [Key.of(value, operation=operation) for value in ("one", "two") for operation in ("charge", "refund")]
SECOND = 1_000_000
START = 1_900_000_000 * SECOND

keys = st.sampled_from(KEYS)
fingerprints = st.sampled_from([b"asked this", b"asked that"])
# Mostly equal, so that sequences get beyond the first quarrel.
terms = st.builds(
    Terms,
    lease_us=st.sampled_from([SECOND, 3 * SECOND]),
    keep_us=st.sampled_from([4 * SECOND, 60 * SECOND]),
    in_doubt=st.sampled_from(["rerun", "rerun", "reconcile", "hold"]),
    reconcile_after_us=st.sampled_from([0, 2 * SECOND]),
)
abouts = st.builds(About, business_key=st.sampled_from([None, "b-1", "ü-2"]))
errors = st.builds(Failure, st.sampled_from(["app.Refused", "app.Down"]), st.sampled_from(["", "no", "nö \udc80"[:2]]))
limits = st.integers(1, 3)


class SqliteIsADictionary(RuleBasedStateMachine):
    """The store, the dictionary, and one clock for both."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="semel-machine-")
        self.now = START
        self.nonces = itertools.count(1)
        self.model = Dictionary()
        self.claims: list[Claim] = []
        self.leases: list[Lease] = []
        self.open()

    def open(self) -> None:
        self.store = SqliteStore(Path(self.folder.name) / "semel.db", clock=lambda: self.now)
        self.driver = self.store.driver()

    def teardown(self) -> None:
        self.driver.close()
        self.folder.cleanup()

    def perform(self, *operations: Operation) -> list[Answer]:
        """One plan, one round; an error would be a difference by itself."""
        (answers,) = self.driver.perform([self.store.plan(operations, joined=False)])
        assert not isinstance(answers, Exception), answers
        return [answer for answer in answers if not isinstance(answer, Exception) or _reraised(answer)]

    def same(self, operation: Operation, expected: Seen) -> None:
        (answer,) = self.perform(operation)
        assert seen(answer) == expected

    # ---------------------------------------------------------------- claims

    def fresh_claim(self, key: Key, fingerprint: bytes, terms: Terms, about: About) -> Claim:
        claim = Claim(key, fingerprint, next(self.nonces).to_bytes(16, "big"), terms, about)
        self.claims.append(claim)
        return claim

    def claim_all(self, *claims: Claim) -> None:
        """In one list; one after the other for the dictionary."""
        answers = self.perform(*claims)
        assert [seen(answer) for answer in answers] == [self.model.claim(claim_of(c), self.now) for c in claims]
        self.leases += [answer.lease for answer in answers if isinstance(answer, Granted)]

    @initialize(key=keys, terms=terms, about=abouts)
    def begin(self, key: Key, terms: Terms, about: About) -> None:
        self.claim_all(self.fresh_claim(key, b"asked this", terms, about))

    @rule(key=keys, fingerprint=fingerprints, terms=terms, about=abouts)
    def claim(self, key: Key, fingerprint: bytes, terms: Terms, about: About) -> None:
        self.claim_all(self.fresh_claim(key, fingerprint, terms, about))

    @rule(wanted=st.lists(st.tuples(keys, terms), min_size=2, max_size=5))
    def claim_together(self, wanted: list[tuple[Key, Terms]]) -> None:
        self.claim_all(*(self.fresh_claim(key, b"asked this", terms, About()) for key, terms in wanted))

    @rule(data=st.data())
    def same_claim_again(self, data: st.DataObject) -> None:
        self.claim_all(data.draw(st.sampled_from(self.claims[-6:])))

    # ---------------------------------------------------------------- writes under a lease, current or long lost

    def some_lease(self, data: st.DataObject) -> Lease:
        return data.draw(st.sampled_from(self.leases[-6:]))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), length=st.sampled_from([1, SECOND, 5 * SECOND]))
    def renew(self, data: st.DataObject, length: int) -> None:
        lease = self.some_lease(data)
        self.same(Renew(lease, length), self.model.renew(lease_of(lease), length, self.now))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), outcome=st.binary(max_size=4), times=st.integers(1, 2))
    def complete(self, data: st.DataObject, outcome: bytes, times: int) -> None:
        lease = self.some_lease(data)
        for _ in range(times):
            self.same(Complete(lease, outcome), self.model.complete(lease_of(lease), outcome, self.now))
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
            expected = self.model.fail(
                lease_of(lease), ending, kept, doubtful=doubtful, started=started, now=self.now
            )
            self.same(Fail(lease, ending, error, doubtful=doubtful, started=started), expected)
            self.now += 1

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), index=st.integers(0, 2), times=st.integers(1, 2))
    def checkpoint(self, data: st.DataObject, index: int, times: int) -> None:
        lease = self.some_lease(data)
        step = Step(index, f"step {index}", bytes([index]))
        for _ in range(times):
            expected = self.model.checkpoint(lease_of(lease), (step.index, step.name, step.outcome), self.now)
            self.same(Checkpoint(lease, step), expected)

    # ---------------------------------------------------------------- crashes and time

    @rule()
    def crash(self) -> None:
        """The process is gone without a word, its leases with it; another opens the file."""
        self.open()
        self.leases.clear()

    @rule(data=st.data())
    def let_time_pass(self, data: st.DataObject) -> None:
        """By anything, or to the very edge of a lease or of a record's life."""
        edges = [row[name] + near for row in self.model.rows.values() for name in ("lease", "expires") for near in (-1, 0)]
        ahead = sorted({edge for edge in edges if edge > self.now})
        by = st.sampled_from([1, SECOND, 10 * SECOND])
        self.now = data.draw(st.sampled_from(ahead) if ahead and data.draw(st.booleans()) else by.map(self.now.__add__))

    # ---------------------------------------------------------------- decisions and the sweep

    @rule(
        key=keys,
        status=st.sampled_from([Status.COMPLETED, Status.FAILED, Status.CANCELLED]),
        note=st.sampled_from(["seen", "ü"]),
        times=st.integers(1, 2),
    )
    def resolve(self, key: Key, status: Any, note: str, times: int) -> None:
        nonce = next(self.nonces).to_bytes(16, "big")
        outcome = b"stated" if status is Status.COMPLETED else None
        for _ in range(times):
            expected = self.model.resolve(key.digest, nonce, status.value, outcome, note, self.now)
            self.same(Resolve(key.digest, nonce, status, outcome, note), expected)

    @rule(limit=limits)
    def purge(self, limit: int) -> None:
        """Which of the expired go first is the store's own affair."""
        expired = self.model.expired(self.now)
        assert self.perform(Purge(limit)) == [Swept(min(limit, len(expired)))]
        gone = self.model.rows.keys() - {row["digest"] for row in self.stored()}
        assert gone <= expired
        for digest in gone:
            del self.model.rows[digest]

    @rule(limit=limits)
    def lapse(self, limit: int) -> None:
        lapsed = self.model.lapsed(self.now)
        assert self.perform(Lapse(limit)) == [Swept(min(limit, len(lapsed)))]
        marked = {row["digest"] for row in self.stored() if row["status"] == "in_doubt"} & lapsed
        assert len(marked) == min(limit, len(lapsed))
        for digest in marked:
            self.model.lapse(digest, self.now)

    @rule(key=keys, replays=st.integers(1, 5))
    def tally(self, key: Key, replays: int) -> None:
        self.same(Tally(key.digest, replays), self.model.tally(key.digest, replays, self.now))

    # ---------------------------------------------------------------- looking

    def stored(self, query: Query = Query(), limit: int = 100) -> list[dict[str, Any]]:  # noqa: B008 - frozen
        """Every record that the store lists, page by page."""
        found: list[dict[str, Any]] = []
        cursor = None
        while True:
            (page,) = self.perform(Scan(query, cursor, limit))
            assert isinstance(page, Page)
            assert len(page.records) <= limit
            found += map(row_of, page.records)
            cursor = page.cursor
            if cursor is None:
                return found

    @rule(key=keys)
    def read(self, key: Key) -> None:
        self.same(Read(key.digest, with_steps=True), ("found", self.model.rows.get(key.digest), self.now))

    @rule(
        limit=limits,
        status=st.none() | st.sampled_from(Status),
        operation=st.none() | st.just("charge"),
        business_key=st.none() | st.sampled_from(["b-1", "ü-2"]),
    )
    def scan(self, limit: int, status: Status | None, operation: str | None, business_key: str | None) -> None:
        query = Query(status=status, operation=operation, business_key=business_key)
        wanted = {"status": status and status.value, "operation": operation, "business_key": business_key}
        expected = self.model.listed(**{name: value for name, value in wanted.items() if value is not None})
        assert self.stored(query, limit) == expected

    @invariant()
    def the_records_are_the_same(self) -> None:
        assert self.stored() == self.model.listed()


def _reraised(error: Exception) -> bool:
    raise error


TestSqliteIsADictionary = SqliteIsADictionary.TestCase
TestSqliteIsADictionary.pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(7200 if os.environ.get("SEMEL_EFFORT") == "full" else 300),
]
