"""The keeper's flow, driven by hand: it does what is due, takes in what the store says, and rests in between."""

import pytest

from semel.core.operations import AddReplays, Found, Operation, Read, SweepCount
from semel.engine.background import (
    FIRST_LOOK,
    TALLY_EVERY,
    Background,
    Ended,
    PerformAll,
    Promoted,
    SleepUntil,
    TimedOut,
    Waiter,
    Waiting,
)
from semel.errors import StoreUnavailable
from semel.testing.clock import VirtualClock
from tests.unit.core.records import record, running
from tests.unit.engine_machines.watching import Watching

KEY = b"key"
GONE = StoreUnavailable("The store did not answer; nothing ran.")


class _Shell(Watching):
    """The watch of a keeper, which hears who was woken."""

    def __init__(self) -> None:
        clock = VirtualClock()
        self.woken: list[Waiter] = []
        self.keeper = Background(clock, Waiting(lambda: 0.0), self.woken.append)
        super().__init__(self.keeper, clock)


def _kinds(operations: list[Operation]) -> list[type]:
    return [type(operation) for operation in operations]


def test_with_nothing_to_do_it_rests_until_something_changes() -> None:
    assert _Shell().wanted == SleepUntil(None)


def test_a_disturbance_without_cause_lets_it_rest_again() -> None:
    assert _Shell().disturb() == SleepUntil(None)


def test_an_error_of_the_store_does_not_end_it() -> None:
    shell = _Shell()
    shell.keeper.waiting.join(KEY, until=60.0, now=0.0)
    shell.disturb()
    for _ in range(1000):
        shell.rest_until_due()
        while isinstance(shell.wanted, PerformAll):
            shell.answer(*[GONE] * len(shell.asked))
        if shell.wanted == SleepUntil(None):
            break
    assert [type(waiter.news) for waiter in shell.woken] == [TimedOut]


def test_it_wakes_everybody_when_the_answer_is_there() -> None:
    shell = _Shell()
    waiters = [shell.keeper.waiting.join(KEY, until=60.0, now=0.0) for _ in range(3)]
    assert shell.disturb() == SleepUntil(FIRST_LOOK)
    shell.rest_until_due()
    assert shell.asked == [Read(KEY, waits=True)]
    assert shell.answer(Found(record(), 60)) == SleepUntil(None)
    assert shell.woken == waiters
    assert all(isinstance(waiter.news, Ended) for waiter in waiters)


def test_it_wakes_one_when_the_owner_is_gone() -> None:
    shell = _Shell()
    first, second = (shell.keeper.waiting.join(KEY, until=60.0, now=0.0) for _ in range(2))
    shell.disturb()
    shell.rest_until_due()
    shell.answer(Found(None, 60))
    assert shell.woken == [first]
    assert isinstance(first.news, Promoted)
    assert second.news is None


def test_it_wakes_nobody_while_the_owner_runs() -> None:
    shell = _Shell()
    shell.keeper.waiting.join(KEY, until=60.0, now=0.0)
    shell.disturb()
    shell.rest_until_due()
    assert isinstance(shell.answer(Found(running(), 60)), SleepUntil)
    assert shell.woken == []


def test_it_wakes_whoever_waited_long_enough_without_asking_the_store() -> None:
    shell = _Shell()
    waiter = shell.keeper.waiting.join(KEY, until=0.01, now=0.0)
    assert shell.disturb() == SleepUntil(0.01)
    assert shell.rest_until_due() == SleepUntil(None)
    assert shell.woken == [waiter]


def test_a_call_that_ends_here_is_looked_at_without_rest() -> None:
    shell = _Shell()
    shell.keeper.waiting.join(KEY, until=60.0, now=0.0)
    shell.keeper.waiting.done(KEY, None)
    shell.disturb()
    assert shell.asked == [Read(KEY, waits=True)]


def test_replays_are_counted_and_written_down_later() -> None:
    shell = _Shell()
    for _ in range(3):
        shell.keeper.count_replay(KEY)
    shell.keeper.count_replay(b"other")
    assert shell.disturb() == SleepUntil(TALLY_EVERY)
    shell.rest_until_due()
    assert shell.asked == [AddReplays(KEY, 3), AddReplays(b"other", 1)]
    assert shell.answer(SweepCount(1), SweepCount(1)) == SleepUntil(None)


def test_a_tally_that_failed_is_not_tried_again() -> None:
    shell = _Shell()
    shell.keeper.count_replay(KEY)
    shell.disturb()
    shell.rest_until_due()
    assert shell.answer(GONE) == SleepUntil(None)


def test_many_replays_are_written_down_a_few_at_a_time() -> None:
    shell = _Shell()
    for number in range(100):
        shell.keeper.count_replay(b"%d" % number)
    shell.disturb()
    written = 0
    while shell.rest_until_due() != SleepUntil(None):
        assert len(shell.asked) < 64
        written += len(shell.asked)
        if shell.answer(*[SweepCount(1)] * len(shell.asked)) == SleepUntil(None):
            break
    assert written == 100


def test_what_was_not_written_down_can_be_drained_at_the_end() -> None:
    shell = _Shell()
    shell.keeper.count_replay(KEY)
    assert shell.keeper.drain() == [AddReplays(KEY, 1)]
    assert shell.keeper.drain() == []


def test_waiters_come_before_tallies() -> None:
    shell = _Shell()
    shell.keeper.count_replay(KEY)
    shell.keeper.waiting.join(KEY, until=60.0, now=0.0)
    shell.clock.advance(TALLY_EVERY)
    shell.disturb()
    assert _kinds(shell.asked) == [Read, AddReplays]


def test_only_the_first_replay_since_the_last_tally_has_to_rouse_the_keeper() -> None:
    keeper = _Shell().keeper
    assert [keeper.count_replay(KEY) for _ in range(3)] == [True, False, False]


@pytest.mark.parametrize("waits", [True, False])
def test_what_is_due_first_decides_how_long_it_rests(waits: bool) -> None:
    shell = _Shell()
    shell.keeper.count_replay(KEY)
    if waits:
        shell.keeper.waiting.join(KEY, until=60.0, now=0.0)
    assert shell.keeper.due() == (FIRST_LOOK if waits else TALLY_EVERY)
