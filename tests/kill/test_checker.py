"""The checker itself: it passes what is right and finds each thing that can be wrong."""

from collections.abc import Callable

import pytest

from tests.kill.checker import check
from tests.kill.grounds.ground import Row
from tests.kill.history import History, Settled
from tests.kill.ledger import LENGTH, Line
from tests.kill.positions import JOINING, MEANING, At, Mode, mode_of
from tests.kill.run import Hit, Outage

WITHIN, STEPS, RERUN, HOLD = (
    next(key for key in range(20) if mode_of(key, JOINING) is mode)
    for mode in (Mode.WITHIN, Mode.STEPS, Mode.RERUN, Mode.HOLD)
)
LEASE_US = 700_000
AT = 50_000_000


def line(
    what: str, key: int, *, step: int = 0, fence: int = 1, life: int = 1, micros: int = 0, value: str = ""
) -> Line:
    doubt = int(fence > 1)
    return Line(
        what,
        mode_of(key, JOINING),
        key,
        step,
        fence,
        fence,
        doubt,
        life,
        0,
        micros,
        AT + micros,
        value or f"{fence}.{life}",
    )


def good() -> History:
    """A run with one key of each mode; the rerun key was killed after its first effect."""
    return History(
        effects=[
            line("try", WITHIN),
            line("effect", STEPS, step=1),
            line("try", STEPS, step=2),
            line("effect", STEPS, step=3),
            line("try", STEPS),
            line("effect", RERUN),
            line("effect", RERUN, fence=2, life=2),
            line("effect", HOLD),
        ],
        modes=JOINING,
        rows=[Row(Mode.WITHIN, WITHIN, 0, 1, 1, 0), Row(Mode.STEPS, STEPS, 2, 1, 1, 0)],
        answers=[line("ran", key) for key in (WITHIN, STEPS)] + [line("replayed", RERUN, fence=2, life=2)],
        kills=[(Hit(At.DONE, RERUN, 1, 0, 1), Hit(At.IDLE, WITHIN, 1, 0, 1))],
        outages=[],
        settled={
            WITHIN: Settled("completed", "1.1", 1, 0),
            STEPS: Settled("completed", "1.1", 1, 3),
            RERUN: Settled("completed", "2.2", 2, 0),
            HOLD: Settled("completed", "1.1", 1, 0),
        },
        lease_us=LEASE_US,
    )


def test_a_good_run_is_passed_and_counted() -> None:
    verdict = check(good())
    assert verdict.problems == []
    assert (verdict.operations, verdict.take_overs, verdict.repeated_after_kill) == (4, 1, 1)


def kill_at(at: At) -> Callable[[History], History]:
    return lambda run: run._replace(kills=[(Hit(at, RERUN, 1, 0, 1),)])


def without_effect(key: int) -> Callable[[History], History]:
    return lambda run: run._replace(
        effects=[effect for effect in run.effects if effect.key != key or effect.what == "try"],
        rows=[row for row in run.rows if row.key != key],
    )


def more(*effects: Line) -> Callable[[History], History]:
    return lambda run: run._replace(effects=[*run.effects, *effects])


def another_row(key: int, step: int) -> Callable[[History], History]:
    return lambda run: run._replace(rows=[*run.rows, Row(mode_of(key, JOINING), key, step, 1, 9, 9)])


def answered(*answers: Line) -> Callable[[History], History]:
    return lambda run: run._replace(answers=[*run.answers, *answers])


def ended(key: int, end: Settled) -> Callable[[History], History]:
    return lambda run: run._replace(settled={**run.settled, key: end})


@pytest.mark.parametrize("at", [At.IN_EFFECT, At.DONE, At.RETURNING, At.COMPLETING, At.COMPLETE_WRITTEN])
def test_a_kill_at_or_after_the_effect_explains_a_second_one(at: At) -> None:
    assert check(kill_at(at)(good())).problems == []


def test_a_stall_longer_than_the_lease_explains_a_second_effect() -> None:
    run = good()._replace(kills=[])
    assert check(answered(line("lost", RERUN, micros=LEASE_US))(run)).repeated_after_stall == 1


def given_back(*fences: int) -> History:
    """A run in which a key was granted with fence 1, which began nothing; `fences` were given back."""
    only = line("effect", RERUN, fence=2)._replace(attempt=1, in_doubt=0)
    run = good()
    return run._replace(
        effects=[*(each for each in run.effects if each.key != RERUN), only],
        answers=[
            *(each for each in run.answers if each.key != RERUN),
            *(line("returned", RERUN, fence=fence) for fence in fences),
        ],
        kills=[],
        settled={**run.settled, RERUN: Settled("completed", only.value, 2, 0)},
    )


def test_a_claim_that_was_given_back_is_no_attempt() -> None:
    assert check(given_back(1)).problems == []


def forgotten(*, outage: bool) -> History:
    """A run in which a completed key was granted anew with its first fence, after an outage or without any."""
    again = line("effect", RERUN, fence=1, life=8)._replace(at=AT + 3_000, micros=10, sequence=1)
    answers = [line("ran", RERUN, fence=1, life=1), line("replayed", RERUN, fence=1, life=8)]
    run = good()
    return run._replace(
        effects=[*(each for each in run.effects if each.key != RERUN), line("effect", RERUN), again],
        answers=[*(each for each in run.answers if each.key != RERUN), *answers],
        kills=[],
        outages=[Outage(1, "redis", AT + 1_000, AT + 2_000)] if outage else [],
        settled={**run.settled, RERUN: Settled("completed", "1.8", 1, 0)},
    )


