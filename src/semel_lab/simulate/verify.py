"""A pool of processes that do pieces of work, for runs that may be interrupted or killed at any moment.

Invariants: when the pool is left, for whatever reason, none of its processes is alive; when this process is killed,
they end by themselves; a Ctrl-C on the terminal is heard by this process alone.

What a run proved: how many schedules, which worlds to the end, what was reached, and what failed.

What always holds: a run passes only if no invariant was broken and everything that should happen sometimes did happen:
a fault that never struck, or a path that nobody took, proves nothing.

The whole programme: every small world to the end, larger ones by chance, spread over processes.

What always holds: the same number of schedules and the same seed give the same run, however many processes share it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, Self, TypeVar

from semel_lab.simulate.audits import AUDIT_SOMETIMES, AUDIT_WORLDS
from semel_lab.simulate.batches import BATCH_SOMETIMES, BATCH_WORLDS
from semel_lab.simulate.events import EVENT_SOMETIMES, EVENT_WORLDS
from semel_lab.simulate.explore import AnyWorld, Failing, Tally, counted_as, every, some
from semel_lab.simulate.relays import RELAY_SOMETIMES, RELAY_WORLDS
from semel_lab.simulate.within import WITHIN_SOMETIMES, WITHIN_WORLDS, WithinWorld
from semel_lab.simulate.world import DECORATED, SERVER_SOMETIMES, SERVER_WORLDS, SMALL, World, by_chance

SOMETIMES: Final = frozenset({
    "fault: refuse", "fault: lose", "fault: late", "fault: half", "fault: hang",
    "fault: crash", "fault: crash before", "fault: crash after",
    "fault: stall", "fault: stall before", "fault: stall after",
    "fault: cancel", "fault: jump forward", "fault: jump back",
    "fault: doubt", "fault: retry", "fault: final", "fault: unsure",
    "answered: first", "answered: replay", "answered: InProgress", "answered: InDoubt", "answered: KeyReused",
    "answered: LeaseLost", "answered: FailedBefore", "answered: StoreUnavailable",
    "answered: Broken", "answered: Declined", "answered: NothingHappened",
    "found running", "replayed", "reused", "held back", "too early to ask",
    "taken over", "taken over to ask", "claimed again", "granted again", "next generation",
    "completed", "completed again", "renewed", "refused: Complete", "refused: Fail", "refused: Renew",
    "failed: final", "failed: retry", "failed: doubt", "failed: retry, never called", "failed: doubt, never called",
    "failed: final, never called",
    "hook: happened", "hook: did not happen", "resumed after a step", "effect repeated", "zombie superseded",
    "zombie's effect", "arrived late",
    "promoted", "promoted, too late", "waited and got it", "waited in vain", "last read finds it",
    "cancelled with its claim waiting or answered", "cancelled with its claim out",
    "cancelled with its claim granted", "given back", "cleaned up",
    "duplicates in one batch", "strangers in one batch", "round of several kinds",
    "lead handed over", "led on for the gone", "leader interrupted", "heir interrupted",
    "refused at once", "sent away", "left alone", "found again",
    "erased", "replayed, erased", "erasing answered", "erasing answered: NotResolvable",
    "erasing answered: StoreUnavailable", "answered: ResultNotKept",
    "resolved", "nothing to resolve", "corrected", "answered: stated", "correcting answered",
    "correcting answered: NotResolvable", "correcting answered: StoreUnavailable",
    "forced", "forcing answered", "forcing answered: NotResolvable", "forcing answered: StoreUnavailable",
    "reopened", "reopening answered", "reopening answered: NotResolvable", "reopening answered: RecordNotFound",
    "reopening answered: StoreUnavailable", "effect repeated, by decision",
    "counted", "counted: final", "counted before", "not counted", "counting answered",
    "counting answered: StoreUnavailable",
    "purged", "lapsed", "swept", "swept: reconciled", "settled in the end", "held, then resolved", "told in time",
    "stall reported",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Explored:
    """How far one small world was explored."""

    name: str
    faults: int
    slow: int
    schedules: int
    cut: int
    states: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `verify`."""

    schedules: int
    cut: int
    states: int
    moves: int
    longest: int
    seconds: float
    seed: int
    worlds: tuple[Explored, ...]
    by_chance: int
    seen: dict[str, int]
    missing: tuple[str, ...]
    failing: tuple[Failing, ...]

    @property
    def passed(self) -> bool:
        """Whether every invariant held and everything that should be reached was."""
        return not self.failing and not self.missing

    @property
    def exhaustive(self) -> int:
        """How many schedules come from worlds that were explored to the end."""
        return sum(world.schedules for world in self.worlds if world.complete)

    def __str__(self) -> str:
        return "\n".join([*self._head(), *self._worlds(), *self._sometimes(), *map(str, self.failing), self._verdict()])

    def summary(self) -> str:
        """One line."""
        rate = self.schedules / self.seconds if self.seconds else 0.0
        return (
            f"{self.schedules:,} schedules in {self.seconds:.1f} s ({rate:,.0f}/s), {self.moves:,} moves, "
            f"{self.states:,} states, longest {self.longest} moves; {self.exhaustive:,} exhaustive, "
            f"{self.by_chance:,} by chance with seed {self.seed}"
        )

    def _head(self) -> list[str]:
        cut = f"{self.cut:,} further ones were cut short where they reached a state seen before"
        return [self.summary(), cut]

    def _worlds(self) -> list[str]:
        if not self.worlds:
            return ["no world was explored to the end: that takes more schedules than were asked for"]
        lines = ["explored to the end (two processes or more, every order of moves, every combination of faults):"]
        for world in self.worlds:
            end = "" if world.complete else "  NOT to the end"
            bounds = f"{world.faults} faults, slow {world.slow}"
            lines.append(
                f"  {world.name:<22} {bounds:<16} {world.schedules:>8,} schedules {world.states:>8,} states{end}"
            )
        return lines

    def _sometimes(self) -> list[str]:
        lines = ["reached:"]
        lines += [f"  {count:>12,}  {name}" for name, count in sorted(self.seen.items())]
        lines += [f"         NEVER  {name}" for name in self.missing]
        return lines

    def _verdict(self) -> str:
        if self.failing:
            return f"FAILED: {len(self.failing)} schedules break an invariant"
        if self.missing:
            return f"NOT PROVED: {len(self.missing)} things that should happen sometimes never did"
        return "PASSED: every invariant held in every schedule, and everything that should be reached was"


