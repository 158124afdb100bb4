"""Exploring a world: every schedule there is, or as many as asked for by chance; and what to do with one that fails.

What always holds: `every` visits each state of the world's tree of choices, and cuts a schedule short only where it
reaches a state that was visited before. A failing schedule is shrunk to choices that all matter, and replays alone.

The calm after the faults: nothing goes wrong any more, and every key must find its end.

What always holds: a fresh process asks for every key until it settles, which it must do within lease + 2 s (and the
quiet time, where a hook has to be asked). What is reported in doubt for somebody to resolve is resolved, and must then
settle too: there is a way out of every state.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from semel.core.record import DidNotHappen, Happened
from semel.engine import admin
from semel.engine.call_flow import Request, Result
from semel.errors import FailedBefore, SemelError
from semel_lab.simulate.audits import AuditSimulation, AuditWorld
from semel_lab.simulate.batches import BatchSimulation, BatchWorld
from semel_lab.simulate.checks.violation import INVARIANTS, SeenBefore, Violation
from semel_lab.simulate.events import EventSimulation, EventWorld
from semel_lab.simulate.loop import Dice, Script
from semel_lab.simulate.process import Worker
from semel_lab.simulate.relays import RelaySimulation, RelayWorld
from semel_lab.simulate.simulation import Simulation
from semel_lab.simulate.within import WithinSimulation, WithinWorld
from semel_lab.simulate.world import (
    FINGERPRINTS,
    KEYS,
    SECOND,
    Asker,
    Broken,
    Declined,
    NothingHappened,
    World,
    request_of,
    setting_of,
)


def calm_down(sim: Simulation) -> None:
    """Check that nothing is left over, and bring every key to its end."""
    sim.calm = True
    sim.faults.left = 0
    for late in list(sim.late):
        late.go()
    sim.drain()
    for worker in sim.workers:
        what = (worker.keeper.leftover() or worker.leases.leftover()) if worker.alive and worker.up else None
        if what is not None:
            raise Violation("leftover", f"a process whose callers have all left still holds {what}")
    keys = [key for key in sim.setting.keys if not sim.witness.is_final(KEYS[key].digest)]
    if keys:
        sim.workers.append(Worker(sim, len(sim.workers)))
    for key in keys:
        _settle(sim, key)


def _settle(sim: Simulation, key: int) -> None:
    began, resolved = sim.now_us, False
    limit = sim.setting.limit_us + max(0, -sim.jump_us)
    while True:
        request = _request(sim, key)
        caller = sim.add(sim.workers[-1], Asker(key=key), request)
        caller.alone = True
        sim.run()
        answer = caller.answer
        if isinstance(answer, (Result, FailedBefore, Declined)):
            _settled(sim, request)
            return
        if not isinstance(answer, (SemelError, Broken, NothingHappened)):
            raise Violation("broke", f"after the faults a caller got {answer!r}")
        pause = getattr(answer, "retry_after", timedelta(seconds=0.05))
        if pause is None:
            if resolved:
                raise Violation("I8", "a key that was resolved is still in doubt")
            resolved = True
            _resolve(sim, request)
            pause = timedelta(0)
        if sim.now_us - began > limit:
            raise Violation("I8", f"after the faults {type(answer).__name__} for {(sim.now_us - began) / SECOND:.2f} s")
        sim.advance(sim.now_us + max(1, pause // timedelta(microseconds=1)))


def _request(sim: Simulation, key: int) -> Request:
    """What the last owner of the key asked for."""
    record = sim.store.table.records.get(KEYS[key].digest)
    fingerprint = FINGERPRINTS.index(record.fingerprint) if record is not None and record.fingerprint else 0
    word = sim.world.in_doubt if record is None else record.in_doubt_policy
    policy = sim.setting.policies.get(word, sim.setting.policies[sim.world.in_doubt])
    return request_of(policy, Asker(key=key, fingerprint=fingerprint))


def _settled(sim: Simulation, request: Request) -> None:
    record = sim.store.table.records.get(request.key.digest)
    if record is None or not record.final:
        raise Violation("I8", "a caller got its answer, and the record is not final")
    sim.seen["settled in the end"] += 1


def _resolve(sim: Simulation, request: Request) -> None:
    """Somebody looks at the ledger and decides."""
    life = sim.store.claims.lives[request.key.digest]
    resolution = Happened(life.effects[0].value) if life.effects else DidNotHappen()
    nonce = b"resolved.%d" % len(sim.callers)
    flow = admin.resolve(request.key, resolution, reason="the ledger says so", by="", nonce=nonce, known=None)
    operation = next(flow)
    try:
        flow.send(sim.store.apply(operation))
    except StopIteration:
        sim.seen["held, then resolved"] += 1
    except SemelError as error:
        raise Violation("I8", f"what was reported in doubt cannot be resolved: {error}") from error


AnyWorld = World | WithinWorld | EventWorld | RelayWorld | BatchWorld | AuditWorld
AnySimulation = Simulation | WithinSimulation | EventSimulation | RelaySimulation | BatchSimulation | AuditSimulation

_MOST_SHRINKING = 2_000


@dataclass(frozen=True, slots=True)
class Failing:
    """A schedule that breaks an invariant. `seed` is where chance came from; empty where every schedule was tried."""

    world: AnyWorld
    choices: tuple[int, ...]
    invariant: str
    message: str
    seed: str = ""

    def __str__(self) -> str:
        seed = f" (seed {self.seed!r})" if self.seed else ""
        lines = [
            f"{self.invariant} does not hold{seed}: {self.message}",
            f"  {self.invariant}: {INVARIANTS.get(self.invariant, '')}",
            f"  replay({self.world!r}, {list(self.choices)})",
            *("  " + line for line in replay(self.world, self.choices).trace),
        ]
        return "\n".join(lines)


@dataclass(slots=True)
class Tally:
    """What was explored so far."""

    schedules: int = 0
    cut: int = 0
    states: int = 0
    moves: int = 0
    longest: int = 0
    complete: bool = True
    seen: dict[str, int] = field(default_factory=dict)
    failing: list[Failing] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take in what somebody else explored."""
        self.schedules += other.schedules
        self.cut += other.cut
        self.states += other.states
        self.moves += other.moves
        self.longest = max(self.longest, other.longest)
        self.complete &= other.complete
        self.failing += other.failing
        for name, count in other.seen.items():
            self.seen[name] = self.seen.get(name, 0) + count


