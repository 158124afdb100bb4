"""Waiting as a state machine: one heir per key, everybody woken at the end, and never a storm of reads."""

import itertools
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from semel.core.circuit import Limits
from semel.core.operations import Found, Read
from semel.core.record import Status, StoredRecord
from semel.engine.background import (
    BETWEEN_LOOKS,
    FIRST_LOOK,
    JITTER,
    Crowded,
    Ended,
    Promoted,
    TimedOut,
    Waiter,
    Waiting,
)
from semel.errors import StoreUnavailable
from tests.unit.core.effort import fewer
from tests.unit.core.records import record, running

KEY, OTHER = b"key", b"other"
GONE = StoreUnavailable("The store did not answer; nothing ran.")


def waiting(*, jitter: float = 0.0) -> Waiting:
    """Waiters of a process whose dice always fall the same way."""
    return Waiting(lambda: jitter)


def looked(machine: Waiting, found: StoredRecord | None, digest: bytes = KEY, now_us: int = 60) -> list[Waiter]:
    """Who has news after the store said this."""
    return machine.looked(Read(digest), Found(found, now_us))


def test_nobody_waiting_is_nothing_to_do() -> None:
    machine = waiting()
    assert machine.due() is None
    assert machine.look(0.0) == ([], [])


def test_the_first_look_comes_soon() -> None:
    machine = waiting()
    machine.join(KEY, until=10.0, now=1.0)
    assert machine.due() == 1.0 + FIRST_LOOK
    assert machine.look(1.0) == ([], [])
    assert machine.look(1.0 + FIRST_LOOK) == ([], [Read(KEY, waits=True)])


def test_however_many_wait_a_key_is_read_once() -> None:
    machine = waiting()
    for _ in range(100):
        machine.join(KEY, until=10.0, now=0.0)
        machine.join(OTHER, until=10.0, now=0.0)
    _, reads = machine.look(1.0)
    assert sorted(read.digest for read in reads) == [KEY, OTHER]


def test_who_was_promoted_and_did_not_get_the_key_waits_again_however_full_it_is() -> None:
    machine = Waiting(lambda: 0.0, Limits(waiters=2, waiters_per_key=2))
    first, _ = (machine.join(KEY, until=10.0, now=0.0) for _ in range(2))
    assert looked(machine, None) == [first]
    machine.join(KEY, until=10.0, now=1.0)  # takes the place that became free
    assert machine.join(KEY, until=10.0, now=1.0, last=first).news is None
    assert machine.join(KEY, until=10.0, now=1.0).news == Crowded(whole_process=True)


