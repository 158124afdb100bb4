"""Counts never drift: after any history of ends, late ends and retries they are what a recount of the rows gives."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semel import Semel
from semel.batch import Batches
from semel.core.batch.operations import (
    BeginRun,
    FindPages,
    FinishPage,
    ItemEnd,
    ReadBatch,
    ReadItems,
    ReopenItems,
    SettleItems,
    TakePage,
)
from semel.core.batch.values import ItemStatus
from semel.core.flow import Flow, ask
from semel.engine.engine import engine_of
from semel.stores.memory import MemoryStore
from semel.testing.clock import VirtualClock
from tests.effort import FULL
from tests.servers.records import emptied

pytestmark = pytest.mark.slow
ITEMS, PAGE = 7, 3
PAGES = range(3)
ENDS = [ItemStatus.COMPLETED, ItemStatus.FAILED, ItemStatus.SKIPPED, ItemStatus.IN_DOUBT]
PLACES = ["memory", "sqlite", "postgresql", "mariadb"]

pages = st.sampled_from(PAGES)
settled = st.tuples(
    st.just("settle"), pages, st.dictionaries(st.integers(0, PAGE - 1), st.sampled_from(ENDS), min_size=1)
)
reopened = st.tuples(
    st.just("reopen"), pages, st.sampled_from([ItemStatus.FAILED, ItemStatus.IN_DOUBT]), st.sets(st.integers(0, 2))
)
finished = st.tuples(st.just("finish"), pages)
histories = st.lists(st.one_of(settled, settled, reopened, finished), max_size=12)


class Ground:
    """Batches on one store, one for each history."""

    def __init__(self, semel: Semel) -> None:
        self.engine: Any = engine_of(semel)
        self._batches = Batches(semel)
        self._names = itertools.count()

    def ask(self, operation: Any) -> Any:
        def flow() -> Flow[Any]:
            return (yield from ask(operation))

        return self.engine.perform_on(None, flow())

    def begin(self) -> tuple[str, int]:
        """A batch whose pages were all handed out: its name and its number."""
        name = f"b{next(self._names)}"
        self._batches.start(name, range(ITEMS), operation="pay")
        number = self.ask(ReadBatch("", name)).batch.number
        self.ask(BeginRun(number, PAGE))
        for _ in PAGES:
            self.ask(TakePage(number))
        return name, number

    def apply(self, number: int, event: tuple[Any, ...]) -> None:
        """Do one thing of a history, whether or not it changes anything."""
        what, page = event[:2]
        if what == "settle":
            ends = [ItemEnd(page * PAGE + place, status) for place, status in event[2].items()]
            self.ask(SettleItems(number, page, tuple(end for end in ends if end.position < ITEMS)))
        elif what == "reopen":
            positions = tuple(page * PAGE + place for place in event[3])
            self.ask(ReopenItems(number, page, positions, int(event[2])))
        else:
            found = self.ask(FindPages(number, "all", -1, len(PAGES))).pages
            self.ask(FinishPage(number, page, found[page].round))


@pytest.fixture(scope="module", params=PLACES)
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    if request.param == "memory":
        place: Any = MemoryStore(clock=VirtualClock().store_clock)
    elif request.param == "sqlite":
        place = f"sqlite:///{tmp_path_factory.mktemp('counts') / 'semel.db'}"
    else:
        databases = request.getfixturevalue(request.param)
        place = emptied(databases, databases.url)
    with Semel(place) as semel:
        yield Ground(semel)


@settings(max_examples=300 if FULL else 40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=histories)
def test_the_counts_are_what_a_recount_gives(ground: Ground, history: list[tuple[Any, ...]]) -> None:
    name, number = ground.begin()
    for event in history:
        ground.apply(number, event)
        found = ground.ask(ReadBatch("", name))
        rows = Counter(item.status for item in ground.ask(ReadItems(number, 0, ITEMS)).items)
        counts = found.counts
        told = [counts.completed, counts.failed, counts.skipped, counts.in_doubt]
        assert told == [rows[int(end)] for end in ENDS], event


@settings(max_examples=300 if FULL else 40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=histories)
def test_a_page_that_is_done_has_no_pending_item(ground: Ground, history: list[tuple[Any, ...]]) -> None:
    _, number = ground.begin()
    for event in history:
        ground.apply(number, event)
    unfinished = {found.page for found in ground.ask(FindPages(number, "open", -1, len(PAGES))).pages}
    pending = {item.position // PAGE for item in ground.ask(ReadItems(number, 0, ITEMS)).items if item.status == 0}
    assert pending <= unfinished
