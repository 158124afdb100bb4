"""The killer: keeps workers running, kills them at random moments and at chosen positions, and logs what each kill hit.

What always holds: a kill is SIGKILL to a process that was not reaped yet; its positions are read once it is dead. Time
decides only how long a run takes: every verdict comes from the logs.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.kill.asker import LEASE
from tests.kill.board import Board, Field, Slot
from tests.kill.grounds.ground import Ground
from tests.kill.positions import IN_COMMIT, STALLS, At, positions_of
from tests.kill.run import NOTHING_BREAKS, Breaking, Hit, Outage, Plan, Run
from tests.kill.zygote import ASKERS, BOARD, ERRORS

_WINDOW = 96
_ARRIVAL = 1.0
_LOOK = 0.0005
_AT_ONCE = 2
LOG = "kills.log"
_AUDIT_EVERY = 10
_BEFORE_AN_OUTAGE = 30
_PATIENCE = 10.0
_ROOT = Path(__file__).parents[2]


class Killer:
    """One run on `ground`, with its ledgers in `folder`.

    `tell` is given the number of kills and of covered positions as it goes; `breaking` is how a server is killed.
    """

    def __init__(
        self,
        folder: Path,
        ground: Ground,
        plan: Plan,
        tell: Callable[[int, int], None] = lambda kills, covered: None,
        breaking: Breaking = NOTHING_BREAKS,
    ) -> None:
        self._folder = folder
        self._ground = ground
        self._positions = positions_of(
            ground.modes, commits_rounds=ground.commits_rounds, cached=ground.cache is not None
        )
        self._breaking = breaking
        self._plan = plan
        self._tell = tell
        self._random = random.Random(plan.seed)
        self._board = Board(folder / BOARD, askers=plan.processes * ASKERS, keys=plan.keys)
        self._pids: list[int] = [0] * plan.processes
        self._lives: list[int] = [0] * plan.processes
        self._life = 0
        self._kills: list[tuple[Hit, ...]] = []
        self._hits: Counter[At] = Counter()
        self._audits = 0
        self._outages: list[Outage] = []
        self._missing: list[str] = []

    def run(self) -> Run:
        """Kill until the plan is fulfilled, then let everything settle."""
        self._ground.prepare()
        plan, program = self._plan, "tests.kill.zygote"
        command = [sys.executable, "-m", program, self._folder, self._ground.name, plan.processes, plan.keys]
        began = time.monotonic()
        with subprocess.Popen(
            [*map(str, command)], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as self._zygote:
            try:
                for process in range(self._plan.processes):
                    self._spawn(process)
                self._move()
                self._stall_workers()
                self._break_servers()
                self._rampage()
                wedged = self._settle()
                self._stop()
            finally:
                assert self._zygote.stdin is not None
                self._zygote.stdin.close()
        slots = [slot for process in range(self._plan.processes) for slot in self._slots(process)]
        asked = sum(slot.word(Field.ASKED) for slot in slots)
        return Run(
            self._kills,
            self._board.window[1],
            asked,
            time.monotonic() - began,
            wedged,
            self._audits,
            self._outages,
            self._missing,
        )

    def _order(self, *words: object) -> int:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        print(*words, file=self._zygote.stdin, flush=True)
        answer = self._zygote.stdout.readline()
        if not answer:
            raise AssertionError(self._complaint("the zygote is gone"))
        return int(answer)

    def _spawn(self, process: int) -> None:
        self._life += 1
        self._lives[process] = self._life
        self._pids[process] = self._order("spawn", process, self._life)

    def _kill(self, process: int) -> None:
        os.kill(self._pids[process], signal.SIGKILL)
        status = self._order("reap", self._pids[process])
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL or (self._folder / ERRORS).exists():
            raise AssertionError(self._complaint(f"worker {self._lives[process]} ended by itself"))
        slots = self._slots(process)
        hits = tuple(_hit(slot, self._lives[process], len(self._kills) + 1) for slot in slots)
        self._kills.append(hits)
        self._hits.update(hit.at for hit in hits)
        with (self._folder / LOG).open("a") as log:
            print(len(self._kills), *(f"{hit.at.name} {hit[1:]}" for hit in hits), sep="; ", file=log)
        for slot in slots:
            slot.wipe()
        self._spawn(process)

    def _stop(self) -> None:
        self._board.stop()
        statuses = [os.waitstatus_to_exitcode(self._order("reap", pid)) for pid in self._pids]
        if any(statuses) or (self._folder / ERRORS).exists():
            raise AssertionError(self._complaint(f"workers ended with {statuses}"))

    def _complaint(self, what: str) -> str:
        errors = self._folder / ERRORS
        return f"{what}\n{errors.read_text() if errors.exists() else ''}"

    def _slots(self, process: int) -> list[Slot]:
        return [self._board.slot(process * ASKERS + turn) for turn in range(ASKERS)]

    def _rampage(self) -> None:
        while len(self._kills) < self._plan.kills or self._uncovered():
            if self._random.random() < (0.5 if self._uncovered() else 0.7):
                time.sleep(self._random.uniform(0, 0.02))
                self._kill(self._random.randrange(self._plan.processes))
            else:
                self._ambush(self._target())
            self._move()
            if len(self._kills) % _AUDIT_EVERY == 0:
                self._audit()
            self._tell(len(self._kills), len(self._positions) - len(self._uncovered()))
            if len(self._kills) > 4 * self._plan.kills:
                return  # the report will name what was never hit

    def _uncovered(self) -> list[At]:
        return [at for at in self._positions if self._hits[at] < self._plan.least]

    def _target(self) -> At:
        """A position that was hit least so far, or any."""
        uncovered = self._uncovered()
        return self._random.choice(uncovered or self._positions)

    def _ambush(self, at: At) -> None:
        """Stop everybody who gets to a position, and kill the first: there, or in what it does next."""
        slot, process = self._lie_in_wait(at, range(self._plan.processes))
        if slot is not None and self._random.random() < (0.6 if at in IN_COMMIT else 0.2):
            slot.lift_barrier()
            time.sleep(self._random.uniform(0, 0.0015))
        if slot is not None:
            self._kill(process)
        self._lift_barriers()

    def _lie_in_wait(self, at: At, processes: Iterable[int]) -> tuple[Slot | None, int]:
        """The first asker of these processes that gets to a position; it stands there, and barriers are up."""
        slots = [(slot, process) for process in processes for slot in self._slots(process)]
        for slot, _ in slots:
            slot.raise_barrier(at)
        deadline = time.monotonic() + _ARRIVAL
        while time.monotonic() < deadline:
            time.sleep(_LOOK)
            for slot, process in slots:
                if slot.arrived:
                    return slot, process
        return None, 0

    def _lift_barriers(self) -> None:
        for process in range(self._plan.processes):
            for slot in self._slots(process):
                slot.lift_barrier()

    def _stall_workers(self) -> None:
        """Stop workers in the middle of an attempt until their lease is over, then let them go on as zombies."""
        stopped: dict[int, float] = {}
        done = 0
        while done < self._plan.stalls:
            free = [process for process in range(self._plan.processes) if process not in stopped]
            slot, process = self._lie_in_wait(self._random.choice(STALLS), free if len(stopped) < _AT_ONCE else [])
            if slot is not None:
                os.kill(self._pids[process], signal.SIGSTOP)
                stopped[process] = time.monotonic() + LEASE.total_seconds() * 1.5
            self._lift_barriers()
            self._move()
            for process in [process for process, due in stopped.items() if due <= time.monotonic()]:
                os.kill(self._pids[process], signal.SIGCONT)
                del stopped[process]
                done += 1
            self._tell(done, 0)
        for process in stopped:
            os.kill(self._pids[process], signal.SIGCONT)

    def _break_servers(self) -> None:
        """End the server in the middle of what everybody does, and start it again."""
        for done in range(self._plan.outages):
            self._get_on(_BEFORE_AN_OUTAGE)
            while not self._breaking.is_time():
                time.sleep(_LOOK)
                self._move()
            slot, _ = self._lie_in_wait(self._random.choice(self._positions), range(self._plan.processes))
            if slot is not None and self._random.random() < 0.7:
                self._lift_barriers()
                time.sleep(self._random.uniform(0, 0.01))
            began = time.monotonic_ns() // 1000
            server = self._breaking.kill()
            self._outages.append(Outage(done + 1, server, began, time.monotonic_ns() // 1000))
            self._lift_barriers()
            self._audit()
            self._tell(done + 1, 0)

    def _get_on(self, keys: int) -> None:
        """Let so many keys come to their end; whether all do is judged later."""
        wanted, deadline = self._board.window[0] + keys, time.monotonic() + _PATIENCE
        while self._board.window[0] < wanted and time.monotonic() < deadline:
            time.sleep(_LOOK)
            self._move()

    def _audit(self) -> None:
        """Ask the ground what should be there at this very instant and is not."""
        self._missing += self._ground.missing(self._folder)
        self._audits += 1

    def _move(self) -> None:
        low, high = self._board.window
        while low < high and self._board.settled(low):
            low += 1
        if low + _WINDOW > self._plan.keys:
            message = "the keys are used up: from here on kills would hit nobody at work"
            raise AssertionError(message)
        self._board.move(low, low + _WINDOW)

    def _settle(self) -> list[int]:
        """Let everybody ask until all have their answer; who has none in time asked for a wedged key."""
        low, high = self._board.window
        deadline = time.monotonic() + self._plan.settle_within
        wedged = list(range(low, high))
        while wedged and time.monotonic() < deadline:
            time.sleep(0.02)
            wedged = [key for key in wedged if not self._board.settled(key)]
            if (self._folder / ERRORS).exists():
                raise AssertionError(self._complaint("a worker failed"))
        return wedged


def _hit(slot: Slot, life: int, kill: int) -> Hit:
    return Hit(slot.at, slot.word(Field.KEY), slot.word(Field.FENCE), slot.word(Field.STEP), life, kill)
