"""The lane behind a guard: who is refused, who is sent away from the queue, and who is never kept out."""

from collections.abc import Sequence
from typing import cast

import pytest

from semel.core.circuit import Breaker, Guard
from semel.core.operations import Complete, Found, Operation, Read, Recorded, Renew
from semel.core.store import Plan, Store
from semel.engine.lane import Lane, PendingOperation
from semel.errors import StoreUnavailable
from tests.unit.core.records import claim, granted, lease


class _Store:
    """As much of a store as a lane looks at."""

    name = "nowhere"
    max_operations = 2

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        raise NotImplementedError


class Guarded:
    """A lane whose guard gives up after one round without an answer, for one second."""

    def __init__(self, most_waiting: int = 100) -> None:
        self.now = 0.0
        breaker = Breaker(failures=1, rest=1.0, longest=4.0, chance=lambda: 1.0)
        self.guard = guard = Guard(breaker, lambda: self.now, name=_Store.name)
        self.lane = Lane(cast("Store", _Store()), guard, most_waiting)

    def submit(self, *operations: Operation) -> list[PendingOperation]:
        """Tickets for these operations, in the lane."""
        queued = [PendingOperation(operation) for operation in operations]
        for pending in queued:
            self.lane.submit(pending)
        return queued

    def fail(self) -> list[PendingOperation]:
        """A round without an answer; who is told."""
        flight = self.lane.next_flight()
        answered = self.lane.deliver(flight, [StoreUnavailable("It did not answer.")] * len(flight))
        self.lane.next_leader()
        return answered


def resting() -> Guarded:
    """A lane to a store that rests."""
    made = Guarded()
    made.submit(claim())
    made.fail()
    return made


def unasked(pending: PendingOperation) -> bool:
    return isinstance(pending.answer, StoreUnavailable) and not pending.answer.asked


def test_a_claim_is_answered_at_once_while_the_store_rests() -> None:
    made = resting()
    pending = PendingOperation(claim())
    assert not made.lane.submit(pending), "nobody has to lead for it"
    assert unasked(pending)
    assert made.lane.next_flight() == []


def test_a_completion_is_sent_while_the_store_rests() -> None:
    made = resting()
    pending = PendingOperation(Complete(lease(), b""))
    assert made.lane.submit(pending)
    assert made.lane.next_flight() == [[pending]]


def test_those_who_wait_are_sent_away_when_the_store_is_left_alone() -> None:
    made = Guarded()
    first, second, third, write, fourth = made.submit(claim(), claim(), claim(), Complete(lease(), b""), Read(b"1"))
    assert made.fail() == [first, second, third, fourth]
    assert [unasked(pending) for pending in (first, second, third, fourth)] == [False, False, True, True]
    assert made.lane.next_flight() == [[write]]


def test_whoever_is_gone_is_not_sent_away() -> None:
    made = Guarded()
    _, _, gone = made.submit(claim(), claim(), claim())
    made.lane.abandon(gone)
    made.fail()
    assert gone.answer is None
    assert made.lane.next_flight() == []


def test_a_caller_who_is_gone_is_no_try() -> None:
    made = resting()
    made.now = 1.0
    made.lane.submit(gone := PendingOperation(claim()))
    made.lane.abandon(gone)
    made.lane.deliver(made.lane.next_flight(), [])
    made.lane.next_leader()
    (pending,) = made.submit(claim())
    assert made.lane.next_flight() == [[pending]]


def test_a_claim_granted_to_nobody_is_given_back_to_a_store_that_rests() -> None:
    made = resting()
    made.now = 1.0
    wanted = claim()
    (pending,) = made.submit(wanted)
    flight = made.lane.next_flight()
    made.lane.abandon(pending)
    made.lane.deliver(flight, [[granted(wanted)]])
    assert len(made.lane.next_flight()) == 1


def test_a_claim_of_nobody_is_not_asked_again_of_a_store_that_rests() -> None:
    made = Guarded()
    (pending,) = made.submit(claim())
    flight = made.lane.next_flight()
    made.lane.abandon(pending)
    made.lane.deliver(flight, [StoreUnavailable("It did not answer.")])
    assert made.lane.next_flight() == []


def test_a_round_that_was_cut_short_says_nothing_of_the_store() -> None:
    made = Guarded()
    (pending,) = made.submit(claim())
    assert made.lane.deliver(made.lane.next_flight(), None) == [pending]
    with pytest.raises(StoreUnavailable, match="interrupted before the store answered"):
        pending.result()
    assert not made.guard.take_events()


def test_changes_are_told_once() -> None:
    made = resting()
    assert made.guard.take_events() == ["store_open"]
    assert not made.guard.take_events()
    made.submit(Renew(lease(), 1))
    made.lane.deliver(made.lane.next_flight(), [[Recorded(1)]])
    assert made.guard.take_events() == ["store_closed"]


@pytest.mark.parametrize("operation", [claim(), Read(b"1")], ids=["claim", "read"])
def test_what_comes_to_a_full_lane_is_refused_and_told_why(operation: Operation) -> None:
    made = Guarded(most_waiting=2)
    made.submit(Read(b"1"), Read(b"2"))
    (pending,) = made.submit(operation)
    assert unasked(pending)
    with pytest.raises(StoreUnavailable, match=r"2 operations of this process wait for nowhere already.*nothing ran"):
        pending.result()


def test_what_belongs_to_a_run_joins_a_full_lane() -> None:
    made = Guarded(most_waiting=1)
    made.submit(Read(b"1"))
    (pending,) = made.submit(Complete(lease(), b""))
    assert pending.answer is None


def test_a_lane_has_room_again_once_a_round_is_on_its_way() -> None:
    made = Guarded(most_waiting=2)
    made.submit(Read(b"1"), Read(b"2"))
    flight = made.lane.next_flight()
    (pending,) = made.submit(Read(b"3"))
    assert pending.answer is None
    made.lane.deliver(flight, [[Found(None, 0)] * 2])
    assert made.lane.next_flight() == [[pending]]
