"""One run from the first kill to the verdict: consumers, relays and the broker are killed while events are under way.

What always holds: a kill is SIGKILL to a process that was not reaped yet; what it hit is read once it is dead. Time
decides only how long a run takes: the verdict comes from the database.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.kill.events.board import MEANING, OF_CONSUMERS, OF_RELAYS, At, Board, Field, Slot
from tests.kill.events.places import TABLES, way_over
from tests.kill.events.workers import BOARD, ERRORS
from tests.kill.outages import Broker

_RELAYS: Final = 2
_CONSUMERS: Final = 3
_EVENTS: Final = 24
"""That are added for each kill, unless a plan says otherwise."""
_BACKLOG: Final = 200
"""Events without an effect yet above which no more are added: workers are killed faster than they could catch up."""
_ARRIVAL: Final = 10.0
"""Seconds in which somebody should get to a position; to one that was never hit, it is waited for longer."""
_LOOK: Final = 0.01
"""Whoever is at a position stands there until the killer has looked."""
_FEED: Final = 4
"""Events that are added where nobody gets to a position because nothing is left to do."""
_FEED_EVERY: Final = 0.5
_ROOT: Final = Path(__file__).parents[3]


@dataclass(frozen=True)
class Plan:
    """How many kills of whom, chosen by a seed."""

    consumers: int
    relays: int
    brokers: int
    seed: int = 1
    events: int = _EVENTS
    """That are added for each kill."""
    settle_within: float = 120.0
    """Seconds in which something has to arrive in the end, for as long as something is missing."""


SMALL: Final = Plan(len(OF_CONSUMERS), len(OF_RELAYS), 1, events=4)
"""One kill at every position, and one of the broker."""


@dataclass
class Outcome:
    """What was killed, and what the database says in the end."""

    seconds: float = 0.0
    how: str = "kills (SIGKILL) of a"
    """What is done to the broker."""
    kills: Counter[str] = field(default_factory=Counter)
    hits: Counter[At] = field(default_factory=Counter)
    under_way: Counter[str] = field(default_factory=Counter)
    """Kills while an event was under way, by who was killed."""
    duplicates: int = 0
    placed: int = 0
    exact: int = 0
    counted: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The report."""
        lines = [
            f"{self.kills[who]} {how} {who}, {self.under_way[who]} while events were under way"
            for who, how in zip(("consumer", "relay", "broker"), (*["kills (SIGKILL) of a"] * 2, self.how), strict=True)
        ]
        lines += [f"{self.hits[at]:6}  {MEANING[at]}" for at in At]
        lines.append(f"{self.placed} events committed, {self.seconds:.0f} s")
        lines.append(f"{self.exact} effects in transactions, {self.counted} without one")
        lines.append(f"{self.duplicates} deliveries were told as duplicates")
        return "\n".join([*lines, *(f"PROBLEM {problem}" for problem in self.problems)])


