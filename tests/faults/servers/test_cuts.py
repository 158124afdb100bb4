"""Calls that are cut off from their server at every message: one outcome, no effect twice in silence, no key wedged."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from semel.api import open_store
from tests.decorated import CALL_STYLES
from tests.faults.callers import Caller
from tests.faults.servers.cuts import Position, call_with_cut, hows, positions, problems
from tests.faults.users import Colour
from tests.proxy.plan import Cut, How
from tests.servers.databases import Databases

FULL = os.environ.get("SEMEL_EFFORT") == "full"
TWICE_CUT = 500 if FULL else 10
PATIENCE = 3600 if FULL else 300

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE)]

Figures = Callable[[str, object], None]


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    databases: Databases = request.getfixturevalue(request.param)
    url = databases.new_database()
    with Caller(open_store(url), "threads") as caller:
        caller.run("first", lambda attempt: None)
    return url


def judge(url: str, colour: Colour, plans: Sequence[tuple[str, tuple[Cut, ...]]], *, gone: bool) -> str:
    """Cut as each plan says, and complain of all that went wrong; what was done is the answer."""
    complaints, runs, began, reached = [], Counter[int](), time.monotonic(), 0
    with Caller(open_store(url), colour) as other:
        for number, (name, cuts) in enumerate(plans, colour == "loop"):
            style = CALL_STYLES[number % 2]  # by turns, and the other one in the other colour
            story = call_with_cut(url, colour, style, other, *cuts, gone=gone)
            complaints += [f"{name}: {problem}" for problem in problems(story)]
            runs[len(story.ran)] += 1
            reached += sum(cut.done.is_set() for cut in cuts)
    assert not complaints, "\n".join(complaints)
    seconds = time.monotonic() - began
    return f"{len(plans)} calls, {reached} cuts, {runs[1]} ran once, {runs[2]} twice and said so, {seconds:.1f} s"


def named(position: Position, how: How) -> str:
    return f"{how.name} at {position.kind} {position.direction.value} during {position.during} ({position.number})"


def test_a_call_cut_at_any_message_goes_on(url: str, colour: Colour, record_property: Figures) -> None:
    plans = [
        (named(position, how), (Cut(position.direction, position.number, how),))
        for position in positions(url, colour)
        for how in hows(position)
    ]
    said = judge(url, colour, plans, gone=False)
    record_property("figures", said)
    assert all(cut.done.is_set() for _, cuts in plans for cut in cuts), "a cut that never happened proves nothing"


def test_a_call_cut_off_for_good_at_any_message_is_settled_by_the_next(
    url: str, colour: Colour, record_property: Figures
) -> None:
    plans = [
        (named(position, how), (Cut(position.direction, position.number, how),))
        for position in positions(url, colour)
        for how in hows(position)
        if position.during != "opening" and (FULL or how is not How.SPLIT)
    ]
    said = judge(url, colour, plans, gone=True)
    record_property("figures", said)
    assert all(cut.done.is_set() for _, cuts in plans for cut in cuts), "a cut that never happened proves nothing"


def test_a_call_cut_twice_goes_on(url: str, colour: Colour, record_property: Figures) -> None:
    chance = random.Random(1)
    places = [(position, how) for position in positions(url, colour) for how in hows(position)]
    plans = []
    for _ in range(TWICE_CUT):
        first, how = chance.choice(places)
        further = chance.randrange(1, 30)
        cuts = (Cut(first.direction, first.number, how), Cut(first.direction, first.number + further, How.DROP))
        plans.append((f"{named(first, how)}, and {further} messages later", cuts))
    record_property("figures", judge(url, colour, plans, gone=False))