def test_who_cannot_wait_leaves_nothing_to_do() -> None:
    machine = Waiting(lambda: 0.0, Limits(waiters_per_key=1))
    waiter = machine.join(KEY, until=10.0, now=0.0)
    assert machine.join(KEY, until=1.0, now=0.0).news == Crowded(whole_process=False)
    machine.leave(waiter)
    assert machine.due() is None


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
def test_there_are_at_most_five_looks_a_second(jitter: float) -> None:
    machine = waiting(jitter=jitter)
    machine.join(KEY, until=100.0, now=0.0)
    looks = []
    while (now := machine.due()) is not None and now < 10.0:
        looks.append(now)
        assert machine.look(now)[1] == [Read(KEY, waits=True)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert all(gap == pytest.approx(BETWEEN_LOOKS + JITTER * jitter) for gap in gaps)
    assert len(looks) <= 51


def test_leaving_and_coming_again_does_not_make_looks_more_frequent() -> None:
    machine = waiting()
    looks, now = 0, 0.0
    while now < 2.0:
        waiter = machine.join(KEY, until=100.0, now=now)
        now += FIRST_LOOK
        looks += len(machine.look(now)[1])
        machine.leave(waiter)
    assert looks <= 2.0 / BETWEEN_LOOKS + 1


def test_whoever_waited_long_enough_is_told_and_forgotten() -> None:
    machine = waiting()
    short, long = machine.join(KEY, until=1.0, now=0.0), machine.join(KEY, until=2.0, now=0.0)
    late, _ = machine.look(1.0)
    assert late == [short]
    assert isinstance(short.news, TimedOut)
    assert long.news is None
    assert machine.look(1.0)[0] == []


def test_the_end_of_a_wait_is_due_between_looks() -> None:
    machine = waiting()
    machine.join(KEY, until=0.01, now=0.0)
    assert machine.due() == 0.01


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
def test_an_answer_wakes_everybody(status: Status) -> None:
    machine = waiting()
    waiters = [machine.join(KEY, until=10.0, now=0.0) for _ in range(3)]
    bystander = machine.join(OTHER, until=10.0, now=0.0)
    found = record(status=status)
    assert looked(machine, found) == waiters
    assert [waiter.news for waiter in waiters] == [Ended(found)] * 3
    assert bystander.news is None


def test_a_live_owner_wakes_nobody() -> None:
    machine = waiting()
    machine.join(KEY, until=10.0, now=0.0)
    assert looked(machine, running(lease_us=61)) == []


@pytest.mark.parametrize(
    "found",
    [
        None,
        running(lease_us=60),
        record(status=Status.FAILED, retryable=True),
        record(status=Status.IN_DOUBT),
        record(expires_us=60),
    ],
    ids=["absent", "lapsed", "retryable", "in doubt", "expired"],
)
def test_when_the_owner_is_gone_exactly_one_is_promoted(found: StoredRecord | None) -> None:
    machine = waiting()
    first, second = (machine.join(KEY, until=10.0, now=0.0) for _ in range(2))
    assert looked(machine, found) == [first]
    assert isinstance(first.news, Promoted)
    assert looked(machine, found) == []
    assert second.news is None


def test_the_next_is_promoted_when_the_heir_is_done() -> None:
    machine = waiting()
    first, second = (machine.join(KEY, until=10.0, now=0.0) for _ in range(2))
    looked(machine, None)
    assert machine.done(KEY, first)
    assert machine.due() == float("-inf")
    assert machine.look(0.0) == ([], [Read(KEY, waits=True)])
    assert looked(machine, None) == [second]


def test_the_next_is_promoted_when_the_heir_has_to_wait_again() -> None:
    machine = waiting()
    first, second = (machine.join(KEY, until=10.0, now=0.0) for _ in range(2))
    looked(machine, None)
    machine.join(KEY, until=10.0, now=0.0, last=first)
    assert looked(machine, None) == [second]


def test_only_the_heir_ends_its_own_turn() -> None:
    machine = waiting()
    first, second = (machine.join(KEY, until=10.0, now=0.0) for _ in range(2))
    looked(machine, None)
    machine.done(KEY, None)
    machine.done(KEY, second)
    machine.done(OTHER, first)
    assert looked(machine, None) == []


def test_an_answer_reaches_the_others_while_an_heir_is_at_work() -> None:
    machine = waiting()
    _, second = (machine.join(KEY, until=10.0, now=0.0) for _ in range(2))
    looked(machine, None)
    assert looked(machine, record()) == [second]


def test_a_call_that_ends_here_is_looked_at_at_once() -> None:
    machine = waiting()
    machine.join(KEY, until=10.0, now=0.0)
    machine.join(OTHER, until=10.0, now=0.0)
    assert machine.done(KEY, None)
    assert machine.look(0.0) == ([], [Read(KEY, waits=True)])
    assert machine.look(0.0) == ([], [])


def test_a_call_that_ends_with_nobody_waiting_rouses_nobody() -> None:
    assert not waiting().done(KEY, None)


def test_a_store_that_does_not_answer_changes_nothing() -> None:
    machine = waiting()
    waiter = machine.join(KEY, until=10.0, now=0.0)
    assert machine.looked(Read(KEY), GONE) == []
    assert waiter.news is None
    assert machine.due() is not None


def test_whoever_left_gets_no_news() -> None:
    machine = waiting()
    waiter = machine.join(KEY, until=10.0, now=0.0)
    machine.leave(waiter)
    machine.leave(waiter)
    assert looked(machine, record()) == []
    assert machine.due() is None


class WaitingMachine(RuleBasedStateMachine):
    """Callers of one process and two keys, over a store whose records come and go."""

    @initialize(jitter=st.floats(0.0, 1.0))
    def begin(self, jitter: float) -> None:
        self.machine = waiting(jitter=jitter)
        self.now = 0.0
        self.here: list[Waiter] = []
        self.heirs: dict[bytes, Waiter] = {}
        self.polls: list[float] = []
        self.found: dict[bytes, StoredRecord | None] = {KEY: running(), OTHER: running()}

    @rule(digest=st.sampled_from([KEY, OTHER]), patience=st.floats(0.0, 2.0))
    def join(self, digest: bytes, patience: float) -> None:
        self.here.append(self.machine.join(digest, self.now + patience, self.now))

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(self.here))
        self.here.remove(waiter)
        self.machine.leave(waiter)
        self.machine.done(waiter.digest, waiter)

    @precondition(lambda self: self.heirs)
    @rule(data=st.data())
    def heir_ends(self, data: st.DataObject) -> None:
        digest = data.draw(st.sampled_from(sorted(self.heirs)))
        self.machine.done(digest, self.heirs.pop(digest))

    @precondition(lambda self: self.heirs)
    @rule(data=st.data(), patience=st.floats(0.0, 2.0))
    def heir_waits_again(self, data: st.DataObject, patience: float) -> None:
        digest = data.draw(st.sampled_from(sorted(self.heirs)))
        last = self.heirs.pop(digest)
        self.here.append(self.machine.join(digest, self.now + patience, self.now, None, last))

    @rule(
        digest=st.sampled_from([KEY, OTHER]),
        found=st.sampled_from([None, running(), running(lease_us=0), record(), record(status=Status.IN_DOUBT)]),
    )
    def store_changes(self, digest: bytes, found: StoredRecord | None) -> None:
        self.found[digest] = found

    @rule(seconds=st.floats(0.0, 0.5))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(answers=st.booleans())
    def keeper_looks(self, answers: bool) -> None:
        nudged = self.machine.due() == float("-inf")
        late, reads = self.machine.look(self.now)
        if reads and not nudged:
            self.polls.append(self.now)
        assert len({read.digest for read in reads}) == len(reads)
        for waiter in late:
            assert waiter.until <= self.now
            self._gone(waiter, TimedOut)
        for read in reads:
            self._looked(read, answers)

    def _looked(self, read: Read, answers: bool) -> None:
        waiting_here = [waiter for waiter in self.here if waiter.digest == read.digest]
        found = self.found[read.digest]
        told = self.machine.looked(read, Found(found, 60) if answers else GONE)
        if answers and found is not None and found.final:
            assert told == waiting_here, "everybody is woken by an answer"
        else:
            assert len(told) <= 1
        for waiter in told:
            if isinstance(waiter.news, Promoted):
                assert read.digest not in self.heirs, "one heir at a time"
                self.heirs[read.digest] = waiter
            self._gone(waiter, Promoted, Ended)

    def _gone(self, waiter: Waiter, *news: type[Any]) -> None:
        assert isinstance(waiter.news, news)
        self.here.remove(waiter)

    @invariant()
    def whoever_waits_will_be_looked_at(self) -> None:
        if hasattr(self, "machine"):
            due = self.machine.due()
            assert (due is not None) == bool(self.here)
            assert due is None or due <= min(waiter.until for waiter in self.here)

    @invariant()
    def polls_are_rare(self) -> None:
        polls = getattr(self, "polls", [])
        assert all(later - earlier >= BETWEEN_LOOKS - 1e-9 for earlier, later in itertools.pairwise(polls))

    def teardown(self) -> None:
        if not hasattr(self, "machine"):
            return
        self.now += 10.0
        late, _ = self.machine.look(self.now)
        assert sorted(map(id, late)) == sorted(map(id, self.here)), "nobody is forgotten"
        assert self.machine.due() is None


TestWaiting = WaitingMachine.TestCase
TestWaiting.settings = fewer(2, stateful_step_count=40)
