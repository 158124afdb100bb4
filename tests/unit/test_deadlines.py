"""When deadlines are extended: on a loop whose clock goes on by itself, so that nothing waits."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from semel.deadlines import Deadlines, Extend

EVERY = 10.0
DEADLINE = 3 * EVERY


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in which the time until the next timer takes no time."""

    _now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


class Server:
    """Extends deadlines, and notes when; fails where it is told to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fails: Callable[[str, float], bool], end_after: float) -> None:
        self._loop, self._fails, self._end_after = loop, fails, end_after
        self.extended: list[float] = []
        self.failed: list[float] = []
        self.deadlines: Deadlines | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Extend]:
        self._answer("connect")

        async def extend(tokens: Sequence[Any]) -> None:
            self._answer("extend")
            self.extended.append(self._loop.time())

        yield extend

    def _answer(self, asked: str) -> None:
        now = self._loop.time()
        if now > self._end_after:
            assert self.deadlines is not None
            assert self.deadlines._end is not None
            self.deadlines._end.set()
        elif self._fails(asked, now):
            self.failed.append(now)
            raise ConnectionError("cut")


def extensions(fails: Callable[[str, float], bool], *, end_after: float = 6 * EVERY) -> Server:
    """Have one deadline extended for so long, and give what the server saw."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        server = Server(runner.get_loop(), fails, end_after)
        server.deadlines = Deadlines(server.connect, every=EVERY, longest=1000.0)
        server.deadlines.hold("entry")
        runner.run(server.deadlines._main())
    return server


def longest_gap(server: Server) -> float:
    times = [0.0, *server.extended]
    return max(later - earlier for earlier, later in itertools.pairwise(times))


def test_deadlines_are_extended_at_regular_times() -> None:
    assert extensions(lambda *_: False).extended[:5] == [10.0, 20.0, 30.0, 40.0, 50.0]


@pytest.mark.parametrize("asked", ["extend", "connect"])
def test_one_failure_costs_a_part_of_the_deadline(asked: str) -> None:
    failures = iter([True])

    def fails(what: str, now: float) -> bool:
        is_cut = asked == "connect" or now > EVERY  # the first connection is made at the beginning
        return what == asked and is_cut and next(failures, False)

    server = extensions(fails)
    assert len(server.failed) == 1
    assert longest_gap(server) < DEADLINE / 2


def test_an_outage_that_is_shorter_than_a_deadline_lets_none_pass() -> None:
    server = extensions(lambda _, now: EVERY < now < 2.5 * EVERY)
    assert len(server.failed) > 1
    assert longest_gap(server) < DEADLINE


def test_what_is_tried_again_waits_in_between() -> None:
    server = extensions(lambda *_: True)
    gaps = [later - earlier for earlier, later in zip(server.failed, server.failed[1:], strict=False)]
    assert min(gaps) >= EVERY / 4


def test_after_a_failure_the_times_are_regular_again() -> None:
    failures = iter([True])
    server = extensions(lambda what, _: what == "extend" and next(failures, False))
    assert server.extended[:3] == [12.5, 22.5, 32.5]
