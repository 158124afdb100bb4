"""One run from the first kill to the verdict: workers of Celery and its broker are killed while tasks are under way.

What always holds: a kill is SIGKILL to a process that was not reaped yet; what it hit is read once it is dead. Time
decides only how long a run takes: the verdict comes from the database.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from semel import Semel
from tests.kill.celery.workers import BOARD, ERRORS, MEANING, OPERATION, TABLES, WORKERS, At, make_app
from tests.kill.events.board import Board, Field
from tests.kill.outages import Broker

_ORDERS: Final = 4
"""That are sent for each kill; every other one twice."""
_BACKLOG: Final = 60
"""Orders that are not paid yet above which no more are sent: workers are killed faster than they could catch up."""
_ARRIVAL: Final = 10.0
"""Seconds in which somebody should get to a position; to one that was never hit, it is waited for longer."""
_PATIENCE: Final = 120.0
_LOOK: Final = 0.002
_FEED_EVERY: Final = 0.3
"""Seconds without anybody at a position after which one more order is sent, by several callers at once."""
_CALLERS: Final = 4
_QUIET: Final = 20.0
"""Seconds without progress after which what is missing is taken for lost: a broker tells nobody what it has lost."""
_ROOT: Final = Path(__file__).parents[3]


@dataclass(frozen=True)
class Plan:
    """How many kills of whom, chosen by a seed."""

    workers: int
    brokers: int
    seed: int = 1


@dataclass
class Outcome:
    """What was killed, and what the database says in the end."""

    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    hits: Counter[At] = field(default_factory=Counter)
    under_way: Counter[str] = field(default_factory=Counter)
    replays: int = 0
    orders: int = 0
    asked: int = 0
    lost: int = 0
    how: str = "kills (SIGKILL) of a"
    """What is done to the broker."""
    ended: int = 0
    """Workers that ended by themselves when their broker was gone, and were started again as a supervisor does."""
    problems: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The report."""
        lines = [
            f"{self.kills[who]} {how} {who}, {self.under_way[who]} while a task was under way"
            for who, how in (("worker", "kills (SIGKILL) of a"), ("broker", self.how))
        ]
        lines += [f"{self.hits[at]:6}  {MEANING[at]}" for at in At]
        lines.append(f"{self.orders} orders, each paid once; the provider was asked {self.asked} times")
        lines.append(f"{self.replays} tasks were replayed, {self.lost} messages were lost and their orders sent again")
        lines.append(f"{self.ended} workers ended by themselves in an outage of the broker and were started again")
        lines.append(f"{self.seconds:.0f} s")
        return "\n".join([*lines, *(f"PROBLEM {problem}" for problem in self.problems)])