_JOIN_SECONDS: Final = 30
_T = TypeVar("_T")


class WorkerDied(Exception):
    """A process of the pool ended before its piece of work was done."""


class PieceFailed(Exception):
    """A piece of work raised an error; the message has its traceback."""


class WorkerPool:
    """Spreads pieces of work over processes of its own; used with `with`.

    Args:
        workers: how many processes; with 0 the work is done in this process.
    """

    def __init__(self, workers: int) -> None:
        self._count = workers
        self._workers: dict[Connection, BaseProcess] = {}
        self._is_open = True

    def __enter__(self) -> Self:
        try:
            with _interrupts_deferred():
                for _ in range(self._count):
                    self._start_worker()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill every process of the pool, whatever it does; nothing more is begun."""
        self._is_open = False
        for process in self._workers.values():
            process.kill()
        for connection, process in self._workers.items():
            process.join(_JOIN_SECONDS)
            connection.close()
        self._workers.clear()

    def results(self, pieces: Iterable[Callable[[], _T]]) -> Iterator[_T]:
        """Do the pieces, and yield what each returned as soon as it is done; ends early when the pool is closed.

        Raises:
            PieceFailed: a piece raised an error in a process of the pool.
            WorkerDied: a process ended in the middle of its piece.
        """
        waiting = deque(pieces)
        while self._count == 0 and self._is_open and waiting:
            yield waiting.popleft()()
        busy: list[Connection] = []
        for connection in list(self._workers)[: len(waiting)]:
            connection.send(waiting.popleft())
            busy.append(connection)
        while self._is_open and busy:
            for connection in _readable(busy):
                result: _T = self._receive(connection)
                if waiting:
                    connection.send(waiting.popleft())
                else:
                    busy.remove(connection)
                yield result
                if not self._is_open:
                    return

    def _start_worker(self) -> None:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        # A daemon: should this process end without leaving the pool, the interpreter ends it instead of waiting for it.
        process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._workers[ours] = process
        process.start()
        theirs.close()  # the worker holds the only other end, so that its death is read as the end of the pipe

    def _receive(self, connection: Connection) -> Any:
        try:
            succeeded, content = connection.recv()
        except (EOFError, ConnectionError):
            process = self._workers[connection]
            process.join(_JOIN_SECONDS)
            message = (
                f"A process of the pool ended with exit code {process.exitcode} before its piece of work was done; "
                "the run is not complete. Run it again; with workers=1 less memory is used."
            )
            raise WorkerDied(message) from None
        if not succeeded:
            raise PieceFailed(f"A piece of work failed in a process of the pool; the run is not complete.\n{content}")
        return content


def _readable(connections: list[Connection]) -> list[Connection]:
    return [each for each in wait(connections) if isinstance(each, Connection)]


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Start processes that never hear a SIGINT; one that comes meanwhile strikes here when this is left.

    The signal is blocked for the processes, which inherit that. It is also kept from the main thread, where it would be
    raised even so if another thread took it: a process half started would complain about its missing parent.
    """
    struck: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    is_handled_here = threading.current_thread() is threading.main_thread() and handler is not None
    if is_handled_here:
        signal.signal(signal.SIGINT, lambda number, _frame: struck.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        resource_tracker.ensure_running()  # started later, it would unblock the signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if is_handled_here:
            signal.signal(signal.SIGINT, handler)
        if struck:
            signal.raise_signal(signal.SIGINT)


def _work(connection: Connection) -> None:
    """What a process of the pool does: pieces of work, until the other end of the pipe is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, ConnectionError):
        while True:
            piece: Callable[[], object] = connection.recv()
            connection.send(_outcome(piece))


def _outcome(piece: Callable[[], object]) -> tuple[bool, object]:
    """Whether the piece was done, and what it returned or the text of its traceback: not every error can be sent."""
    try:
        return True, piece()
    except Exception:  # noqa: BLE001 - raised again by the process that asked for the piece
        return False, traceback.format_exc()


def _end_with_parent() -> None:
    """End this process when its parent ends, even in the middle of a piece."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


Progress = Callable[[int, int], None]

ENOUGH_FOR_ALL: Final = 180_000
ENOUGH_FOR_MORE: Final = 3_000_000
_PIECE: Final = 1_000
_EVERY: Final[tuple[World | WithinWorld, ...]] = (*SMALL, *DECORATED, *SERVER_WORLDS, *WITHIN_WORLDS)
_NAMES: Final = tuple(world.name for world in _EVERY)
_BY_NAME: Final[tuple[AnyWorld, ...]] = (*EVENT_WORLDS, *RELAY_WORLDS, *BATCH_WORLDS, *AUDIT_WORLDS)
"""Chance explores each of these in every run, and has to have reached what is special to them."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of work: one world to the end, or a run of schedules by chance."""

    world: World | WithinWorld | None
    seed: int = 0
    first: int = 0
    count: int = 0

    def run(self) -> tuple[Piece, Tally]:
        """Do it."""
        if self.world is not None:
            return self, every(self.world)
        worlds: list[AnyWorld] = [*by_chance(self.seed), *WITHIN_WORLDS, *_BY_NAME]
        return self, some(worlds, self.seed, self.first, self.count)


def verify(schedules: int = 200_000, seed: int = 0, workers: int = 2, progress: Progress | None = None) -> Report:
    """Run at least this many schedules.

    Args:
        schedules: how many. From 180,000 on, the small worlds are explored to the end and chance does the rest; from
            three million on they are explored with one more slow moment. With fewer, chance does it all.
        seed: where chance comes from.
        workers: over how many processes to spread the work; with 0 it is done in this one.
        progress: called with the number of schedules done and to do.
    """
    began = time.perf_counter()
    run = Run(schedules, seed, progress)
    with WorkerPool(workers) as pool:
        run.take(pool, run.small_pieces())
        run.take(pool, run.chance_pieces())
    return run.report(time.perf_counter() - began)


class Run:
    """One run of the programme."""

    def __init__(self, schedules: int, seed: int, progress: Progress | None) -> None:
        self._schedules = schedules
        self._seed = seed
        self._progress = progress
        self._total = Tally()
        self._explored: dict[str, Explored] = {}
        self._by_chance = 0

    def small_pieces(self) -> list[Piece]:
        """The small worlds, if there are schedules enough for all of them; the largest first."""
        if self._schedules < ENOUGH_FOR_ALL:
            return []
        more = 1 if self._schedules >= ENOUGH_FOR_MORE else 0
        small = [Piece(replace(world, slow=world.slow + more)) for world in (*SMALL, *DECORATED, *SERVER_WORLDS)]
        return [*small, *(Piece(replace(world, slow=world.slow + more)) for world in WITHIN_WORLDS)]

    def chance_pieces(self) -> list[Piece]:
        """What is left to do, but never none."""
        left = max(self._schedules - self._total.schedules, self._schedules // 10)
        return [Piece(None, self._seed, first, min(_PIECE, left - first)) for first in range(0, left, _PIECE)]

    def take(self, pool: WorkerPool, pieces: list[Piece]) -> None:
        """Have pieces of work done, and take in what they found; after a failure nothing more is begun."""
        if self._total.failing:
            return
        for piece, tally in pool.results([piece.run for piece in pieces]):
            self._total.add(tally)
            if piece.world is not None:
                world = piece.world
                self._explored[world.name] = Explored(
                    world.name, world.budget, world.slow, tally.schedules, tally.cut, tally.states, tally.complete
                )
            else:
                self._by_chance += tally.schedules
            if self._progress is not None:
                self._progress(self._total.schedules, max(self._schedules, self._total.schedules))
            if tally.failing:
                pool.close()
                return

    def _wanted(self) -> frozenset[str]:
        """What must have been reached. The worlds of Redis and DynamoDB are explored to the end, or not at all."""
        served = SERVER_SOMETIMES if self._explored else frozenset[str]()
        named = frozenset(map(counted_as, _BY_NAME))
        parts = WITHIN_SOMETIMES | EVENT_SOMETIMES | RELAY_SOMETIMES | BATCH_SOMETIMES | AUDIT_SOMETIMES
        return SOMETIMES | parts | served | named

    def report(self, seconds: float) -> Report:
        """What was found."""
        total = self._total
        return Report(
            schedules=total.schedules,
            cut=total.cut,
            states=total.states,
            moves=total.moves,
            longest=total.longest,
            seconds=seconds,
            seed=self._seed,
            worlds=tuple(self._explored[name] for name in _NAMES if name in self._explored),
            by_chance=self._by_chance,
            seen=total.seen,
            missing=tuple(sorted(self._wanted() - total.seen.keys())),
            failing=tuple(total.failing),
        )
