"""What may be said of a round: nothing lost, nothing twice, one key, nobody stuck, and the right answer at the end.

What always holds: a verdict rests on what was heard from the lives and seen by the service, never on times.
"""

import json
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from tests.client.kill.messages import order
from tests.client.kill.plans import TRIES
from tests.client.kill.positions import At
from tests.client.kill.story import Answer, Life, Report, Story


class Kind(Enum):
    """What can go wrong."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    WEDGED = "wedged"
    OTHER_KEY = "other key"
    SENT_UNKEPT = "sent before it was kept"
    CHANGED = "changed on the way"
    NEEDLESS = "sent although the outcome was on disk"
    WRONG_ANSWER = "wrong answer"


class Problem(NamedTuple):
    """Something that went wrong in a round."""

    round: int
    kind: Kind
    text: str


def check(story: Story) -> list[Problem]:
    """Everything that is wrong with a round."""
    found = [*_stuck(story), *_sent(story), *_effects(story), *_answers(story), *_resumed(story)]
    return [Problem(story.plan.number, kind, text) for kind, text in found]


Found = Iterator[tuple[Kind, str]]


def _stuck(story: Story) -> Found:
    for turn, life in enumerate(story.lives, 1):
        report = life.report
        if life.overdue:
            yield Kind.WEDGED, f"life {turn} did not come to an end"
        elif life.killed is None and report is None:
            yield Kind.WEDGED, f"life {turn} ended without a report"
        elif report is not None and report.error:
            yield Kind.WEDGED, f"life {turn} failed: {report.error}"
        elif report is not None and report.gave_up and len(life.cuts) < TRIES:
            yield Kind.WEDGED, f"life {turn} gave up ({report.gave_up}) after {len(life.cuts)} cuts"
    last = story.lives[-1].report
    if last is not None and last.pending:
        yield Kind.WEDGED, f"{last.pending} pending at the end"


def _sent(story: Story) -> Found:
    keys = {request.key for request in story.requests}
    if len(keys) > 1 or "" in keys:
        yield Kind.OTHER_KEY, f"requests with the keys {sorted(keys)}"
    if any(request.body != order(story.plan.number) for request in story.requests):
        yield Kind.CHANGED, "a request is not what was ordered"
    recorded = next((turn for turn, life in enumerate(story.lives, 1) if At.RECORDED in life.notes), len(story.lives))
    needless = [request.life for request in story.requests if request.life > recorded]
    if needless:
        yield Kind.NEEDLESS, f"recorded in life {recorded}, sent in {needless}"
    first = min((request.life for request in story.requests), default=0)
    # Who was killed at any moment may have kept it and had no time to say so.
    unheard = any(life.killed is At.MOMENT for life in story.lives[: first - 1])
    if first and not unheard and not _kept(story.lives[:first]):
        yield Kind.SENT_UNKEPT, f"life {first} sent what was not on disk"


def _effects(story: Story) -> Found:
    """What was on disk comes to one effect, and so does what can be asked for again; else it was never sent."""
    count = len(story.effects)
    if count > 1:
        yield Kind.DUPLICATED, f"{count} effects: {story.effects}"
    if count == 0 and (_kept(story.lives) or story.requests or story.plan.named):
        yield Kind.LOST, f"no effect; {len(story.requests)} requests"


def _answers(story: Story) -> Found:
    """Whoever got an answer got that of the effect."""
    effects = {effect.serial for effect in story.effects}
    for turn, life in enumerate(story.lives, 1):
        for answer in _given(life.report):
            if not _right(answer, story.plan.number, effects):
                yield Kind.WRONG_ANSWER, f"life {turn} was answered {answer}"
    last = story.lives[-1].report
    if last is not None and story.plan.named and last.asked is None:
        yield Kind.WRONG_ANSWER, "the last life asked and has no answer"


def _resumed(story: Story) -> Found:
    """What has no outcome on disk is resumed by the last life, and nothing else is."""
    *before, last = story.lives
    if last.report is None:
        return
    count = len(last.report.resumed)
    perhaps_recorded = [life for life in before if At.ANSWERED in life.notes and life.killed is not At.ANSWERED]
    if _kept(before) and not perhaps_recorded and count != 1:
        yield Kind.LOST, f"its outcome was not known, and {count} requests were resumed"
    if count > 1 or (count and any(At.RECORDED in life.notes for life in before)):
        yield Kind.NEEDLESS, f"{count} resumed"
    if not story.requests and count:
        yield Kind.LOST, "resumed, and nothing arrived"


def _kept(lives: list[Life]) -> bool:
    return any(At.KEPT in life.notes for life in lives)


def _given(report: Report | None) -> list[Answer]:
    if report is None:
        return []
    return [*report.resumed, *([] if report.asked is None else [report.asked])]


def _right(answer: Answer, number: int, effects: set[int]) -> bool:
    if answer[0] != 201:
        return False
    try:
        told = json.loads(answer[1])
    except ValueError:
        return False
    return bool(told["order"] == number and told["effect"] in effects)
