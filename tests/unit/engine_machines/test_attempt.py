"""What an attempt knows of itself: its steps in order, and whether it is still the owner."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from semel.core.operations import Granted
from semel.core.record import About, Step
from semel.engine.background import Heartbeat
from semel.engine.context import AttemptState, StepLog
from semel.errors import LeaseLost, StepsChanged
from tests.unit.core.records import claim, granted

NAMES = ["reserve", "charge", "ship", "mail"]


def finished(*names: str) -> tuple[Step, ...]:
    """The steps an earlier attempt finished."""
    return tuple(Step(index, name, b"") for index, name in enumerate(names))


def test_a_first_attempt_counts_its_steps() -> None:
    log = StepLog(())
    assert [log.enter(name) for name in NAMES] == [(index, None, False) for index in range(4)]
    log.check_complete()


def test_finished_steps_are_given_again_and_the_rest_run() -> None:
    log = StepLog(finished("reserve", "charge"))
    assert [log.enter(name)[1] for name in NAMES] == [*finished("reserve", "charge"), None, None]
    log.check_complete()


def test_a_name_is_used_once() -> None:
    log = StepLog(())
    log.enter("reserve")
    with pytest.raises(StepsChanged, match=r"used twice.*second did not run"):
        log.enter("reserve")


def test_another_step_in_its_place_is_refused() -> None:
    log = StepLog(finished("reserve"))
    with pytest.raises(StepsChanged, match=r"'charge' now and was 'reserve'.*did not run"):
        log.enter("charge")


def test_steps_in_another_order_are_refused() -> None:
    log = StepLog(finished("reserve", "charge"))
    with pytest.raises(StepsChanged):
        log.enter("charge")


def test_a_finished_step_is_not_run_later_under_its_name() -> None:
    # The second step alone was finished: written out of order by an attempt that lost a checkpoint.
    log = StepLog((Step(1, "charge", b""),))
    with pytest.raises(StepsChanged):
        log.enter("charge")


def test_an_end_that_passed_over_a_finished_step_is_refused() -> None:
    log = StepLog(finished("reserve", "charge"))
    log.enter("reserve")
    with pytest.raises(StepsChanged, match=r"'charge'.*not recorded"):
        log.check_complete()


@given(st.permutations(NAMES), st.integers(0, 4), st.permutations(NAMES), st.integers(0, 4))
def test_only_the_same_steps_in_the_same_order_go_through(
    before: list[str], done: int, now: list[str], entered: int
) -> None:
    log = StepLog(finished(*before[:done]))
    try:
        given_again = [log.enter(name)[1] for name in now[:entered]]
        log.check_complete()
    except StepsChanged:
        assert before[:done] != now[:done] or entered < done
        return
    assert before[:done] == now[:done]
    assert [step.name for step in given_again if step is not None] == before[:done]


def _taken(grant: Granted) -> AttemptState:
    state = AttemptState()
    state.take(grant)
    return state


def _state() -> AttemptState:
    return _taken(granted(claim(nonce=b"mine"), in_doubt=True))


def test_an_attempt_is_what_was_granted() -> None:
    state = _state()
    assert (state.number, state.in_doubt, state.lease.nonce) == (1, True, b"mine")
    assert state.key == claim().key
    assert state.about == About()


def test_a_lease_inside_a_transaction_names_it() -> None:
    assert _taken(replace(granted(claim()), transaction="t-1")).lease.transaction == "t-1"


def test_an_attempt_whose_lease_is_not_kept_alive_has_nothing_to_lose() -> None:
    _state().check()


@pytest.mark.parametrize(("now", "lost"), [(0.0, False), (29.9, False), (30.0, True), (1000.0, True)])
def test_the_clock_alone_ends_an_attempt(now: float, lost: bool) -> None:
    state = _state()
    state.keep(Heartbeat().hold(state.lease, length=30.0, max_runtime=900.0, asked=0.0), lambda: now)
    if not lost:
        state.check()
        return
    with pytest.raises(LeaseLost, match=r"lost its lease.*nothing more of it is recorded") as caught:
        state.check()
    assert caught.value.reference == state.key.reference  # type: ignore[attr-defined]  # facts are attributes


def test_an_attempt_that_was_told_is_over_before_its_time() -> None:
    state = _state()
    beat = Heartbeat().hold(state.lease, length=30.0, max_runtime=900.0, asked=0.0)
    state.keep(beat, lambda: 0.0)
    beat.lost = "somebody else holds the key now"
    with pytest.raises(LeaseLost, match="somebody else holds the key now"):
        state.check()