def test_a_fence_granted_twice_over_an_outage_was_forgotten() -> None:
    verdict = check(forgotten(outage=True))
    assert (verdict.forgotten, verdict.unexplained, verdict.problems) == (1, 0, [])
    assert any("effect 0 of attempt 1 in worker 1 was repeated: forgotten by redis" in why for why in verdict.explained)


def test_a_completion_that_is_gone_after_an_outage_was_forgotten() -> None:
    run = good()._replace(outages=[Outage(1, "redis", AT + 1_000, AT + 2_000)])
    verdict = check(ended(WITHIN, Settled("absent", "", 0, 0))(run))
    assert (verdict.forgotten, verdict.wedged, verdict.problems) == (1, 0, [])


def test_a_completion_followed_by_another_attempt_was_forgotten() -> None:
    run = answered(line("ran", RERUN))(good())
    verdict = check(run._replace(kills=[], outages=[Outage(1, "redis", AT - 1_000, AT - 500)]))
    assert verdict.problems != []  # the outage was over before anything was acknowledged
    verdict = check(late(run)._replace(kills=[], outages=[Outage(1, "redis", AT + 1_000, AT + 2_000)]))
    assert (verdict.forgotten, verdict.problems) == (1, [])


def test_a_transaction_that_was_rolled_back_in_an_outage_left_nothing_to_forget() -> None:
    again = line("try", WITHIN, life=2)._replace(at=AT + 3_000, micros=10)
    run = more(again)(good())._replace(outages=[Outage(1, "postgresql", AT - 1_000, AT + 2_000)])
    assert check(run).forgotten == 0


def late(run: History) -> History:
    """The same, with all second attempts after the outage."""
    return run._replace(
        effects=[each._replace(at=AT + 3_000, micros=10) if each.fence > 1 else each for each in run.effects]
    )


WRONG = {
    "fence granted twice without an outage": lambda _: forgotten(outage=False),
    "kill before the effect": kill_at(At.STARTED),
    "kill after the completion was committed": kill_at(At.COMPLETED),
    "kill of somebody else": lambda run: run._replace(kills=[(Hit(At.DONE, RERUN, 1, 0, 7),)]),
    "kill of another attempt": lambda run: run._replace(kills=[(Hit(At.DONE, RERUN, 2, 0, 1),)]),
    "no kill": lambda run: run._replace(kills=[]),
    "stall shorter than the lease": lambda run: answered(line("lost", RERUN, micros=LEASE_US - 1))(
        run._replace(kills=[])
    ),
    "row of within lost": without_effect(WITHIN),
    "row of within doubled": another_row(WITHIN, 0),
    "row of a step doubled": another_row(STEPS, 2),
    "effect lost": without_effect(RERUN),
    "finished step repeated": more(line("effect", STEPS, step=1, fence=2, life=2)),
    "held effect repeated": more(line("effect", HOLD, fence=2, life=2)),
    "held effect lost": without_effect(HOLD),
    "effect after the end": more(line("effect", RERUN, fence=3, life=3)),
    "late attempt without a stall": more(line("effect", RERUN, fence=1, life=5)),
    "doubt not told": more(line("effect", RERUN, fence=2, life=2)._replace(in_doubt=0)),
    "attempt not counted, and nothing given back": lambda _: given_back(),
    "attempt not counted, and another one given back": lambda _: given_back(2),
    "attempts miscounted": more(line("effect", RERUN, fence=2, life=2)._replace(attempt=1)),
    "rolled back transaction left a trace": more(line("try", WITHIN, fence=2)),
    "two answers": answered(line("replayed", RERUN, value="1.1")),
    "answer of nobody": ended(HOLD, Settled("completed", "8.8", 1, 0)),
    "doubt outside of hold": answered(line("in_doubt", RERUN)),
    "key wedged": ended(RERUN, Settled("running", "InProgress", 1, 0)),
    "record lost": ended(WITHIN, Settled("absent", "", 0, 0)),
    "step not recorded": ended(STEPS, Settled("completed", "1.1", 1, 2)),
    "attempt missing in the history": ended(RERUN, Settled("completed", "2.2", 2, 0, attempts=2, entered=(2,))),
    "attempt twice in the history": ended(RERUN, Settled("completed", "2.2", 2, 0, attempts=2, entered=(1, 1, 2))),
    "effect of an unknown key": more(line("effect", 999)),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_is_found(name: str) -> None:
    assert check(WRONG[name](good())).problems != []


def test_every_position_has_a_meaning() -> None:
    assert set(MEANING) == set(At)


def test_lines_have_one_length_and_come_back_equal() -> None:
    long = Line("in_doubt", 3, 99_999, 3, 999, 999, 1, 99_999, 8_999_999, 9_999_999_999, 10**13, "x" * 40)
    assert len(long.encode()) == LENGTH
    assert Line.decode(long.encode()) == long