class EventKiller:
    """One run on an empty database and a private broker, with its board in `folder`."""

    def __init__(
        self,
        folder: Path,
        database: str,
        kind: str,
        broker: Broker,
        *,
        plan: Plan,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._folder = folder
        self._database = database
        self._kind = kind
        self._broker = broker
        self._plan = plan
        self._tell = tell
        self._random = random.Random(plan.seed)
        self._roles = ["producer", *["relay"] * _RELAYS, *["consumer"] * _CONSUMERS]
        self._board = Board(folder / BOARD, len(self._roles))
        self._slots = [self._board.slot(number) for number in range(len(self._roles))]
        self._pids = [0] * len(self._roles)
        self._outcome = Outcome(how=getattr(broker, "how", Outcome.how))

    def run(self) -> Outcome:
        """Kill as planned, let everything arrive, and judge."""
        with psycopg.connect(self._database, autocommit=True) as connection:
            connection.execute(TABLES)
        asyncio.run(way_over(self._kind, self._broker.endpoint.url).make())
        began = time.monotonic()
        command = [sys.executable, "-m", "tests.kill.events.workers", self._folder, self._database, self._kind]
        with subprocess.Popen(
            [*map(str, command), self._broker.endpoint.url, str(len(self._roles))],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as self._zygote:
            try:
                for number in range(len(self._roles)):
                    self._spawn(number)
                self._board.allow(self._plan.events)
                self._rampage()
                self._end_producer()
                self._settle()
                self._stop()
            finally:
                assert self._zygote.stdin is not None
                self._zygote.stdin.close()
        self._outcome.seconds = time.monotonic() - began
        self._judge()
        return self._outcome

    def _order(self, *words: object) -> int:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        print(*words, file=self._zygote.stdin, flush=True)
        answer = self._zygote.stdout.readline()
        assert answer, self._complaint("the zygote is gone")
        return int(answer)

    def _spawn(self, number: int) -> None:
        self._pids[number] = self._order("spawn", self._roles[number], number)

    def _complaint(self, what: str) -> str:
        errors = self._folder / ERRORS
        return f"{what}\n{errors.read_text() if errors.exists() else ''}"

    def _of(self, role: str) -> list[int]:
        return [number for number, one in enumerate(self._roles) if one == role]

    def _rampage(self) -> None:
        plan = self._plan
        order = ["consumer"] * plan.consumers + ["relay"] * plan.relays + ["broker"] * plan.brokers
        self._random.shuffle(order)
        for number, who in enumerate(order):
            with psycopg.connect(self._database, autocommit=True) as connection:
                waiting = sum(self._missing(connection))
            if waiting < _BACKLOG:
                self._board.allow(plan.events)
            self._attack(who)
            self._tell(f"{number + 1} of {len(order)} kills, {self._board.added} events")
            assert not (self._folder / ERRORS).exists(), self._complaint("a worker failed")

    def _attack(self, who: str) -> None:
        if who == "broker":
            self._kill_broker()
            return
        positions, numbers = (OF_CONSUMERS if who == "consumer" else OF_RELAYS), self._of(who)
        uncovered = [at for at in positions if not self._outcome.hits[at]]
        if uncovered or self._random.random() < 0.6:
            at = self._random.choice(uncovered or positions)
            found = self._lie_in_wait(at, numbers, self._plan.settle_within if uncovered else _ARRIVAL)
            self._kill(self._random.choice(numbers) if found is None else found, at if found is not None else None)
            self._lift_barriers()
        else:
            time.sleep(self._random.uniform(0, 0.02))
            busy = [number for number in numbers if self._slots[number].word(Field.UNDER_WAY)]
            self._kill(self._random.choice(busy or numbers), None)

    def _lie_in_wait(self, at: At, numbers: Sequence[int], within: float = _ARRIVAL) -> int | None:
        """Stop everybody who gets to a position; gives the first."""
        began = fed = time.monotonic()
        for number in numbers:
            self._slots[number].set_barrier(at)
        while (now := time.monotonic()) < began + within:
            for number in numbers:
                if self._slots[number].has_arrived:
                    return number
            if now > fed + _FEED_EVERY and self._board.added >= self._board.allowed:
                self._board.allow(_FEED)
                fed = now
            time.sleep(_LOOK)
        return None

    def _lift_barriers(self) -> None:
        for slot in self._slots:
            slot.set_barrier(None)

    def _kill(self, number: int, at: At | None) -> None:
        role, slot = self._roles[number], self._slots[number]
        os.kill(self._pids[number], signal.SIGKILL)
        status = os.waitstatus_to_exitcode(self._order("reap", self._pids[number]))
        assert status == -signal.SIGKILL, self._complaint(f"a {role} ended by itself with {status}")
        self._outcome.kills[role] += 1
        self._outcome.under_way[role] += bool(slot.word(Field.UNDER_WAY))
        if at is not None:
            self._outcome.hits[at] += 1
        self._read(slot)
        slot.wipe()
        self._spawn(number)

    def _read(self, slot: Slot) -> None:
        self._outcome.duplicates += slot.word(Field.REPEATS)

    def _kill_broker(self) -> None:
        """End the broker in the middle of what everybody does, and start it again on its data."""
        self._lie_in_wait(self._random.choice([*OF_CONSUMERS, *OF_RELAYS]), range(1, len(self._roles)))
        busy = any(slot.word(Field.UNDER_WAY) for slot in self._slots)
        if self._random.random() < 0.5:
            self._lift_barriers()
            time.sleep(self._random.uniform(0, 0.005))
        self._broker.kill()
        self._outcome.kills["broker"] += 1
        self._outcome.under_way["broker"] += busy
        self._lift_barriers()
        self._broker.start()

    def _end_producer(self) -> None:
        """Have the transaction committed that was open all the time."""
        self._board.end_producing()
        (number,) = self._of("producer")
        status = self._order("reap", self._pids[number])
        assert status == 0, self._complaint(f"the producer ended with {status}")

    def _missing(self, connection: psycopg.Connection) -> tuple[int, int]:
        """How many events that were committed have no effect yet, with a transaction and without."""
        found = connection.execute(_MISSING).fetchone()
        assert found is not None
        return found[0], found[1]

    def _settle(self) -> None:
        """Let every event that was committed arrive at both consumers, for as long as any does."""
        with psycopg.connect(self._database, autocommit=True) as connection:
            missing, deadline = self._missing(connection), time.monotonic() + self._plan.settle_within
            while any(missing) and time.monotonic() < deadline:
                assert not (self._folder / ERRORS).exists(), self._complaint("a worker failed")
                time.sleep(0.05)
                now = self._missing(connection)
                if now != missing:
                    missing, deadline = now, time.monotonic() + self._plan.settle_within

    def _stop(self) -> None:
        """Ask everybody to end, which they do once what is under way has ended."""
        numbers = [number for number, role in enumerate(self._roles) if role != "producer"]
        for number in numbers:
            os.kill(self._pids[number], signal.SIGTERM)
        statuses = [os.waitstatus_to_exitcode(self._order("reap", self._pids[number])) for number in numbers]
        for number in numbers:
            self._read(self._slots[number])
        assert not any(statuses), self._complaint(f"workers ended with {statuses}")

    def _judge(self) -> None:
        outcome = self._outcome
        with psycopg.connect(self._database, autocommit=True) as connection:

            def first(sql: str) -> Any:
                row = connection.execute(sql).fetchone()
                assert row is not None
                return row[0]

            outcome.placed = first("SELECT count(*) FROM placed")
            outcome.exact = first("SELECT count(*) FROM exact")
            outcome.counted = first("SELECT count(*) FROM counted")
            for name, sql in _CHECKS.items():
                found = [row[0] for row in connection.execute(sql).fetchall()]
                if found:
                    outcome.problems.append(f"{name}: {len(found)}, such as {found[:5]}")


_MISSING: Final = """
    SELECT placed.number - (SELECT count(DISTINCT subject) FROM exact),
        placed.number - (SELECT count(DISTINCT subject) FROM counted)
    FROM (SELECT count(*) AS number FROM placed) AS placed
"""
_CHECKS: Final = {
    "committed and without an effect in a transaction": (
        "SELECT subject FROM placed WHERE subject NOT IN (SELECT subject FROM exact)"
    ),
    "more than one effect in a transaction": "SELECT subject FROM exact GROUP BY subject HAVING count(*) > 1",
    "an effect in a transaction of what never committed": (
        "SELECT subject FROM exact WHERE subject NOT IN (SELECT subject FROM placed)"
    ),
    "committed and without an effect": "SELECT subject FROM placed WHERE subject NOT IN (SELECT subject FROM counted)",
    "an effect of what never committed": (
        "SELECT subject FROM counted WHERE subject NOT IN (SELECT subject FROM placed)"
    ),
    "an effect repeated without a word of doubt": (
        "SELECT subject FROM counted WHERE NOT in_doubt GROUP BY subject HAVING count(*) > 1"
    ),
    "dead letters": "SELECT reason FROM semel_letter",
    "parked events": "SELECT id FROM semel_parked",
}


def demand_each_once(outcome: Outcome, plan: Plan) -> None:
    """Demand that every event had its effect, and that the run had the kills to prove it."""
    assert outcome.problems == [], outcome.text
    assert outcome.placed > 0, outcome.text
    for who, wanted in (("consumer", plan.consumers), ("relay", plan.relays), ("broker", plan.brokers)):
        assert outcome.kills[who] == wanted, outcome.text
        assert outcome.under_way[who] > 0, f"no kill of a {who} hit an event\n{outcome.text}"
    never = [at.name for at in At if not outcome.hits[at]]
    assert never == [], f"a run in which a position was never hit is not a pass: {never}\n{outcome.text}"
    assert outcome.duplicates > 0, f"nothing was delivered twice, so no inbox was needed\n{outcome.text}"
