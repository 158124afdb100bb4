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
from semel.engine.lane import Flight, Lane, PendingOperation
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
        self.flight: Flight | None = None
        self.count = 0
        self.callers: list[PendingOperation] = []
        self.submitted: list[PendingOperation] = []
        self.sent: list[PendingOperation] = []
        self.grants: dict[bytes, PendingOperation] = {}

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
        pending = PendingOperation(made[kind])
        self.callers.append(pending)
        self.submitted.append(pending)
        must_lead = self.lane.submit(pending)
        assert must_lead != self.leading, "exactly one has to lead"
        self.leading = True

    @precondition(lambda self: self.leading and self.flight is None)
    @rule()
    def send(self) -> None:
        self.flight = self.lane.next_flight()
        kinds = [{type(pending.operation) for pending in list_} for list_ in self.flight]
        assert all(len(kind) == 1 for kind in kinds)
        assert len(kinds) == len({kind for kinds_ in kinds for kind in kinds_})
        assert sum(map(len, self.flight)) <= self.store.max_operations
        plans = self.lane.make_plans(self.flight)
        assert len(plans) == len(self.flight)
        for list_ in self.flight:
            self.sent += list_

    @precondition(lambda self: self.flight is not None)
    @rule(data=st.data())
    def reply(self, data: st.DataObject) -> None:
        assert self.flight is not None
        waiting = [pending for list_ in self.flight for pending in list_ if not pending.abandoned]
        replies = [self._reply(list_, data) for list_ in self.flight]
        answered = self.lane.deliver(self.flight, replies)
        assert answered == waiting, "whoever still waits is answered, and nobody else"
        self.flight = None
        self._hand_over()

    def _reply(self, list_: list[PendingOperation], data: st.DataObject) -> Answers | Exception:
        if data.draw(st.booleans(), label="the whole list fails") and data.draw(st.booleans()):
            return _lost()
        return [self._answer(pending, data) for pending in list_]

    def _answer(self, pending: PendingOperation, data: st.DataObject) -> Answer | Exception:
        match pending.operation:
            case Claim() as wanted:
                choices: list[Answer | Exception] = [granted(wanted), Running(5), Replay(record()), _lost()]
                answer = data.draw(st.sampled_from(choices))
                if answer is choices[0]:
                    self.grants[wanted.nonce] = pending
                return answer
            case Read() | Scan():
                return Found(None, 0)
            case _:
                written: list[Answer | Exception] = [Recorded(1), Lost(), _lost()]
                return data.draw(st.sampled_from(written))

    def _hand_over(self) -> None:
        heir = self.lane.next_leader()
        assert (heir is None) == (not self.lane._waiting)
        if heir is not None and not heir.abandoned:
            assert heir.leads
            assert heir.answer is None
        self.leading = heir is not None

    @precondition(lambda self: self.callers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        pending = data.draw(st.sampled_from(self.callers))
        self.callers.remove(pending)
        self.lane.abandon(pending)
        if data.draw(st.booleans()):
            self.lane.abandon(pending)  # a shell that is interrupted twice
        if self.lane.claim_lead():
            assert not self.leading
            self.leading = True

    @rule()
    def collect(self) -> None:
        """Whoever has an answer goes home with it and can no longer be cancelled."""
        self.callers = [pending for pending in self.callers if pending.answer is None]

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
        assert given_back == Counter(nonce for nonce, pending in self.grants.items() if pending.abandoned)

    def teardown(self) -> None:
        if not hasattr(self, "lane"):
            return
        while self.leading:
            if self.flight is None:
                self.flight = self.lane.next_flight()
                self.sent += [pending for list_ in self.flight for pending in list_]
            self.lane.deliver(self.flight, [[Recorded(1)] * len(list_) for list_ in self.flight])
            self.flight = None
            self._hand_over()
        assert not self.lane._waiting
        for pending in self.submitted:
            dropped = pending.abandoned and isinstance(pending.operation, DROPPABLE)
            assert (pending in self.sent and pending.answer is not None) or (dropped and pending.answer is None)


TestLane = LaneMachine.TestCase
TestLane.settings = fewer(2, stateful_step_count=40)


def _lane(batch: int = 64) -> Lane:
    return Lane(_Store(batch))


def test_a_lone_ticket_goes_at_once() -> None:
    lane = _lane()
    pending = PendingOperation(Read(b"1"))
    assert lane.submit(pending)
    assert lane.next_flight() == [[pending]]


def test_tickets_that_come_meanwhile_go_together_by_kind_and_in_order() -> None:
    lane = _lane()
    queued = [PendingOperation(Read(b"1")), PendingOperation(claim()), PendingOperation(Read(b"2"))]
    assert [lane.submit(pending) for pending in queued] == [True, False, False]
    assert lane.next_flight() == [[queued[0], queued[2]], [queued[1]]]


def test_a_round_is_never_larger_than_the_store_takes() -> None:
    lane = _lane(batch=2)
    queued = [PendingOperation(Read(b"%d" % number)) for number in range(5)]
    for pending in queued:
        lane.submit(pending)
    assert [lane.next_flight(), lane.next_flight(), lane.next_flight(), lane.next_flight()] == [
        [queued[:2]],
        [queued[2:4]],
        [queued[4:]],
        [],
    ]


def test_dropped_tickets_take_no_room() -> None:
    lane = _lane(batch=1)
    gone, here = PendingOperation(Read(b"1")), PendingOperation(Read(b"2"))
    lane.submit(gone)
    lane.submit(here)
    lane.abandon(gone)
    assert lane.next_flight() == [[here]]


def test_a_write_is_sent_although_its_caller_is_gone() -> None:
    lane = _lane()
    pending = PendingOperation(Complete(lease(), b""))
    lane.submit(pending)
    lane.abandon(pending)
    assert lane.next_flight() == [[pending]]


def test_an_error_is_raised_for_its_ticket_alone() -> None:
    lane = _lane()
    lost, found = PendingOperation(Read(b"1")), PendingOperation(Read(b"2"))
    lane.submit(lost)
    lane.submit(found)
    lane.deliver(lane.next_flight(), [[_lost(), Found(None, 7)]])
    assert found.result() == Found(None, 7)
    with pytest.raises(StoreUnavailable):
        lost.result()


@pytest.mark.parametrize("when", ["before sending", "on its way", "after the answer"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_grant_for_nobody_is_given_back_once(when: str, times: int) -> None:
    lane = _lane()
    wanted = claim()
    first, pending = PendingOperation(Read(b"1")), PendingOperation(wanted)
    lane.submit(first)
    lane.submit(pending)
    if when == "before sending":
        for _ in range(times):
            lane.abandon(pending)
        assert lane.next_flight() == [[first]]
        return
    flight = lane.next_flight()
    if when == "on its way":
        for _ in range(times):
            lane.abandon(pending)
    lane.deliver(flight, [[Found(None, 0)], [granted(wanted)]])
    if when == "after the answer":
        for _ in range(times):
            lane.abandon(pending)
    assert [type(pending.operation) for list_ in lane.next_flight() for pending in list_] == [Fail]


@pytest.mark.parametrize("when", ["on its way", "after the answer"])
def test_a_claim_of_nobody_whose_reply_was_lost_is_asked_again_and_given_back(when: str) -> None:
    lane = _lane()
    wanted = claim()
    pending = PendingOperation(wanted)
    lane.submit(pending)
    flight = lane.next_flight()
    if when == "on its way":
        lane.abandon(pending)
    lane.deliver(flight, [_lost()])
    lane.abandon(pending)
    again = lane.next_flight()
    assert [pending.operation for list_ in again for pending in list_] == [wanted]
    lane.deliver(again, [[granted(wanted)]])
    assert [type(pending.operation) for list_ in lane.next_flight() for pending in list_] == [Fail]


def test_a_claim_of_nobody_is_asked_again_once_alone() -> None:
    lane = _lane()
    pending = PendingOperation(claim())
    lane.submit(pending)
    flight = lane.next_flight()
    lane.abandon(pending)
    lane.deliver(flight, None)
    lane.deliver(lane.next_flight(), [_lost()])
    assert lane.next_flight() == []


def test_a_claim_of_nobody_that_met_a_conflict_is_not_asked_again() -> None:
    lane = _lane()
    pending = PendingOperation(claim())
    lane.submit(pending)
    flight = lane.next_flight()
    lane.abandon(pending)
    lane.deliver(flight, [[StoreUnavailable("Somebody was in the way; nothing ran.", conflict=True)]])
    assert lane.next_flight() == []


def test_whoever_leads_goes_on_while_only_give_backs_are_left() -> None:
    lane = _lane()
    wanted = claim()
    pending = PendingOperation(wanted)
    lane.submit(pending)
    flight = lane.next_flight()
    lane.abandon(pending)
    lane.deliver(flight, [[granted(wanted)]])
    heir = lane.next_leader()
    assert heir is not None
    assert heir.abandoned
    lane.deliver(lane.next_flight(), [[Recorded(1)]])
    assert lane.next_leader() is None


def test_an_idle_lane_with_a_give_back_asks_for_a_leader_once() -> None:
    lane = _lane()
    wanted = claim()
    pending = PendingOperation(wanted)
    lane.submit(pending)
    lane.deliver(lane.next_flight(), [[granted(wanted)]])
    assert lane.next_leader() is None
    assert not lane.claim_lead()
    lane.abandon(pending)
    assert [lane.claim_lead(), lane.claim_lead()] == [True, False]
