"""Sweeps on servers: no lapsed lease is missed, whatever happens between and during sweeps, although few are read.

The server is a table in memory, at which two sweeps work in turns while claims are committed late, renewed and ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest

from semel.core.operations import MarkLapsed, Purge
from semel.stores.sql import dialect
from semel.stores.sql.dialect import Command, Lapse, Row, ServerSweeps, Sweep, SweepState

SECOND = 1_000_000
HOUR = 3600 * SECOND
KEEPS = [HOUR, 24 * HOUR, 90 * 24 * HOUR]
LEASE = 30 * SECOND
LATE = 50 * SECOND


@dataclass
class Kept:
    """A record: what a sweep reads of it, from when on it is committed, and whether somebody has locked it."""

    keep_us: int
    claimed_us: int
    lease_us: int
    committed_us: int
    is_running: bool = True
    is_locked: bool = False

    @property
    def expires_us(self) -> int:
        return self.claimed_us + self.keep_us


@dataclass
class Server(ServerSweeps):
    """The statements of a sweep as functions on a table."""

    now: int = 1_000 * 24 * HOUR
    records: dict[bytes, Kept] = field(default_factory=dict)
    note: bytes | None = None
    looked_at: int = 0

    def __post_init__(self) -> None:
        list(self.steps(self.lapse(MarkLapsed(10))))

    def visible(self) -> dict[bytes, Kept]:
        return {digest: one for digest, one in self.records.items() if one.committed_us <= self.now}

    def _ask(self, answer: Callable[[], list[Row]]) -> Command:
        return Command("", (answer,))

    def next_keep(self, keep_us: int) -> Command:
        return self._ask(
            lambda: [(min((one.keep_us for one in self.visible().values() if one.keep_us > keep_us), default=None),)]
        )

    def purge_kept(self, keep_us: int, limit: int, *, equal: bool) -> Sweep:
        expired = [
            digest
            for digest, one in self.visible().items()
            if (one.keep_us == keep_us if equal else one.keep_us > keep_us)
            and not one.is_running
            and one.expires_us <= self.now
        ][:limit]
        for digest in expired:
            del self.records[digest]
        yield self._ask(list)
        return len(expired)

    def sweep_state(self) -> Command:
        return self._ask(lambda: [(self.note, self.now)])

    def save_sweep_state(self, state: bytes, seen: bytes | None) -> Command:
        def save() -> list[Row]:
            if self.note == seen:
                self.note = state
            return []

        return self._ask(save)

    def running_kept(self, keep_us: int, since_us: int, limit: int, *, equal: bool) -> Command:
        def found() -> list[Row]:
            window = [
                (one.claimed_us, digest, one)
                for digest, one in self.visible().items()
                if (one.keep_us == keep_us if equal else one.keep_us > keep_us) and one.claimed_us >= since_us
            ]
            self.looked_at += len(window)
            running = [(digest, claimed, one.lease_us) for claimed, digest, one in sorted(window) if one.is_running]
            return running[:limit]

        return self._ask(found)

    def running_among(self, digests: Sequence[bytes]) -> Command:
        def found() -> list[Row]:
            seen = {digest: one for digest, one in self.visible().items() if digest in digests and one.is_running}
            self.looked_at += len(digests)
            return [(digest, one.claimed_us, one.lease_us) for digest, one in seen.items()]

        return self._ask(found)

    def mark_lapsed(self, digests: Sequence[bytes]) -> Lapse:
        def mark() -> list[Row]:
            marked = []
            for digest in digests:
                one = self.records.get(digest)
                if one is not None and one.is_running and one.lease_us <= self.now and not one.is_locked:
                    one.is_running = False
                    marked.append((digest, "charge", self.now - one.claimed_us))
            return marked

        return (yield self._ask(mark))

    @staticmethod
    def steps(sweep: Any) -> Any:
        """Carry a sweep out, with a stop after each statement."""
        reply: Any = None
        try:
            while True:
                reply = sweep.send(reply).values[0]()
                yield
        except StopIteration:
            return

    def sweep(self) -> None:
        list(self.steps(self.lapse(MarkLapsed(10))))


class World:
    """Workers and two sweepers at one server, by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.server = Server()
        self.sweepers: list[Any] = [iter(()), iter(())]

    def claim(self) -> None:
        number = self.chance.randbytes(4)
        now = self.server.now
        late = self.chance.choice([0, 0, 0, self.chance.randrange(LATE)])
        self.server.records[number] = Kept(self.chance.choice(KEEPS), now, now + LEASE, now + late)

    def change(self) -> None:
        running = [one for one in self.server.visible().values() if one.is_running]
        if running:
            one = self.chance.choice(running)
            match self.chance.randrange(4):
                case 0 if one.lease_us > self.server.now:
                    one.lease_us = self.server.now + LEASE * self.chance.choice([1, 100])
                case 1:
                    one.is_running = False
                case 2:
                    one.is_running, one.claimed_us = True, self.server.now  # a take-over
                    one.lease_us = self.server.now + LEASE
                case 3:
                    one.is_locked = not one.is_locked

    def sweep_on(self) -> None:
        place = self.chance.randrange(2)
        if next(self.sweepers[place], self) is self:
            self.sweepers[place] = Server.steps(self.server.lapse(MarkLapsed(self.chance.choice([1, 10]))))

    def live(self, turns: int) -> None:
        actions = [self.claim, self.change, self.sweep_on, self.sweep_on]
        for _ in range(turns):
            self.chance.choice(actions)()
            self.server.now += self.chance.choice([0, SECOND, 10 * SECOND])

    def missed(self) -> list[bytes]:
        """What no sweep marks once every lease is over and nobody holds a record any more."""
        server = self.server
        for one in server.records.values():
            one.is_locked = False
        server.now = max([server.now, *(one.lease_us for one in server.records.values() if one.is_running)]) + LATE
        for _ in range(len(server.records) + 2):
            server.sweep()
        return [digest for digest, one in server.records.items() if one.is_running]


