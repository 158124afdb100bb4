"""The circuit breaker: what opens it, what it lets through, and when it closes again."""

from semel.core.circuit import Breaker


def breaker(failures: int = 3, chance: float = 1.0) -> Breaker:
    return Breaker(failures=failures, rest=1.0, longest=4.0, chance=lambda: chance)


def opened(at: float = 0.0) -> Breaker:
    made = breaker(failures=1)
    made.on_failure(at)
    return made


def test_it_is_closed_at_first() -> None:
    made = breaker()
    assert (made.state, made.allow(0.0), made.remaining(0.0)) == ("closed", True, 0.0)


def test_failures_in_a_row_open_it() -> None:
    made = breaker()
    for _ in range(3):
        made.on_failure(0.0)
    assert (made.state, made.allow(0.9)) == ("open", False)


def test_fewer_failures_do_not_open_it() -> None:
    made = breaker()
    made.on_failure(0.0)
    made.on_failure(0.0)
    assert made.allow(0.0)


def test_an_answer_in_between_starts_the_count_again() -> None:
    made = breaker()
    for _ in range(5):
        made.on_failure(0.0)
        made.on_failure(0.0)
        made.on_success()
    assert made.state == "closed"


def test_one_try_is_let_through_after_the_rest() -> None:
    made = opened()
    assert [made.allow(1.0), made.allow(1.0)] == [True, False]
    assert made.state == "half-open"


def test_an_answer_to_the_try_closes_it() -> None:
    made = opened()
    made.allow(1.0)
    made.on_success()
    assert (made.state, made.allow(1.0), made.allow(1.0)) == ("closed", True, True)


def test_the_rest_doubles_with_each_failed_try_up_to_the_longest() -> None:
    made, now, rests = opened(), 0.0, []
    for _ in range(4):
        rests.append(made.remaining(now))
        now += made.remaining(now)
        assert made.allow(now)
        made.on_failure(now)
    assert rests == [1.0, 2.0, 4.0, 4.0]


def test_after_it_closed_the_first_rest_is_short_again() -> None:
    made = opened()
    for now in (1.0, 3.0):
        made.allow(now)
        made.on_failure(now)
    made.on_success()
    made.on_failure(10.0)
    assert made.remaining(10.0) == 1.0


def test_rests_differ_by_chance() -> None:
    lengths = set()
    for chance in (0.0, 0.5, 1.0):
        made = breaker(failures=1, chance=chance)
        made.on_failure(0.0)
        lengths.add(made.remaining(0.0))
    assert lengths == {0.5, 0.75, 1.0}


def test_a_try_whose_end_was_never_told_is_followed_by_another() -> None:
    made = opened()
    assert made.allow(1.0)
    assert not made.allow(4.9)
    assert made.allow(5.0)


def test_one_failure_may_be_enough() -> None:
    made = breaker()
    made.on_failure(0.0, at_once=True)
    assert made.state == "open"


def test_a_try_that_told_nothing_is_followed_by_another_at_once() -> None:
    made = opened()
    assert made.allow(1.0)
    made.on_no_signal()
    assert (made.state, made.allow(1.0)) == ("open", True)
