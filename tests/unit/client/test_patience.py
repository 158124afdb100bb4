"""Pauses and the budget."""

import threading

import pytest

from semel.client.retry import Backoff, Budget

PATIENCE = Backoff(tries=5, give_up_after=60.0, shortest=0.2, longest=3.0)


@pytest.mark.parametrize(("number", "bound"), [(1, 0.4), (2, 0.8), (3, 1.6), (4, 3.0), (400, 3.0)])
def test_pauses_double_up_to_the_longest(number: int, bound: float) -> None:
    assert PATIENCE.pause(number, None, 1.0) == pytest.approx(bound)


def test_any_time_up_to_the_bound_is_as_likely() -> None:
    assert [PATIENCE.pause(1, None, chance) for chance in (0.0, 0.5)] == pytest.approx([0.0, 0.2])


@pytest.mark.parametrize("asked", [0.0, 7.0, 3600.0])
def test_what_the_service_asks_for_is_waited_for_and_a_little_more(asked: float) -> None:
    pauses = [PATIENCE.pause(9, asked, chance) for chance in (0.0, 1.0)]
    assert pauses == pytest.approx([asked, asked + 0.1])


def test_a_budget_is_spent_once() -> None:
    budget = Budget(3)
    assert [budget.spend() for _ in range(5)] == [True, True, True, False, False]


def test_ten_answers_earn_one_retry() -> None:
    budget = Budget(1)
    budget.spend()
    for _ in range(9):
        budget.earn()
    assert not budget.spend()
    budget.earn()
    budget.earn()  # a tenth has no exact form
    assert budget.spend()


def test_a_budget_never_holds_more_than_its_size() -> None:
    budget = Budget(1)
    for _ in range(100):
        budget.earn()
    assert [budget.spend(), budget.spend()] == [True, False]


def test_without_a_budget_nothing_is_asked_again() -> None:
    assert not Budget(0).spend()


def test_threads_do_not_spend_more_than_there_is() -> None:
    budget, spent = Budget(100), []
    barrier = threading.Barrier(4)

    def spend() -> None:
        barrier.wait(30)
        spent.extend([budget.spend() for _ in range(50)])

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert spent.count(True) == 100
