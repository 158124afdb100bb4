"""The lane behind a guard: who is refused, who is sent away from the queue, and who is never kept out."""

from collections.abc import Sequence
from typing import cast

import pytest

from semel.core.circuit import Breaker, Guard
from semel.core.operations import Complete, Found, Operation, Read, Recorded, Renew
from semel.core.store import Plan, Store
from semel.engine.lane import Lane, Ticket
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

    def submit(self, *operations: Operation) -> list[Ticket]:
        """Tickets for these operations, in the lane."""
        tickets = [Ticket(operation) for operation in operations]
        for ticket in tickets:
            self.lane.submit(ticket)
        return tickets

    def fail(self) -> list[Ticket]:
        """A round without an answer; who is told."""
        round_ = self.lane.take()
        answered = self.lane.settle(round_, [StoreUnavailable("It did not answer.")] * len(round_))
        self.lane.hand_over()
        return answered


def resting() -> Guarded:
    """A lane to a store that rests."""
    made = Guarded()
    made.submit(claim())
    made.fail()
    return made


def unasked(ticket: Ticket) -> bool:
    return isinstance(ticket.answer, StoreUnavailable) and not ticket.answer.asked


def test_a_claim_is_answered_at_once_while_the_store_rests() -> None:
    made = resting()
    ticket = Ticket(claim())
    assert not made.lane.submit(ticket), "nobody has to lead for it"
    assert unasked(ticket)
    assert made.lane.take() == []


def test_a_completion_is_sent_while_the_store_rests() -> None:
    made = resting()
    ticket = Ticket(Complete(lease(), b""))
    assert made.lane.submit(ticket)
    assert made.lane.take() == [[ticket]]


def test_those_who_wait_are_sent_away_when_the_store_is_left_alone() -> None:
    made = Guarded()
    first, second, third, write, fourth = made.submit(claim(), claim(), claim(), Complete(lease(), b""), Read(b"1"))
    assert made.fail() == [first, second, third, fourth]
    assert [unasked(ticket) for ticket in (first, second, third, fourth)] == [False, False, True, True]
    assert made.lane.take() == [[write]]


def test_whoever_is_gone_is_not_sent_away() -> None:
    made = Guarded()
    _, _, gone = made.submit(claim(), claim(), claim())
    made.lane.abandon(gone)
    made.fail()
    assert gone.answer is None
    assert made.lane.take() == []


def test_a_caller_who_is_gone_is_no_try() -> None:
    made = resting()
    made.now = 1.0
    made.lane.submit(gone := Ticket(claim()))
    made.lane.abandon(gone)
    made.lane.settle(made.lane.take(), [])
    made.lane.hand_over()
    (ticket,) = made.submit(claim())
    assert made.lane.take() == [[ticket]]


def test_a_claim_granted_to_nobody_is_given_back_to_a_store_that_rests() -> None:
    made = resting()
    made.now = 1.0
    wanted = claim()
    (ticket,) = made.submit(wanted)
    round_ = made.lane.take()
    made.lane.abandon(ticket)
    made.lane.settle(round_, [[granted(wanted)]])
    assert len(made.lane.take()) == 1


def test_a_claim_of_nobody_is_not_asked_again_of_a_store_that_rests() -> None:
    made = Guarded()
    (ticket,) = made.submit(claim())
    round_ = made.lane.take()
    made.lane.abandon(ticket)
    made.lane.settle(round_, [StoreUnavailable("It did not answer.")])
    assert made.lane.take() == []


def test_a_round_that_was_cut_short_says_nothing_of_the_store() -> None:
    made = Guarded()
    (ticket,) = made.submit(claim())
    assert made.lane.settle(made.lane.take(), None) == [ticket]
    with pytest.raises(StoreUnavailable, match="interrupted before the store answered"):
        ticket.result()
    assert not made.guard.take_events()


def test_changes_are_told_once() -> None:
    made = resting()
    assert made.guard.take_events() == ["store_open"]
    assert not made.guard.take_events()
    made.submit(Renew(lease(), 1))
    made.lane.settle(made.lane.take(), [[Recorded(1)]])
    assert made.guard.take_events() == ["store_closed"]


@pytest.mark.parametrize("operation", [claim(), Read(b"1")], ids=["claim", "read"])
def test_what_comes_to_a_full_lane_is_refused_and_told_why(operation: Operation) -> None:
    made = Guarded(most_waiting=2)
    made.submit(Read(b"1"), Read(b"2"))
    (ticket,) = made.submit(operation)
    assert unasked(ticket)
    with pytest.raises(StoreUnavailable, match=r"2 operations of this process wait for nowhere already.*nothing ran"):
        ticket.result()


def test_what_belongs_to_a_run_joins_a_full_lane() -> None:
    made = Guarded(most_waiting=1)
    made.submit(Read(b"1"))
    (ticket,) = made.submit(Complete(lease(), b""))
    assert ticket.answer is None


def test_a_lane_has_room_again_once_a_round_is_on_its_way() -> None:
    made = Guarded(most_waiting=2)
    made.submit(Read(b"1"), Read(b"2"))
    round_ = made.lane.take()
    (ticket,) = made.submit(Read(b"3"))
    assert ticket.answer is None
    made.lane.settle(round_, [[Found(None, 0)] * 2])
    assert made.lane.take() == [[ticket]]
