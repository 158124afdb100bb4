"""When deadlines are extended: on a loop whose clock goes on by itself, so that nothing waits."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from semel.deadlines import Deadlines, Extend
from tests.virtual_loop import VirtualLoop

EVERY = 10.0
DEADLINE = 3 * EVERY


class Server:
    """Extends deadlines, and notes when; fails where it is told to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fails: Callable[[str, float], bool], end_after: float) -> None:
        self._loop, self._fails, self._end_after = loop, fails, end_after
        self.extended: list[float] = []
        self.tokens: dict[Any, float] = {}
        """When each was extended last."""
        self.failed: list[float] = []
        self.deadlines: Deadlines | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Extend]:
        self._answer("connect")

        async def extend(tokens: Sequence[Any]) -> None:
            self._answer("extend")
            self.extended.append(self._loop.time())
            self.tokens |= dict.fromkeys(tokens, self._loop.time())

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


LONGEST = 50.0


def last_extensions(*steps: tuple[float, Callable[[Deadlines], None]]) -> dict[Any, float]:
    """Have things happen at these times, and give when each token was extended last."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        server = Server(loop, lambda *_: False, end_after=4 * LONGEST)
        server.deadlines = Deadlines(server.connect, every=EVERY, longest=LONGEST, clock=loop.time)
        for at, step in (*steps, (4 * LONGEST, ended)):
            loop.call_at(at, step, server.deadlines)
        runner.run(server.deadlines._main())
    return server.tokens


def ended(deadlines: Deadlines) -> None:
    assert deadlines._end is not None
    deadlines._end.set()


def held(token: str, *, behind: str | None = None) -> Callable[[Deadlines], None]:
    return lambda deadlines: deadlines.hold(token, behind=behind)


def begun(token: str) -> Callable[[Deadlines], None]:
    return lambda deadlines: deadlines.begin(token)


def released(token: str) -> Callable[[Deadlines], None]:
    return lambda deadlines: deadlines.release(token)


def test_what_waits_behind_a_wedged_handler_comes_free() -> None:
    assert last_extensions((5, held("wedged")), (6, begun("wedged")), (7, held("waiting")))["waiting"] == 50.0


def test_what_is_held_and_extended_no_longer_is_over() -> None:
    found: list[bool] = []
    ask = (lambda deadlines: found.append(deadlines.is_over("wedged")),)
    steps = [(4.0, *ask), (5.0, held("wedged")), (6.0, begun("wedged")), (55.0, *ask), (57.0, *ask)]
    last_extensions(*steps, (58.0, released("wedged")), (59.0, *ask))
    assert found == [False, False, True, False]


def test_what_waits_is_extended_from_its_receipt_on() -> None:
    assert last_extensions((5, held("wedged")), (6, begun("wedged")), (45, held("late")))["late"] == 90.0


def test_what_waits_is_extended_while_handlers_begin() -> None:
    others = [(at, begun(f"other {at}")) for at in (45.0, 85.0)]
    assert last_extensions((5, held("waiting")), *others)["waiting"] == 130.0


def test_what_is_behind_a_wedged_one_comes_free_although_others_begin() -> None:
    others = [(at, begun(f"other {at}")) for at in (45.0, 85.0, 125.0)]
    first = [(5.0, held("wedged")), (6.0, held("next", behind="wedged")), (7.0, held("last", behind="next"))]
    found = last_extensions(*first, (8.0, begun("wedged")), *others)
    assert found == {"wedged": 50.0, "next": 50.0, "last": 50.0}


def test_what_was_behind_one_that_ended_waits_by_itself() -> None:
    steps = [
        (5.0, held("first")),
        (6.0, held("next", behind="first")),
        (7.0, begun("first")),
        (25.0, released("first")),
    ]
    assert last_extensions(*steps)["next"] == 50.0
    assert last_extensions(*steps, (45.0, begun("another")))["next"] == 90.0
