"""The heartbeat as a state machine: renewed at a third, lost in time, and never alive when the store says otherwise."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.core.operations import Answer, Lost, Renewed
from semel.engine.background import Heartbeat, HeldLease
from semel.errors import StoreUnavailable
from tests.unit.core.records import lease

LENGTH = 30.0
GONE = StoreUnavailable("The store did not answer; nothing ran.")


def held(*, asked: float = 0.0, length: float = LENGTH, max_runtime: float = 900.0, nonce: bytes = b"n") -> Any:
    """A heartbeat with one lease."""
    heartbeat = Heartbeat()
    return heartbeat, heartbeat.hold(lease(nonce), length=length, max_runtime=max_runtime, asked=asked)


def answered(heartbeat: Heartbeat, answer: Answer | Exception, *, at: float, sent: float | None = None) -> None:
    """Have the renewal that is due at `at` answered."""
    (renewal,) = heartbeat.beats(at)
    heartbeat.answered(renewal, answer, at if sent is None else sent)


def test_nothing_held_is_nothing_to_do() -> None:
    assert Heartbeat().due() is None
    assert Heartbeat().beats(0) == []


def test_a_lease_is_renewed_at_a_third_of_its_length() -> None:
    heartbeat, beat = held(asked=5.0)
    assert heartbeat.due() == 15.0
    assert heartbeat.beats(14.9) == []
    (renewal,) = heartbeat.beats(15.0)
    assert (renewal.lease, renewal.lease_us) == (beat.lease, 30_000_000)


def test_a_renewal_on_its_way_is_not_sent_twice() -> None:
    heartbeat, _ = held()
    assert len(heartbeat.beats(10.0)) == 1
    assert heartbeat.beats(10.1) == []


def test_a_renewed_lease_lasts_from_before_the_renewal_was_sent() -> None:
    heartbeat, beat = held()
    (renewal,) = heartbeat.beats(10.0)
    heartbeat.answered(renewal, Renewed(0), 10.0)
    assert beat.deadline == 40.0
    assert heartbeat.due() == 20.0


def test_the_deadline_of_a_claim_counts_from_before_it_was_sent() -> None:
    _, beat = held(asked=7.0)
    assert beat.deadline == 37.0


def test_an_error_is_tried_again_before_the_next_third() -> None:
    heartbeat, beat = held()
    answered(heartbeat, GONE, at=10.0)
    assert heartbeat.due() == 15.0
    assert beat.lost is None
    assert len(heartbeat.beats(15.0)) == 1


def test_errors_until_the_deadline_lose_the_lease() -> None:
    heartbeat, beat = held()
    now, sent = 0.0, 0
    while beat.lost is None:
        now = heartbeat.due()
        for renewal in heartbeat.beats(now):
            sent += 1
            heartbeat.answered(renewal, GONE, now)
    assert now == beat.deadline == LENGTH
    assert sent >= 3
    assert "renewed in time" in beat.lost


def test_a_refusal_loses_the_lease_at_once() -> None:
    heartbeat, beat = held()
    answered(heartbeat, Lost(), at=10.0)
    assert "somebody else" in beat.lost
    assert heartbeat.due() is None
    assert heartbeat.beats(20.0) == []


def test_a_lease_is_not_renewed_beyond_max_runtime() -> None:
    heartbeat, beat = held(max_runtime=25.0)
    answered(heartbeat, Renewed(0), at=10.0)
    answered(heartbeat, Renewed(0), at=20.0)
    assert heartbeat.due() == 25.0
    assert heartbeat.beats(25.0) == []
    assert "max_runtime" in beat.lost


def test_what_is_lost_stays_lost() -> None:
    heartbeat, beat = held()
    (renewal,) = heartbeat.beats(10.0)
    assert heartbeat.beats(LENGTH) == []
    heartbeat.answered(renewal, Renewed(0), 10.0)
    assert beat.lost is not None
    assert heartbeat.beats(LENGTH + 1) == []


def test_a_lease_that_was_let_go_is_not_renewed() -> None:
    heartbeat, beat = held()
    (renewal,) = heartbeat.beats(10.0)
    heartbeat.release(beat)
    heartbeat.answered(renewal, Lost(), 10.0)
    assert heartbeat.due() is None
    assert beat.lost is None
    heartbeat.release(beat)


def test_every_lease_has_its_own_time() -> None:
    heartbeat = Heartbeat()
    short = heartbeat.hold(lease(b"short"), length=3.0, max_runtime=900.0, asked=0.0)
    long = heartbeat.hold(lease(b"long"), length=60.0, max_runtime=900.0, asked=0.0)
    assert heartbeat.due() == 1.0
    assert [renewal.lease for renewal in heartbeat.beats(1.0)] == [short.lease]
    assert [renewal.lease for renewal in heartbeat.beats(20.0)] == [long.lease]
    assert short.lost is not None


@pytest.mark.parametrize(("now", "over"), [(0.0, False), (29.9, False), (30.0, True)])
def test_a_beat_knows_by_the_clock_alone_that_it_is_over(now: float, over: bool) -> None:
    _, beat = held()
    assert (beat.over(now) is not None) == over


def test_a_beat_knows_by_the_clock_alone_that_it_ran_too_long() -> None:
    _, beat = held(max_runtime=5.0)
    assert beat.over(4.9) is None
    assert "max_runtime" in beat.over(5.0)


steps = st.lists(
    st.tuples(
        st.floats(0.0, 12.0),  # how late the keeper is
        st.floats(0.0, 12.0),  # how long the request takes to arrive
        st.floats(0.0, 12.0),  # how long the reply takes
        st.sampled_from(["held", "reply lost", "request lost"]),
    ),
    max_size=12,
)


@given(st.floats(0.0, 20.0), steps)
def test_an_attempt_is_never_told_that_it_owns_what_the_store_has_let_go(travel: float, story: list[Any]) -> None:
    """However late everything is: where the beat says alive, the store's lease still runs."""
    heartbeat, beat = held(asked=0.0)
    ends = travel + LENGTH  # by the store's clock, which granted the claim when it arrived
    now = travel
    for late, there, back, fate in story:
        if beat.over(now) is not None:
            break
        now = max(now, heartbeat.due() or now) + late
        for renewal in heartbeat.beats(now):
            sent, arrives = now, now + there
            taken = fate != "request lost" and arrives < ends
            ends = arrives + LENGTH if taken else ends
            now = arrives + back
            answer: Answer | Exception = GONE if fate != "held" else (Renewed(0) if taken else Lost())
            assert _honest(beat, now, ends)
            heartbeat.answered(renewal, answer, sent)
        assert _honest(beat, now, ends)


def _honest(beat: HeldLease, now: float, ends: float) -> bool:
    return beat.over(now) is not None or now < ends
