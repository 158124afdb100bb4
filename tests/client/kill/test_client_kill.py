"""Clients killed between send and reply and started again, behind a proxy that cuts: one key, one effect."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.kill.checker import Kind
from tests.client.kill.plans import plans
from tests.client.kill.positions import At, Cut
from tests.client.kill.program import kill_and_check, report

FULL = os.environ.get("SEMEL_EFFORT") == "full"
ROUNDS = 500 if FULL else 40
PATIENCE = 3600 if FULL else 600  # a bound for the hopeless, not a measure


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE)
def test_a_killed_client_that_is_started_again_has_one_effect_under_one_key(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    outcome = kill_and_check(tmp_path, ROUNDS, seed=1)
    record_property("figures", report(outcome))
    assert outcome.problems == []
    assert outcome.never_hit == [], "a run in which a position was never hit is not a pass"


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize(
    ("mutant", "kinds"),
    [
        ("fresh key", {Kind.OTHER_KEY, Kind.DUPLICATED}),
        ("keeps too late", {Kind.SENT_UNKEPT}),
        ("never resumes", {Kind.LOST}),
    ],
)
def test_a_client_with_a_fault_is_found_out(tmp_path: Path, mutant: str, kinds: set[Kind]) -> None:
    outcome = kill_and_check(tmp_path, 3, seed=1, mutant=mutant, stops=[At.EFFECTED])
    assert kinds <= {problem.kind for problem in outcome.problems}


def test_the_smallest_run_has_every_position_and_every_cut() -> None:
    lives = [life for plan in plans(40, 1) for life in plan.lives]
    assert {life.stop for life in lives} >= set(At)
    assert {severed.cut for life in lives for severed in life.cuts} == set(Cut)


def test_the_same_seed_makes_the_same_plan() -> None:
    assert plans(20, 5) == plans(20, 5)
    assert plans(20, 5) != plans(20, 6)
