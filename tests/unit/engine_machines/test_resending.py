"""Sending again: pauses that grow and differ, and a budget that all calls of a process share."""

import pytest

from semel.engine.clock import RetryBudget


def retry_budget(least: float = 10.0, jitter: float = 1.0) -> RetryBudget:
    return RetryBudget(lambda: jitter, least)


def spent(budget: RetryBudget) -> RetryBudget:
    """The same, with nothing left."""
    while budget.of_claim(1) is not None:
        pass
    return budget


def test_a_claim_is_sent_again_twice_after_longer_and_longer_pauses() -> None:
    budget = retry_budget()
    assert [budget.of_claim(sent) for sent in (1, 2, 3)] == [0.05, 0.1, None]


@pytest.mark.parametrize(("jitter", "pause"), [(0.0, 0.0), (0.5, 0.025), (1.0, 0.05)])
def test_the_pause_of_a_claim_is_anything_up_to_its_length(jitter: float, pause: float) -> None:
    assert retry_budget(jitter=jitter).of_claim(1) == pause


def test_claims_of_all_calls_share_one_budget() -> None:
    budget = retry_budget(least=3)
    assert [budget.of_claim(1) is not None for _ in range(5)] == [True, True, True, False, False]


def test_ten_calls_earn_one() -> None:
    budget = spent(retry_budget())
    for _ in range(11):
        budget.on_call()
    assert [budget.of_claim(1) is not None for _ in range(2)] == [True, False]


def test_a_quiet_time_saves_up_no_more_than_ten_times_the_first_budget() -> None:
    budget = retry_budget(least=2)
    for _ in range(10_000):
        budget.on_call()
    assert budget.left == pytest.approx(20, abs=0.2)


def test_without_a_budget_no_claim_is_sent_again() -> None:
    budget = retry_budget(least=0)
    for _ in range(100):
        budget.on_call()
    assert budget.of_claim(1) is None


def test_a_store_that_loses_every_reply_is_asked_a_tenth_more() -> None:
    budget, sent = retry_budget(), 0
    for _ in range(10_000):
        budget.on_call()
        times = 1
        while budget.of_claim(times) is not None:
            times += 1
        sent += times
    assert sent == pytest.approx(10_000 * 1.1, abs=20)


def test_the_record_of_a_step_is_sent_again_whatever_the_budget() -> None:
    budget = spent(retry_budget())
    assert [budget.of_step(sent) for sent in (1, 2, 3)] == [0.05, 0.1, None]


def test_an_outcome_is_sent_again_whatever_the_budget_and_for_as_long_as_its_lease_lasts() -> None:
    budget = spent(retry_budget())
    assert [budget.of_outcome(sent) for sent in (1, 2, 3, 7, 1000)] == [0.02, 0.04, 0.08, 1.0, 1.0]


@pytest.mark.parametrize(("jitter", "pause"), [(0.0, 0.01), (1.0, 0.02)])
def test_the_pause_of_an_outcome_is_never_nothing(jitter: float, pause: float) -> None:
    assert retry_budget(jitter=jitter).of_outcome(1) == pause
