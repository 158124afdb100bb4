"""The checker on made-up rounds: a good one passes, and each thing that can go wrong is named."""

import json
from collections.abc import Callable

import pytest

from tests.client.kill.checker import Kind, check
from tests.client.kill.messages import Message, order
from tests.client.kill.plans import Library, LifePlan, RoundPlan
from tests.client.kill.positions import At, Cut
from tests.client.kill.story import Answer, Effect, Life, Report, Request, Story

ORDER = 7
DONE: Answer = (201, json.dumps({"order": ORDER, "effect": 1}))


def killed(at: At, *notes: At) -> Life:
    return Life(LifePlan(at), killed=at, notes=[At.STARTED, *notes])


def ended(*resumed: Answer, asked: Answer | None = None, pending: int = 0, gave_up: str = "", error: str = "") -> Life:
    return Life(LifePlan(), notes=[At.STARTED], report=Report([*resumed], asked, pending, gave_up, error))


def story(*lives: Life, named: bool = False, sent_by: tuple[int, ...] = (1, 2), effects: int = 1) -> Story:
    """A round in which each of these lives sent the same request."""
    return Story(
        RoundPlan(ORDER, Library.HTTPX, named, tuple(life.plan for life in lives)),
        list(lives),
        [Request(life, "k", order(ORDER)) for life in sent_by],
        [Effect("k", serial + 1) for serial in range(effects)],
    )


def good() -> Story:
    """Killed when the effect had happened, and resumed."""
    return story(killed(At.EFFECTED, At.CLAIMED, At.KEPT), ended(DONE))


GOOD: dict[str, Callable[[], Story]] = {
    "resumed": good,
    "never sent, never kept, without a name": lambda: story(
        killed(At.CLAIMED, At.CLAIMED), ended(), sent_by=(), effects=0
    ),
    "never kept, asked again by its name": lambda: story(
        killed(At.STARTED),
        Life(LifePlan(), notes=[At.KEPT, At.RECORDED], report=Report([], DONE, 0, "", "")),
        named=True,
        sent_by=(2,),
    ),
    "recorded, and not sent again": lambda: story(
        killed(At.RECORDED, At.KEPT, At.ANSWERED, At.RECORDED), ended(), sent_by=(1,)
    ),
    "kept in the moment of the kill": lambda: story(killed(At.MOMENT, At.CLAIMED), ended(DONE), sent_by=(2,)),
    "recorded in the moment of the kill": lambda: story(killed(At.MOMENT, At.KEPT, At.ANSWERED), ended(), sent_by=(1,)),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_round_has_no_problem(name: str) -> None:
    assert check(GOOD[name]()) == []


def _other_key() -> Story:
    bad = good()
    bad.requests[1] = bad.requests[1]._replace(key="another")
    return bad


def _no_key() -> Story:
    bad = good()
    bad.requests = [request._replace(key="") for request in bad.requests]
    return bad


def _changed() -> Story:
    bad = good()
    bad.requests[1] = bad.requests[1]._replace(body=b"{}")
    return bad


def _overdue() -> Story:
    bad = good()
    bad.lives[0].overdue = True
    return bad


def _gave_up_early() -> Story:
    bad = story(ended(gave_up="ReadError"), ended(DONE))
    bad.lives[0].notes += [At.KEPT]
    bad.lives[0].cuts = [Cut.BEFORE]
    return bad


def _kept() -> Life:
    return killed(At.KEPT, At.CLAIMED, At.KEPT)


def _recorded() -> Life:
    return killed(At.RECORDED, At.KEPT, At.ANSWERED, At.RECORDED)


BAD: dict[str, tuple[Kind, Callable[[], Story]]] = {
    "another key after the restart": (Kind.OTHER_KEY, _other_key),
    "no key at all": (Kind.OTHER_KEY, _no_key),
    "two effects": (Kind.DUPLICATED, lambda: story(killed(At.EFFECTED, At.KEPT), ended(DONE), effects=2)),
    "kept and never sent": (Kind.LOST, lambda: story(_kept(), ended(), sent_by=(), effects=0)),
    "named and without effect": (Kind.LOST, lambda: story(ended(), named=True, sent_by=(), effects=0)),
    "one effect that nobody is told of": (
        Kind.LOST,
        lambda: story(killed(At.EFFECTED, At.KEPT), ended(), sent_by=(1,)),
    ),
    "stopped before the outcome was on disk, not resumed": (
        Kind.LOST,
        lambda: story(killed(At.ANSWERED, At.KEPT, At.ANSWERED), ended(), sent_by=(1,)),
    ),
    "sent before it was kept": (Kind.SENT_UNKEPT, lambda: story(killed(At.SENT, At.CLAIMED), ended(DONE))),
    "sent at a random moment before it was kept": (Kind.SENT_UNKEPT, lambda: story(killed(At.MOMENT), ended(DONE))),
    "another body after the restart": (Kind.CHANGED, _changed),
    "sent again after its outcome was recorded": (Kind.NEEDLESS, lambda: story(_recorded(), ended())),
    "resumed after its outcome was recorded": (Kind.NEEDLESS, lambda: story(_recorded(), ended(DONE), sent_by=(1,))),
    "a life that does not end": (Kind.WEDGED, _overdue),
    "a life that fails": (Kind.WEDGED, lambda: story(_kept(), ended(error="KeyError"), ended(DONE))),
    "a life that dies by itself": (Kind.WEDGED, lambda: story(_kept(), Life(LifePlan()), ended(DONE))),
    "a life that gives up before its last try": (Kind.WEDGED, _gave_up_early),
    "something pending at the end": (Kind.WEDGED, lambda: story(_kept(), ended(DONE, pending=1))),
    "resumed with an error": (Kind.WRONG_ANSWER, lambda: story(_kept(), ended((0, "ReadError()")))),
    "an answer without a body": (Kind.WRONG_ANSWER, lambda: story(_kept(), ended((201, "")))),
    "the answer of another order": (
        Kind.WRONG_ANSWER,
        lambda: story(_kept(), ended((201, json.dumps({"order": 8, "effect": 1})))),
    ),
    "an effect that never was": (
        Kind.WRONG_ANSWER,
        lambda: story(_kept(), ended((201, json.dumps({"order": ORDER, "effect": 2})))),
    ),
    "a refusal": (Kind.WRONG_ANSWER, lambda: story(_kept(), ended((409, DONE[1])))),
    "named, and no answer at the end": (Kind.WRONG_ANSWER, lambda: story(_kept(), ended(DONE), named=True)),
}


@pytest.mark.parametrize("name", BAD)
def test_what_went_wrong_is_named(name: str) -> None:
    kind, made = BAD[name]
    assert kind in {problem.kind for problem in check(made())}


@pytest.mark.parametrize("portion", [0.0, 0.25, 0.49, 0.5, 0.75, 0.999])
def test_a_part_of_a_message_is_neither_nothing_nor_all(portion: float) -> None:
    message = Message(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    assert 0 < len(message.part(portion)) < len(message.data)
