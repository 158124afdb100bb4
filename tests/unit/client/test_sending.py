"""One request, sent until there is a definite answer, with scripted answers and a clock that only pauses move."""

from collections import deque
from itertools import product
from typing import Any

import pytest

from semel.client.models import (
    Ended,
    NotExecuted,
    OutcomeUnknown,
    Outgoing,
    Refused,
    Reply,
    Rest,
    Send,
    TransportFailed,
)
from semel.client.retry import Backoff, Budget, Sender
from semel.core.flow import run
from semel.errors import LeaseLost
from tests.client.answers import ANSWERS, UNSETTLED

OUTGOING = Outgoing(None, "POST", "https://api.example/pay?q=1", (), b"", None, None, "Idempotency-Key")
NEVER_LEFT, LOST = TransportFailed(OSError("refused"), sent=False), TransportFailed(OSError("reset"), sent=True)
LONG = 42.25
OUR_FAULT = TransportFailed(ValueError("bad"), sent=False, again=False)


def reply(status: int, after: str | None = None) -> Reply:
    return Reply(status, () if after is None else (("Retry-After", after),), b"")


class Scene:
    """A sender, and what it did."""

    def __init__(
        self, *script: Reply | TransportFailed, tries: int = 8, give_up: float = 60.0, budget: int = 20
    ) -> None:
        self.script = deque(script)
        self.time = 0.0
        self.sent: list[Send] = []
        self.pauses: list[float] = []
        self.lost = False
        self.sender = Sender(
            Backoff(tries, give_up, 1.0, 16.0),
            Budget(budget),
            monotonic=lambda: self.time,
            now=lambda: self.time,
            chance=lambda: 0.5,
            check=self.check,
        )

    def check(self) -> None:
        if self.lost:
            raise LeaseLost("lost")

    def perform(self, wanted: Any) -> Any:
        match wanted:
            case Rest(seconds):
                self.pauses.append(seconds)
                self.time += seconds
                self.lost = seconds == LONG
            case Send():
                self.sent.append(wanted)
                answer = self.script.popleft()
                if isinstance(answer, TransportFailed):
                    raise answer
                return answer
        return None

    def play(self, *, certain: bool = True) -> Reply | Ended:
        try:
            return run(self.sender.sending(Send(OUTGOING, '"k"'), certain=certain), self.perform)
        except Ended as ended:
            return ended


def test_an_answer_that_is_done_is_given() -> None:
    assert Scene(reply(201)).play() == reply(201)


def test_every_try_shows_the_same_key() -> None:
    scene = Scene(LOST, reply(503), reply(409), NEVER_LEFT, reply(429), reply(200))
    assert scene.play() == reply(200)
    assert {(send.key, send.outgoing) for send in scene.sent} == {('"k"', OUTGOING)}
    assert len(scene.sent) == 6


def test_pauses_are_as_told_or_double() -> None:
    scene = Scene(reply(503, "7"), LOST, reply(503), reply(429, "0"), reply(200))
    scene.play()
    assert scene.pauses == [7.25, 2.0, 4.0, 0.25]


def test_whoever_loses_the_key_in_a_pause_sends_no_more() -> None:
    scene = Scene(reply(503, "42"), reply(200))
    with pytest.raises(LeaseLost):
        scene.play()
    assert len(scene.sent) == 1


def test_tries_are_bounded() -> None:
    scene = Scene(*[reply(503)] * 3, tries=3)
    assert isinstance(scene.play(), OutcomeUnknown)
    assert (len(scene.sent), len(scene.pauses)) == (3, 2)


def test_time_is_bounded_and_a_pause_beyond_it_is_not_begun() -> None:
    scene = Scene(reply(503, "30"), reply(503, "40"), give_up=60)
    assert isinstance(scene.play(), OutcomeUnknown)
    assert scene.pauses == [30.25]


def test_the_budget_is_bounded() -> None:
    scene = Scene(*[LOST] * 5, budget=2)
    assert isinstance(scene.play(), OutcomeUnknown)
    assert len(scene.sent) == 3


def test_a_pause_that_is_not_begun_costs_nothing() -> None:
    scene = Scene(reply(503, "100"), LOST, reply(200), budget=1)
    assert isinstance(scene.play(), OutcomeUnknown)
    assert scene.play() == reply(200)


def test_a_fault_of_our_own_is_not_tried_again() -> None:
    scene = Scene(OUR_FAULT)
    assert isinstance(scene.play(), NotExecuted)
    assert len(scene.sent) == 1


ENDS: dict[str, type[Ended]] = {"settled": Refused, "nothing ran": NotExecuted, "open": OutcomeUnknown}


def told(name: str) -> Reply | TransportFailed:
    """An answer of the table that all clients share."""
    answer = ANSWERS[name]
    return LOST if answer.status is None else Reply(answer.status, answer.headers, answer.body)


@pytest.mark.parametrize(
    ("first", "last", "certain"),
    [*product((name for name in UNSETTLED if ANSWERS[name].again), ANSWERS, (True, False))],
    ids=str,
)
def test_one_try_that_may_have_run_leaves_it_open(first: str, last: str, *, certain: bool) -> None:
    ended = Scene(told(first), told(last), tries=2).play(certain=certain)
    if ANSWERS[last].ends == "settled":
        assert ended == told(last)
    else:
        certain = certain and ANSWERS[first].ends == "nothing ran"
        assert type(ended) is ENDS[ANSWERS[last].ends_behind(certain=certain)]


@pytest.mark.parametrize(("first", "last"), [(NEVER_LEFT, LOST), (LOST, NEVER_LEFT)], ids=["lost last", "lost first"])
def test_what_never_left_says_nothing_of_what_did(first: TransportFailed, last: TransportFailed) -> None:
    assert type(Scene(first, last, tries=2).play()) is OutcomeUnknown


def test_what_never_left_did_not_run() -> None:
    assert type(Scene(NEVER_LEFT, NEVER_LEFT, tries=2).play()) is NotExecuted
    assert type(Scene(NEVER_LEFT, reply(422), tries=2).play()) is Refused


def test_an_end_gives_the_last_answer_or_raises_the_librarys_error() -> None:
    ended = Scene(LOST, reply(503), tries=2).play()
    assert isinstance(ended, Ended)
    assert ended.told() == reply(503)
    ended = Scene(reply(503), LOST, tries=2).play()
    assert isinstance(ended, Ended)
    with pytest.raises(OSError, match="reset"):
        ended.told()


def test_an_end_names_the_place_without_the_query() -> None:
    assert str(Scene(reply(422)).play()) == "POST https://api.example/pay: status 422"