class CeleryKiller:
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
        self._board = Board(folder / BOARD, WORKERS)
        self._slots = [self._board.slot(number) for number in range(WORKERS)]
        self._pids = [0] * WORKERS
        self._outcome = Outcome(how=getattr(broker, "how", Outcome.how))

    def run(self) -> Outcome:
        """Kill as planned, let every task end, and judge."""
        began = time.monotonic()
        url = self._broker.endpoint.url
        command = [
            sys.executable,
            "-m",
            "tests.kill.celery.workers",
            str(self._folder),
            self._database,
            self._kind,
            url,
        ]
        with (
            psycopg.connect(self._database, autocommit=True) as self._connection,
            Semel(self._database) as self._semel,
            subprocess.Popen(
                command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as self._zygote,
        ):
            self._connection.execute(TABLES)
            self._app, _ = make_app(self._kind, url, self._database)
            self._app.control.purge()  # of a run before, on a server that both use
            try:
                for number in range(WORKERS):
                    self._spawn(number)
                self._rampage()
                self._settle()
            finally:
                assert self._zygote.stdin is not None
                self._zygote.stdin.close()
                self._app.close()
            self._judge()
        self._outcome.seconds = time.monotonic() - began
        return self._outcome

    def _order(self, *words: object) -> int:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        print(*words, file=self._zygote.stdin, flush=True)
        answer = self._zygote.stdout.readline()
        assert answer, self._complaint("the zygote is gone")
        return int(answer)

    def _spawn(self, number: int) -> None:
        self._pids[number] = self._order("spawn", number)

    def _complaint(self, what: str) -> str:
        errors = self._folder / ERRORS
        return f"{what}\n{errors.read_text() if errors.exists() else ''}"

    def _send(self, order_id: str) -> None:
        self._app.tasks["pay"].delay(order_id)

    def _send_some(self) -> None:
        for number in range(_ORDERS):
            self._send_new(1 + number % 2)

    def _send_new(self, callers: int) -> None:
        order_id = f"o-{self._outcome.orders}"
        self._outcome.orders += 1
        for _ in range(callers):
            self._send(order_id)

    def _rampage(self) -> None:
        plan = self._plan
        order = ["worker"] * plan.workers + ["broker"] * plan.brokers
        self._random.shuffle(order)
        for number, who in enumerate(order):
            if self._outcome.orders - self._completed() < _BACKLOG:
                self._send_some()
            self._supervise()
            if who == "broker":
                self._kill_broker()
            else:
                while not self._attack():
                    self._supervise()
            self._tell(f"{number + 1} of {len(order)} kills, {self._outcome.orders} orders")

    def _supervise(self) -> None:
        """Start those again that ended by themselves."""
        for number, pid in enumerate(self._pids):
            if _has_ended(pid):
                self._start_again(number, self._order("reap", pid))

    def _start_again(self, number: int, status: int) -> None:
        # The transport for Redis may raise an error of its own when its server is gone, and then the worker ends. It
        # says so in its log, and its exit status is that of an ordinary end.
        is_known = self._kind == "redis" and self._outcome.kills["broker"] > 0 and status == 0
        assert is_known, self._complaint(f"a worker ended by itself with {os.waitstatus_to_exitcode(status)}")
        self._outcome.ended += 1
        self._outcome.replays += self._slots[number].word(Field.REPEATS)
        self._slots[number].wipe()
        self._spawn(number)

    def _attack(self) -> bool:
        """Kill one; gives whether there was one to be killed."""
        uncovered = [at for at in At if not self._outcome.hits[at]]
        if uncovered or self._random.random() < 0.7:
            at = self._random.choice(uncovered or list(At))
            found = self._lie_in_wait(at, _PATIENCE if uncovered else _ARRIVAL)
            victim = self._random.randrange(WORKERS) if found is None else found
            has_hit = self._kill(victim, at if found is not None else None)
            self._lift_barriers()
            return has_hit
        time.sleep(self._random.uniform(0, 0.05))
        busy = [number for number in range(WORKERS) if self._slots[number].word(Field.UNDER_WAY)]
        return self._kill(self._random.choice(busy or list(range(WORKERS))), None)

    def _lie_in_wait(self, at: At, within: float = _ARRIVAL) -> int | None:
        """Stop everybody who gets to a position; gives the first."""
        began = fed = time.monotonic()
        for slot in self._slots:
            slot.set_barrier(at)
        while (now := time.monotonic()) < began + within:
            for number, slot in enumerate(self._slots):
                if slot.has_arrived:
                    return number
            if now > fed + _FEED_EVERY:
                self._feed()
                fed = now
            time.sleep(_LOOK)
        return None

    def _feed(self) -> None:
        """Send one more order, unless many are under way."""
        if self._outcome.orders - self._completed() < WORKERS:
            self._send_new(_CALLERS)

    def _lift_barriers(self) -> None:
        for slot in self._slots:
            slot.set_barrier(None)

    def _kill(self, number: int, at: At | None) -> bool:
        slot = self._slots[number]
        os.kill(self._pids[number], signal.SIGKILL)
        status = self._order("reap", self._pids[number])
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            self._start_again(number, status)
            return False
        self._outcome.kills["worker"] += 1
        self._outcome.under_way["worker"] += bool(slot.word(Field.UNDER_WAY))
        if at is not None:
            self._outcome.hits[at] += 1
        self._outcome.replays += slot.word(Field.REPEATS)
        slot.wipe()
        self._spawn(number)
        return True

    def _kill_broker(self) -> None:
        """End the broker in the middle of what everybody does, and start it again on its data."""
        self._lie_in_wait(self._random.choice(list(At)))
        busy = any(slot.word(Field.UNDER_WAY) for slot in self._slots)
        self._broker.kill()
        self._outcome.kills["broker"] += 1
        self._outcome.under_way["broker"] += busy
        self._lift_barriers()
        self._broker.start()

    def _completed(self) -> int:
        return self._semel.count(operation=OPERATION, status="completed")

    def _settle(self) -> None:
        """Let every order be paid, for as long as any is."""
        completed, deadline = self._completed(), time.monotonic() + _QUIET
        while completed < self._outcome.orders:
            if time.monotonic() > deadline:
                self._send_what_was_lost()
                deadline = time.monotonic() + _QUIET
            time.sleep(0.05)
            self._supervise()
            now = self._completed()
            if now != completed:
                completed, deadline = now, time.monotonic() + _QUIET
        self._outcome.replays += sum(slot.word(Field.REPEATS) for slot in self._slots)

    def _send_what_was_lost(self) -> None:
        """Do what a caller does who has no answer: send it again, under the same key."""
        missing = [f"o-{number}" for number in range(self._outcome.orders) if not self._is_completed(f"o-{number}")]
        self._outcome.lost += len(missing)
        for order_id in missing:
            self._send(order_id)

    def _is_completed(self, order_id: str) -> bool:
        record = self._semel.read(order_id, operation=OPERATION)
        return record is not None and record.status == "completed"

    def _judge(self) -> None:
        outcome = self._outcome

        def rows(sql: str) -> list[Any]:
            return [row[0] for row in self._connection.execute(sql).fetchall()]

        (outcome.asked,) = rows("SELECT count(*) FROM asked")
        (paid,) = rows("SELECT count(DISTINCT order_id) FROM paid")
        if paid != outcome.orders:
            outcome.problems.append(f"{outcome.orders} orders, {paid} of them paid")
        for name, sql in _CHECKS.items():
            if found := rows(sql):
                outcome.problems.append(f"{name}: {len(found)}, such as {found[:5]}")


def _has_ended(pid: int) -> bool:
    """Whether a process that nobody has reaped yet has ended."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX"


_CHECKS: Final = {
    "paid more than once": "SELECT order_id FROM paid GROUP BY order_id HAVING count(*) > 1",
    "the provider was asked again without a word of doubt": (
        "SELECT order_id FROM asked WHERE NOT in_doubt GROUP BY order_id HAVING count(*) > 1"
    ),
}


def demand_each_once(outcome: Outcome, plan: Plan, kind: str) -> None:
    """Demand that every order was paid once, and that the run had the kills to prove it."""
    assert outcome.problems == [], outcome.text
    for who, wanted in (("worker", plan.workers), ("broker", plan.brokers)):
        assert outcome.kills[who] == wanted, outcome.text
        assert outcome.under_way[who] > 0 or not wanted, f"no kill of a {who} hit a task\n{outcome.text}"
    never = [at.name for at in At if not outcome.hits[at]]
    assert never == [], f"a run in which a position was never hit is not a pass: {never}\n{outcome.text}"
    assert outcome.replays > 0, f"nothing was delivered twice, so no record was needed\n{outcome.text}"
    # Celery's transport for Redis takes a message off its list before it notes that it has it.
    assert kind == "redis" or not outcome.lost, outcome.text
