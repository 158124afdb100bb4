"""The lane as a state machine: one round at a time, every ticket answered once, and no claim without an owner."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from semel.core.operations import (
    Answer,
    Claim,
    Complete,
    Fail,
    Found,
    Lost,
    Operation,
    Query,
    Read,
    Recorded,
    Replay,
    Running,
    Scan,
)
from semel.core.store import Answers, AsyncDriver, AsyncJoined, Driver, Joined, Plan
from semel.engine.lane import Lane, Round, Ticket
from semel.errors import StoreUnavailable
from tests.unit.core.effort import fewer
from tests.unit.core.records import claim, granted, lease, record


class _Store:
    """As much of a store as a lane looks at."""

    name = "nowhere"

    def __init__(self, batch: int) -> None:
        self.max_operations = batch
        self.planned: list[list[Operation]] = []

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        assert not joined
        self.planned.append(list(operations))
        return _empty()

    def driver(self) -> Driver:
        raise NotImplementedError

    def async_driver(self) -> AsyncDriver:
        raise NotImplementedError

    def join(self, connection: Any) -> Joined:
        raise NotImplementedError

    def async_join(self, connection: Any) -> AsyncJoined:
        raise NotImplementedError


def _empty() -> Plan:
    yield from ()
    return []


def _lost() -> StoreUnavailable:
    return StoreUnavailable("The store did not answer; nothing ran.")


DROPPABLE = (Claim, Read, Scan)


class LaneMachine(RuleBasedStateMachine):
    """Callers come, wait, and are cancelled; whoever leads sends rounds and hands over, as the shells do."""

    @initialize(batch=st.integers(1, 4))
    def begin(self, batch: int) -> None:
        self.store = _Store(batch)
        self.lane = Lane(self.store)
        self.leading = False
        self.round: Round | None = None
        self.count = 0
        self.callers: list[Ticket] = []
        self.submitted: list[Ticket] = []
        self.sent: list[Ticket] = []
        self.grants: dict[bytes, Ticket] = {}

    @rule(kind=st.sampled_from(["claim", "claim", "read", "scan", "complete"]))
    def submit(self, kind: str) -> None:
        self.count += 1
        nonce = b"%d" % self.count
        made: dict[str, Operation] = {
            "claim": claim(nonce=nonce),
            "read": Read(nonce),
            "scan": Scan(Query(), None, 1),
            "complete": Complete(lease(nonce), b""),
        }
        ticket = Ticket(made[kind])
        self.callers.append(ticket)
        self.submitted.append(ticket)
        must_lead = self.lane.submit(ticket)
        assert must_lead != self.leading, "exactly one has to lead"
        self.leading = True

    @precondition(lambda self: self.leading and self.round is None)
    @rule()
    def send(self) -> None:
        self.round = self.lane.take()
        kinds = [{type(ticket.operation) for ticket in list_} for list_ in self.round]
        assert all(len(kind) == 1 for kind in kinds)
        assert len(kinds) == len({kind for kinds_ in kinds for kind in kinds_})
        assert sum(map(len, self.round)) <= self.store.max_operations
        plans = self.lane.plans(self.round)
        assert len(plans) == len(self.round)
        for list_ in self.round:
            self.sent += list_

    @precondition(lambda self: self.round is not None)
    @rule(data=st.data())
    def reply(self, data: st.DataObject) -> None:
        assert self.round is not None
        waiting = [ticket for list_ in self.round for ticket in list_ if not ticket.abandoned]
        replies = [self._reply(list_, data) for list_ in self.round]
        answered = self.lane.settle(self.round, replies)
        assert answered == waiting, "whoever still waits is answered, and nobody else"
        self.round = None
        self._hand_over()

    def _reply(self, list_: list[Ticket], data: st.DataObject) -> Answers | Exception:
        if data.draw(st.booleans(), label="the whole list fails") and data.draw(st.booleans()):
            return _lost()
        return [self._answer(ticket, data) for ticket in list_]

    def _answer(self, ticket: Ticket, data: st.DataObject) -> Answer | Exception:
        match ticket.operation:
            case Claim() as wanted:
                choices: list[Answer | Exception] = [granted(wanted), Running(5), Replay(record()), _lost()]
                answer = data.draw(st.sampled_from(choices))
                if answer is choices[0]:
                    self.grants[wanted.nonce] = ticket
                return answer
            case Read() | Scan():
                return Found(None, 0)
            case _:
                written: list[Answer | Exception] = [Recorded(1), Lost(), _lost()]
                return data.draw(st.sampled_from(written))

    def _hand_over(self) -> None:
        heir = self.lane.hand_over()
        assert (heir is None) == (not self.lane._waiting)
        if heir is not None and not heir.abandoned:
            assert heir.leads
            assert heir.answer is None
        self.leading = heir is not None

    @precondition(lambda self: self.callers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.callers))
        self.callers.remove(ticket)
        self.lane.abandon(ticket)
        if data.draw(st.booleans()):
            self.lane.abandon(ticket)  # a shell that is interrupted twice
        if self.lane.idle():
            assert not self.leading
            self.leading = True

    @rule()
    def collect(self) -> None:
        """Whoever has an answer goes home with it and can no longer be cancelled."""
        self.callers = [ticket for ticket in self.callers if ticket.answer is None]

    @invariant()
    def every_ticket_is_sent_at_most_once(self) -> None:
        assert max(Counter(map(id, getattr(self, "sent", []))).values(), default=1) == 1

    @invariant()
    def nothing_waits_without_a_leader(self) -> None:
        if hasattr(self, "lane"):
            assert self.leading or not self.lane._waiting

    @invariant()
    def a_grant_is_given_back_exactly_when_its_caller_is_gone(self) -> None:
        if not hasattr(self, "lane"):
            return
        undoing = [*self.sent, *self.lane._waiting]
        given_back = Counter(t.operation.lease.nonce for t in undoing if isinstance(t.operation, Fail))
        assert given_back == Counter(nonce for nonce, ticket in self.grants.items() if ticket.abandoned)

    def teardown(self) -> None:
        if not hasattr(self, "lane"):
            return
        while self.leading:
            if self.round is None:
                self.round = self.lane.take()
                self.sent += [ticket for list_ in self.round for ticket in list_]
            self.lane.settle(self.round, [[Recorded(1)] * len(list_) for list_ in self.round])
            self.round = None
            self._hand_over()
        assert not self.lane._waiting
        for ticket in self.submitted:
            dropped = ticket.abandoned and isinstance(ticket.operation, DROPPABLE)
            assert (ticket in self.sent and ticket.answer is not None) or (dropped and ticket.answer is None)


TestLane = LaneMachine.TestCase
TestLane.settings = fewer(2, stateful_step_count=40)


def _lane(batch: int = 64) -> Lane:
    return Lane(_Store(batch))


def test_a_lone_ticket_goes_at_once() -> None:
    lane = _lane()
    ticket = Ticket(Read(b"1"))
    assert lane.submit(ticket)
    assert lane.take() == [[ticket]]


def test_tickets_that_come_meanwhile_go_together_by_kind_and_in_order() -> None:
    lane = _lane()
    tickets = [Ticket(Read(b"1")), Ticket(claim()), Ticket(Read(b"2"))]
    assert [lane.submit(ticket) for ticket in tickets] == [True, False, False]
    assert lane.take() == [[tickets[0], tickets[2]], [tickets[1]]]


def test_a_round_is_never_larger_than_the_store_takes() -> None:
    lane = _lane(batch=2)
    tickets = [Ticket(Read(b"%d" % number)) for number in range(5)]
    for ticket in tickets:
        lane.submit(ticket)
    assert [lane.take(), lane.take(), lane.take(), lane.take()] == [[tickets[:2]], [tickets[2:4]], [tickets[4:]], []]


def test_dropped_tickets_take_no_room() -> None:
    lane = _lane(batch=1)
    gone, here = Ticket(Read(b"1")), Ticket(Read(b"2"))
    lane.submit(gone)
    lane.submit(here)
    lane.abandon(gone)
    assert lane.take() == [[here]]


def test_a_write_is_sent_although_its_caller_is_gone() -> None:
    lane = _lane()
    ticket = Ticket(Complete(lease(), b""))
    lane.submit(ticket)
    lane.abandon(ticket)
    assert lane.take() == [[ticket]]


def test_an_error_is_raised_for_its_ticket_alone() -> None:
    lane = _lane()
    lost, found = Ticket(Read(b"1")), Ticket(Read(b"2"))
    lane.submit(lost)
    lane.submit(found)
    lane.settle(lane.take(), [[_lost(), Found(None, 7)]])
    assert found.result() == Found(None, 7)
    with pytest.raises(StoreUnavailable):
        lost.result()


@pytest.mark.parametrize("when", ["before sending", "on its way", "after the answer"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_grant_for_nobody_is_given_back_once(when: str, times: int) -> None:
    lane = _lane()
    wanted = claim()
    first, ticket = Ticket(Read(b"1")), Ticket(wanted)
    lane.submit(first)
    lane.submit(ticket)
    if when == "before sending":
        for _ in range(times):
            lane.abandon(ticket)
        assert lane.take() == [[first]]
        return
    round_ = lane.take()
    if when == "on its way":
        for _ in range(times):
            lane.abandon(ticket)
    lane.settle(round_, [[Found(None, 0)], [granted(wanted)]])
    if when == "after the answer":
        for _ in range(times):
            lane.abandon(ticket)
    assert [type(ticket.operation) for list_ in lane.take() for ticket in list_] == [Fail]


@pytest.mark.parametrize("when", ["on its way", "after the answer"])
def test_a_claim_of_nobody_whose_reply_was_lost_is_asked_again_and_given_back(when: str) -> None:
    lane = _lane()
    wanted = claim()
    ticket = Ticket(wanted)
    lane.submit(ticket)
    round_ = lane.take()
    if when == "on its way":
        lane.abandon(ticket)
    lane.settle(round_, [_lost()])
    lane.abandon(ticket)
    again = lane.take()
    assert [ticket.operation for list_ in again for ticket in list_] == [wanted]
    lane.settle(again, [[granted(wanted)]])
    assert [type(ticket.operation) for list_ in lane.take() for ticket in list_] == [Fail]


def test_a_claim_of_nobody_is_asked_again_once_alone() -> None:
    lane = _lane()
    ticket = Ticket(claim())
    lane.submit(ticket)
    round_ = lane.take()
    lane.abandon(ticket)
    lane.settle(round_, None)
    lane.settle(lane.take(), [_lost()])
    assert lane.take() == []


def test_a_claim_of_nobody_that_met_a_conflict_is_not_asked_again() -> None:
    lane = _lane()
    ticket = Ticket(claim())
    lane.submit(ticket)
    round_ = lane.take()
    lane.abandon(ticket)
    lane.settle(round_, [[StoreUnavailable("Somebody was in the way; nothing ran.", conflict=True)]])
    assert lane.take() == []


def test_whoever_leads_goes_on_while_only_give_backs_are_left() -> None:
    lane = _lane()
    wanted = claim()
    ticket = Ticket(wanted)
    lane.submit(ticket)
    round_ = lane.take()
    lane.abandon(ticket)
    lane.settle(round_, [[granted(wanted)]])
    heir = lane.hand_over()
    assert heir is not None
    assert heir.abandoned
    lane.settle(lane.take(), [[Recorded(1)]])
    assert lane.hand_over() is None


def test_an_idle_lane_with_a_give_back_asks_for_a_leader_once() -> None:
    lane = _lane()
    wanted = claim()
    ticket = Ticket(wanted)
    lane.submit(ticket)
    lane.settle(lane.take(), [[granted(wanted)]])
    assert lane.hand_over() is None
    assert not lane.idle()
    lane.abandon(ticket)
    assert [lane.idle(), lane.idle()] == [True, False]
