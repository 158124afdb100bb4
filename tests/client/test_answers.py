"""How a call ends by what it is answered, alone and behind another try: the table that all clients share."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.client.answers import ANSWERS, UNSETTLED, Answer
from tests.client.conftest import Open
from tests.client.doors import DOORS, LOST, Door
from tests.client.service import CutBefore, Say, Service, Turn
from tests.effort import FULL


def turn(name: str) -> Turn:
    """What the service does."""
    answer = ANSWERS[name]
    return CutBefore() if answer.status is None else Say(answer.status, dict(answer.headers), answer.body)


def asked(door: Door, service: Service, intent: str, *names: str) -> None:
    """A call under this intent, answered so."""
    service.next("/pay", *(turn(name) for name in names))
    with suppress(*LOST):
        door.post(f"{service.url}/pay", intent)


def keys_of(service: Service) -> int:
    """How many keys were shown."""
    return len(set(service.keys()))


def is_open(door: Door) -> bool:
    """Whether it is kept that nobody knows."""
    return bool(door.pending())


@pytest.mark.parametrize("name", ANSWERS)
def test_a_call_ends_as_its_answer_says(open_door: Open, service: Service, name: str) -> None:
    door = open_door(tries=1)
    asked(door, service, "buy", name)
    assert is_open(door) is (ANSWERS[name].ends == "open")


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_asked_for_again_in_the_same_call_or_not(open_door: Open, service: Service, name: str) -> None:
    door = open_door()
    asked(door, service, "buy", name)
    assert (len(service.asked()), keys_of(service)) == (2 if ANSWERS[name].again else 1, 1)


def following(first: str, kind: str) -> list[tuple[str, Answer]]:
    """What is answered next: every answer; at the small effort each pair of answers on one kind of door only."""
    shift = UNSETTLED.index(first) + list(DOORS).index(kind)
    return list(ANSWERS.items())[0 if FULL else shift % len(DOORS) :: 1 if FULL else len(DOORS)]


@pytest.mark.parametrize("first", UNSETTLED)
def test_every_pair_of_answers_is_tried_on_some_kind_of_door(first: str) -> None:
    assert {last for kind in DOORS for last, _ in following(first, kind)} == set(ANSWERS)


@pytest.mark.parametrize("first", UNSETTLED)
def test_one_try_that_may_have_run_keeps_the_key_whatever_is_answered_next(
    open_door: Open, service: Service, first: str, request: pytest.FixtureRequest
) -> None:
    door, certain = open_door(tries=1), ANSWERS[first].ends == "nothing ran"
    for last, answer in following(first, request.node.callspec.params["open_door"]):
        asked(door, service, last, first)
        asked(door, service, last, last)
        expected = answer.ends_behind(certain=certain) == "open"
        assert is_open(door) is expected, f"{first}, then {last}: the outcome is {answer.ends}"
        door.forget(last)
