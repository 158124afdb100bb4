"""The decision table of a claim: who wins, who is told what, and that no rule of the arbiter can be broken."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.core.claim_rules import MayWrite, judge, may_take_over
from semel.core.operations import ClaimAnswer, Granted, InDoubtAnswer, Replay, Reused, Running
from semel.core.record import Status, StoredRecord, erase_record
from tests.unit.core.records import claim, record, running

NOW = 60
LIVE, OVER = NOW + 1, NOW
DOUBT = {"status": Status.IN_DOUBT, "doubtful": True, "lease_us": OVER, "outcome": None, "completed_us": None}
RETRYABLE = {"status": Status.FAILED, "retryable": True, "outcome": None}


def judged(found: StoredRecord | None, **terms: Any) -> MayWrite | ClaimAnswer:
    """What a claim of another caller meets."""
    return judge(found, claim(nonce=b"other", **terms), NOW)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, MayWrite("absent")),
        (record(expires_us=NOW), MayWrite("expired")),
        (record(expires_us=NOW, fingerprint=b"\x02"), MayWrite("expired")),
        (erase_record(record(expires_us=NOW), "note"), MayWrite("expired")),
        (record(**RETRYABLE), MayWrite("again")),
        (record(**{**RETRYABLE, "doubtful": True}), MayWrite("takeover")),
        (running(lease_us=OVER), MayWrite("takeover")),
        (record(**DOUBT), MayWrite("takeover")),
    ],
    ids=[
        "absent",
        "expired",
        "expired of another",
        "expired and erased",
        "retryable",
        "retryable in doubt",
        "lapsed",
        "in doubt",
    ],
)
def test_what_may_be_won(found: StoredRecord | None, expected: MayWrite) -> None:
    assert judged(found) == expected


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        (record(), Replay),
        (record(expires_us=NOW + 1), Replay),
        (record(status=Status.FAILED, outcome=None), Replay),
        (record(status=Status.CANCELLED, outcome=None), Replay),
        (erase_record(record(), "note"), Replay),
        (erase_record(record(fingerprint=b"\x02"), "note"), Replay),
        (erase_record(record(**RETRYABLE), "note"), Replay),
        (record(fingerprint=b"\x02"), Reused),
        (running(lease_us=LIVE, fingerprint=b"\x02"), Reused),
        (record(**{**DOUBT, "fingerprint": b"\x02"}), Reused),
        (running(lease_us=LIVE), Running),
        (record(**{**DOUBT, "in_doubt_policy": "hold"}), InDoubtAnswer),
    ],
    ids=[
        "completed",
        "last instant",
        "failed",
        "cancelled",
        "erased",
        "erased of another",
        "erased retryable",
        "reused",
        "reused running",
        "reused doubt",
        "runs",
        "held",
    ],
)
def test_what_may_not_be_won_is_answered(found: StoredRecord, answer: type) -> None:
    assert isinstance(judged(found), answer)


def test_the_same_claim_again_is_the_same_grant() -> None:
    again = judge(running(nonce=b"n", lease_us=OVER), claim(nonce=b"n"), NOW)
    assert isinstance(again, Granted)


def test_a_live_lease_tells_how_long_it_lasts() -> None:
    assert judged(running(lease_us=NOW + 7)) == Running(7)


@pytest.mark.parametrize(
    ("owner", "claimer", "expected"),
    [
        ("rerun", "rerun", "at once"),
        ("rerun", "reconcile", "after asking"),
        ("rerun", "hold", "never"),
        ("reconcile", "rerun", "never"),
        ("reconcile", "reconcile", "after asking"),
        ("reconcile", "hold", "never"),
        ("hold", "rerun", "never"),
        ("hold", "reconcile", "never"),
        ("hold", "hold", "never"),
    ],
)
def test_a_take_over_needs_both_policies(owner: Any, claimer: Any, expected: str) -> None:
    assert may_take_over(owner, claimer) == expected


@pytest.mark.parametrize(("mine", "theirs"), [(10, 0), (0, 10), (10, 5)])
def test_the_hook_is_asked_after_the_longer_of_both_pauses(mine: int, theirs: int) -> None:
    found = record(**{**DOUBT, "lease_us": NOW - 9, "in_doubt_policy": "reconcile", "reconcile_after_us": theirs})
    waiting = judge(found, claim(nonce=b"other", in_doubt="reconcile", reconcile_after_us=mine), NOW)
    assert waiting == InDoubtAnswer(found, 1)
    ready = judge(found, claim(nonce=b"other", in_doubt="reconcile", reconcile_after_us=mine), NOW + 1)
    assert ready == MayWrite("reconcile")


@st.composite
def records(draw: st.DrawFn) -> StoredRecord:
    status = draw(st.sampled_from(Status))
    found = record(
        status=status,
        retryable=status is Status.FAILED and draw(st.booleans()),
        fingerprint=draw(st.sampled_from([b"\x01", b"\x02"])),
        nonce=draw(st.sampled_from([b"n", b"other"])),
        lease_us=draw(st.integers(NOW - 2, NOW + 2)),
        expires_us=draw(st.integers(NOW - 2, NOW + 2)),
        in_doubt_policy=draw(st.sampled_from(["rerun", "reconcile", "hold"])),
        reconcile_after_us=draw(st.integers(0, 2)),
        doubtful=draw(st.booleans()),
    )
    return erase_record(found, "note") if found.settled and draw(st.booleans()) else found


@given(records(), st.sampled_from(["rerun", "reconcile", "hold"]))
def test_nothing_wins_what_it_must_not(found: StoredRecord, in_doubt: str) -> None:
    verdict = judge(found, claim(nonce=b"n", in_doubt=in_doubt), NOW)
    expired = found.settled and found.expires_us <= NOW
    if isinstance(verdict, MayWrite) and not expired:
        assert found.fingerprint == b"\x01"
        assert not found.final
        assert found.status is not Status.RUNNING or found.lease_us <= NOW
        assert "hold" not in (found.in_doubt_policy, in_doubt) or (found.settled and not found.doubtful)
    if isinstance(verdict, Replay):
        assert found.final
        assert found.erased or found.fingerprint == b"\x01"
        assert found.expires_us > NOW
    if not found.settled:
        assert verdict != MayWrite("expired")