def worlds() -> int:
    """In how many worlds a lapsed lease is missed."""
    missed = 0
    for seed in range(150):
        world = World(seed)
        world.live(60)
        missed += bool(world.missed())
    return missed


def test_no_lapsed_lease_is_missed() -> None:
    with patch.object(dialect, "_MOST_RUNNING", 3):
        assert worlds() == 0


def _forgetting(self: Any, marked: Sequence[Row], complete_us: int) -> SweepState:
    del marked
    return SweepState(self.now - dialect._MARGIN_US, (), self.now, complete_us)


MISTAKES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "none": nullcontext,
    "claims that are committed late are passed": lambda: patch.object(dialect, "_MARGIN_US", 0),
    "what is running is passed": lambda: patch.object(dialect._Window, "next_state", _forgetting),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_worlds_find_mistakes(mistake: str) -> None:
    with MISTAKES[mistake]():
        assert bool(worlds()) == (mistake != "none")


def test_a_sweep_looks_only_at_what_was_claimed_since_the_last_one() -> None:
    server = Server()
    for number in range(100):
        server.records[b"old%d" % number] = Kept(KEEPS[0], server.now, server.now, server.now, is_running=False)
    server.now += 300 * SECOND
    server.sweep()
    server.records[b"new"] = Kept(KEEPS[1], server.now, server.now, server.now)
    server.looked_at = 0
    server.sweep()
    assert server.looked_at == 1
    assert not server.records[b"new"].is_running


@pytest.mark.parametrize("passed", [24 * HOUR, -HOUR], ids=["after a day", "after the clock was set back"])
def test_all_records_are_looked_at(passed: int) -> None:
    server = Server()
    server.now += HOUR
    server.sweep()
    server.now += passed
    missed = server.now - 5 * HOUR
    server.records[b"imported"] = Kept(KEEPS[1], missed, missed, server.now)
    server.sweep()
    assert not server.records[b"imported"].is_running


def test_records_that_all_have_another_keep_are_found() -> None:
    server = Server()
    for number in range(100):
        server.records[b"%d" % number] = Kept(HOUR + number, server.now, server.now, server.now)
    server.now += SECOND
    list(server.steps(server.lapse(MarkLapsed(500))))
    assert not any(one.is_running for one in server.records.values())


def test_a_purge_goes_through_every_keep() -> None:
    server = Server()
    for number, keep_us in enumerate([*KEEPS, *range(1, 90)]):
        server.records[b"%d" % number] = Kept(keep_us, server.now, 0, server.now, is_running=False)
    server.now += 100 * 24 * HOUR
    list(server.steps(server.purge(Purge(1000))))
    assert server.records == {}