class Seen(dict[str, int]):
    """How often each thing was seen."""

    def __missing__(self, _name: str) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Replayed:
    """One schedule, looked at closely: what happened, and the violation it ended with, if any."""

    trace: list[str]
    violation: Violation | None
    taken: list[int]


def replay(world: AnyWorld, choices: Sequence[int]) -> Replayed:
    """Run one schedule again, with a trace that people can read."""
    trace: list[str] = []
    script = Script(choices)
    sim = _simulation(world, script, Seen(), trace)
    try:
        _run(sim)
    except Violation as violation:
        trace.append(f"   VIOLATION  {violation}")
        return Replayed(trace, violation, script.taken)
    finally:
        sim.untie()
    return Replayed(trace, None, script.taken)


def _simulation(
    world: AnyWorld, choices: Script | Dice, seen: dict[str, int], trace: list[str] | None = None
) -> AnySimulation:
    if isinstance(world, WithinWorld):
        return WithinSimulation(world, choices, seen, trace)
    if isinstance(world, EventWorld):
        return EventSimulation(world, choices, seen, trace)
    if isinstance(world, RelayWorld):
        return RelaySimulation(world, choices, seen, trace)
    if isinstance(world, BatchWorld):
        return BatchSimulation(world, choices, seen, trace)
    if isinstance(world, AuditWorld):
        return AuditSimulation(world, choices, seen, trace)
    return Simulation(setting_of(world), choices, seen, trace)


def _run(sim: AnySimulation) -> None:
    try:
        sim.run()
        if isinstance(sim, Simulation):
            calm_down(sim)
    except Exception as error:
        raise Violation("broke", f"{type(error).__name__} where none belongs: {error}") from error


def every(world: AnyWorld, most: int | None = None) -> Tally:
    """Every schedule of a world, up to states that were visited before; at most `most` of them."""
    tally, seen, states = Tally(), Seen(), set[int]()
    given: list[int] = []
    with _undisturbed():
        while True:
            script = Script(given, states)
            sim = _simulation(world, script, seen)
            try:
                _run(sim)
                tally.schedules += 1
            except SeenBefore:
                tally.cut += 1
            except Violation as violation:
                sim.untie()
                tally.failing.append(shrink(world, script.taken, violation))
                tally.complete = False
                break
            _count(tally, sim)
            given = script.taken
            while given and given[-1] + 1 >= script.counts[len(given) - 1]:
                given.pop()
            if not given:
                break
            given[-1] += 1
            if most is not None and tally.schedules >= most:
                tally.complete = False
                break
    tally.states = len(states)
    tally.seen = seen
    return tally


def some(worlds: Sequence[AnyWorld], seed: int, first: int, count: int) -> Tally:
    """`count` schedules by chance, from number `first` on; the same ones for the same seed."""
    tally, seen = Tally(), Seen()
    with _undisturbed():
        for number in range(first, first + count):
            world = worlds[number % len(worlds)]
            dice = Dice(f"{seed}:{number}")
            sim = _simulation(world, dice, seen)
            try:
                _run(sim)
            except Violation as violation:
                sim.untie()
                tally.failing.append(shrink(world, dice.taken, violation, f"{seed}:{number}"))
                break
            tally.schedules += 1
            if isinstance(world, EventWorld | RelayWorld | BatchWorld | AuditWorld):
                seen[counted_as(world)] += 1
            _count(tally, sim)
    tally.seen = seen
    return tally


def counted_as(world: AnyWorld) -> str:
    """Under which name the schedules of a world are counted that chance explores by name."""
    return f"schedules of {world.name}"


def _count(tally: Tally, sim: AnySimulation) -> None:
    tally.moves += sim.moves
    tally.longest = max(tally.longest, sim.moves)
    sim.untie()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Schedules untie their own knots, so nobody needs to look for garbage meanwhile."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def shrink(world: AnyWorld, choices: Sequence[int], violation: Violation, seed: str = "") -> Failing:
    """The same failure with as few choices as can be found: cut the end, drop choices, make them ordinary."""
    best, tries = _trimmed(choices), 0
    improved = True
    while improved and tries < _MOST_SHRINKING:
        improved = False
        for shorter in _shorter(best):
            tries += 1
            found = replay(world, shorter).violation
            if found is not None and found.invariant == violation.invariant:
                best, violation, improved = _trimmed(shorter), found, True
                break
    return Failing(world, tuple(best), violation.invariant, violation.message, seed)


def _trimmed(choices: Sequence[int]) -> list[int]:
    """What a script does not say is ordinary, so ordinary choices at the end need not be said."""
    trimmed = list(choices)
    while trimmed and trimmed[-1] == 0:
        trimmed.pop()
    return trimmed


def _shorter(choices: list[int]) -> Iterator[list[int]]:
    for position in range(len(choices)):
        yield choices[:position]
    for position, choice in enumerate(choices):
        yield choices[:position] + choices[position + 1 :]
        if choice:
            yield [*choices[:position], 0, *choices[position + 1 :]]
        if choice > 1:
            yield [*choices[:position], choice - 1, *choices[position + 1 :]]
