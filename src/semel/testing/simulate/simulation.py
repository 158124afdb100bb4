"""One schedule of one world: a single thread, a virtual clock, and a choice wherever the order or the luck could differ.

What always holds: what happens depends on the world and the choices taken, and on nothing else. Moves are what others
can see (a round reaches the store, an effect, a look at the ledger, a start, time); everything between two moves is
done at once, because nobody else could tell the difference.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from semel.core.operations import Claim
from semel.core.record import LEASE_ENDED, Lease, Record, Status
from semel.engine.attempt import AttemptState
from semel.engine.effects import Ended, Promoted, TimedOut
from semel.engine.lane import Ticket
from semel.engine.request import Request
from semel.engine.waiting import Waiter
from semel.testing.simulate.answers import Answers
from semel.testing.simulate.caller import START, Caller
from semel.testing.simulate.choices import Dice, Script
from semel.testing.simulate.faults import Faults, Late
from semel.testing.simulate.life import Effect
from semel.testing.simulate.process import OUT, READY, Worker
from semel.testing.simulate.state import signature
from semel.testing.simulate.violation import SeenBefore, Violation
from semel.testing.simulate.watched import WatchedStore
from semel.testing.simulate.world import SECOND, Setting

EPOCH_US: Final = 1_900_000_000 * SECOND
MOST_MOVES: Final = 5_000


class Time:
    """The move in which nobody does anything."""

    __slots__ = ("actor", "sim")

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.actor = 0

    def go(self) -> None:
        """Go on to the next instant at which something is due."""
        self.sim.pass_time()


class Simulation:
    """The state of a schedule."""

    __slots__ = (
        "answers", "arriving", "callers", "calm", "calm_since_us", "choices", "faults", "held_up", "jump_us", "jumped", "late", "moves",
        "now_us", "open", "owners", "ready", "refused", "seen", "setting", "slow", "store", "time", "trace", "values", "workers", "world",
    )  # fmt: skip

    def __init__(
        self, setting: Setting, choices: Script | Dice, seen: dict[str, int], trace: list[str] | None = None
    ) -> None:
        self.setting = setting
        self.world = setting.world
        self.choices = choices
        self.seen = seen
        self.trace = trace
        self.now_us = 0
        self.jump_us = 0
        self.jumped = False
        self.held_up = False
        self.arriving = False
        self.calm = False
        self.calm_since_us = 0
        self.slow = self.world.slow
        self.moves = 0
        self.ready: deque[Any] = deque()
        self.late: list[Late] = []
        self.refused: set[bytes] = set()  # nonces of leases whose holder was told that they are lost
        self.owners: dict[bytes, Caller] = {}
        self.store = WatchedStore(self, self.world.batch)
        self.answers = Answers(self)
        self.faults = Faults(self)
        self.time = Time(self)
        self.workers = [Worker(self, index) for index in range(1 + max(asker.worker for asker in self.world.askers))]
        self.callers: list[Caller] = []
        self.open = 0
        for asker, request in zip(self.world.askers, setting.requests, strict=True):
            caller = self.add(self.workers[asker.worker], asker, None if asker.sweeps else request)
            caller.twin = setting.twins.get(caller.actor)
            caller.alone = caller.actor in setting.alone

    def add(self, worker: Worker, asker: Any, request: Request | None) -> Caller:
        """One more caller."""
        caller = Caller(self, worker, asker, request, len(self.callers))
        self.callers.append(caller)
        self.open += 1
        return caller

    def note(self, who: str, what: str) -> None:
        """A line of the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now_us / SECOND:9.6f}  {who:<10}  {what}")

    def store_now(self) -> int:
        """The store's clock."""
        return EPOCH_US + self.now_us + self.jump_us

    # ------------------------------------------------------------------ turns

    def run(self) -> None:
        """Until every caller has its answer."""
        choices = self.choices
        while True:
            self._local()
            if not self.open:
                return
            moves = self._moves()
            self.moves += 1
            if len(moves) == 1:
                moves[0].go()
                continue
            if not moves or self.moves > MOST_MOVES:
                raise Violation("I8", "nobody can go on, and not everybody has an answer")
            if self.calm:
                moves[0].go()
                continue
            if choices.new():
                self._know()
            move = moves[choices.move(moves)]
            if move is self.time and moves[0] not in self.late:
                self.slow -= 1
                move.go()
                self.calm_since_us = self.now_us
            else:
                move.go()

    def drain(self) -> None:
        """Until nothing is on its way any more."""
        while True:
            self._local()
            senders = [worker for worker in self.workers if worker.lane.state == READY and worker.up]
            for worker in senders:
                worker.go()
            if senders:
                continue
            times = [at for worker in self.workers if worker.alive for at in (worker.thaws_us, worker.lane.due_us) if at]
            if not times:
                return
            self.advance(min(times))

    def _know(self) -> None:
        mark = signature(self)
        assert self.choices.seen is not None
        if mark in self.choices.seen:
            raise SeenBefore
        self.choices.seen.add(mark)

    def _local(self) -> None:
        ready = self.ready
        while ready:
            turn = ready.popleft()
            worker = turn.worker
            if worker.up:
                turn.step()
            elif worker.alive:
                worker.parked.append(turn)

    def _moves(self) -> list[Any]:
        moves: list[Any] = [worker for worker in self.workers if worker.lane.state == READY and worker.up]
        sending = bool(moves)
        callers = self.callers
        for caller in callers:
            if caller.point is not None and caller.worker.up:
                if caller.point is START and caller.twin is not None and callers[caller.twin].point is START:
                    continue
                moves.append(caller)
        # Time passes when nobody can go on, though something may still be on its way; sometimes all the same.
        free = (not moves and not self.calm) or (self.slow and not sending and not self.calm)
        if self.late:
            moves += self.late
        if not moves or (free and self.next_instant() is not None):
            moves.append(self.time)
        return moves

    # ------------------------------------------------------------------ time

    def next_instant(self) -> int | None:
        """When something is due next."""
        now = self.now_us
        times: list[int] = []
        begins = False
        for worker in self.workers:
            if worker.thaws_us is not None:
                times.append(worker.thaws_us)
            elif worker.up:
                if worker.lane.due_us is not None:
                    times.append(worker.lane.due_us)
                due = worker.keeper.due_us()
                if due is not None:
                    times.append(due)
        for caller in self.callers:
            if caller.until_us is not None and caller.worker.up:
                times.append(caller.until_us)
            elif caller.point is START:
                begins = True
        if begins:
            times += [instant for instant in self._edges() if instant > now]
        return min(times, default=None)

    def _edges(self) -> list[int]:
        """The instants at which the store would answer differently."""
        offset = EPOCH_US + self.jump_us
        edges = []
        for record in self.store.table.records.values():
            if not record.settled:
                edges.append(record.lease_us - offset)
                if record.in_doubt_policy == "reconcile":
                    edges.append(record.lease_us + record.reconcile_after_us - offset)
            elif record.keep_us < 100 * SECOND:
                edges.append(record.expires_us - offset)
        return edges

    def pass_time(self) -> None:
        """Go on to the next instant."""
        instant = self.next_instant()
        if instant is None:
            raise Violation("I8", "nobody can go on, and not everybody has an answer")
        self._check_quiet(instant)
        self.faults.jump()
        self.advance(instant)

    def advance(self, instant: int) -> None:
        """Let time pass up to an instant, and queue what is due then."""
        self.now_us = max(self.now_us, instant)
        for worker in self.workers:
            if worker.thaws_us is not None and worker.thaws_us <= self.now_us:
                worker.thaws_us = None
                worker.up = True
                self.calm_since_us = self.now_us
                self.ready.extend(worker.parked)
                worker.parked = []
            if worker.up:
                lane = worker.lane
                if lane.due_us is not None and lane.due_us <= self.now_us:
                    lane.due_us = None
                    self.calm_since_us = self.now_us
                    self.ready.append(lane)
                worker.keeper.on_time()
        for caller in self.callers:
            if caller.until_us is not None and caller.worker.up:
                caller.on_time()

    def _check_quiet(self, instant: int) -> None:
        """Nobody could go on, so whatever was to be cleaned up is, and nobody waits for longer than there is reason to."""
        standing = any(worker.thaws_us is not None or worker.lane.due_us is not None for worker in self.workers)
        late = not standing and instant - self.calm_since_us > self.setting.limit_us + max(0, -self.jump_us)
        for record in self.store.table.records.values():
            owner = self.owners.get(record.nonce)
            if record.status is Status.RUNNING and owner is not None and owner.worker.up:
                self._check_owner(owner, record.nonce)
            if late and not record.final and self._waited_for(record):
                raise Violation("I8", "somebody waits, nothing goes wrong, and the key does not settle")

    def _check_owner(self, owner: Caller, nonce: bytes) -> None:
        if owner.cancelled and owner.ended and owner.worker.lane.state != OUT and nonce not in self.faults.unknown:
            raise Violation("ownerless", "a cancelled caller left its claim behind")
        if owner.waits is not None and owner.waits.news is None and nonce not in self.faults.ghosts:
            raise Violation("ownerless", "a caller waits for a claim that is its own")

    def _waited_for(self, record: Record) -> bool:
        return any(
            not caller.ended and caller.waits is not None and caller.waits.digest == record.key.digest
            for caller in self.callers
        )

    # ------------------------------------------------------------------ what handlers do

    def effect(self, caller: Caller, state: AttemptState) -> int:
        """The external effect: an entry of the ledger."""
        lease = state.lease
        life = self.store.life_of[lease.nonce]
        record = self.store.table.records.get(life.digest)
        current = record is not None and record.nonce == lease.nonce and record.fence == lease.fence
        if caller.request is None or life.fingerprint != caller.request.fingerprint:
            raise Violation("I5", "another fingerprint was executed")
        if not current and not self.jumped and self.world.touches:
            raise Violation("told", "an attempt that touched its lease went on although the key was somebody else's")
        if lease.nonce in self.refused and self.world.touches:
            raise Violation("told", "an attempt that touched its lease went on although a renewal was refused")
        if not current:
            self.seen["zombie's effect"] += 1
        if self.store_now() - state.granted.record.started_us > self.setting.max_runtime_us:
            self.faults.overrun(life.digest)
        caller.effects += 1
        value = caller.asker.key * 1_000_000 + caller.actor * 1_000 + caller.effects
        effect = Effect(value, caller.actor, lease.fence, lease.nonce, self.now_us + round(self.world.delivery * SECOND))
        if life.effects:
            self._repeated(life.digest, len(life.effects), current and not state.in_doubt)
        life.effects.append(effect)
        if self.trace is not None:
            self.note(f"caller {caller.actor}", f"EFFECT {value} under fence {lease.fence}")
        return value

    def _repeated(self, digest: bytes, before: int, untold: bool) -> None:  # noqa: FBT001 - said by its name
        words = self.setting.policies.keys()
        if words == {"hold"}:
            raise Violation("I1", "a second effect under hold")
        if words == {"reconcile"} and self.world.touches and not self.jumped:
            raise Violation("I1", "a second effect under reconcile")
        explained = self.faults.explained.get(digest, 0)
        if before > explained:
            raise Violation("I10" if self.faults.explained else "I9", f"effect {before + 1} after {explained} faults")
        if untold and "reconcile" not in words:
            raise Violation("I10", "an effect was repeated and its handler was not told")
        self.seen["effect repeated"] += 1

    def step_effect(self, state: AttemptState, index: int) -> int:
        """A step runs."""
        if any(done.index == index for done in state.granted.record.steps):
            raise Violation("I9", "a finished step was run again")
        life = self.store.life_of[state.lease.nonce]
        life.steps[index] = life.steps.get(index, 0) + 1
        if state.granted.record.steps:
            self.seen["resumed after a step"] += 1
        return index

    def look(self, state: AttemptState) -> int | None:
        """What the ledger shows to the reconcile hook."""
        life = self.store.life_of[state.lease.nonce]
        arrived = [effect.value for effect in life.effects if effect.arrives_us <= self.now_us]
        self.seen["hook: happened" if arrived else "hook: did not happen"] += 1
        return arrived[0] if arrived else None

    # ------------------------------------------------------------------ what is watched

    def told(self, caller: Caller, waiter: Waiter) -> None:
        """A waiter has news."""
        news = waiter.news
        if isinstance(news, Promoted):
            for other in self.callers:
                if other.heir and other.worker is caller.worker and other.request is not None:  # noqa: SIM102 - two questions
                    if other.request.key.digest == waiter.digest:
                        raise Violation("waiters", "two waiters were promoted at a time")
            caller.heir = True
            self.seen["promoted"] += 1
        elif isinstance(news, TimedOut):
            caller.missed = caller.request is not None and self.has_answer(caller.request)
            self.seen["waited in vain"] += 1
            if caller.missed:
                self.seen["last read finds it"] += 1
        elif isinstance(news, Ended):
            self.seen["waited and got it"] += 1

    def is_final(self, digest: bytes) -> bool:
        """Whether there is an answer for a key."""
        record = self.store.table.records.get(digest)
        return record is not None and record.final and record.expires_us > self.store_now()

    def has_answer(self, request: Request) -> bool:
        """Whether there is an answer for this very request."""
        digest = request.key.digest
        return self.is_final(digest) and self.store.table.records[digest].fingerprint == request.fingerprint

    def untie(self) -> None:
        """Let go of the knot of objects, so that nobody has to look for it."""
        for worker in self.workers:
            del worker.lane, worker.keeper, worker.parked
        for caller in self.callers:
            caller.body = caller.answer = caller.error = caller.value = caller.once = None
        del self.workers, self.callers, self.owners, self.ready, self.store, self.faults, self.answers, self.time, self.late

    def superseded(self, before: Record) -> None:
        """A lease was taken over: whoever held it must know by its own clock that it is over."""
        if self.jumped or (before.status is not Status.RUNNING and before.error != LEASE_ENDED):
            return
        for worker in self.workers:
            beat = worker.keeper.keeper.heartbeat._beats.get(before.nonce) if worker.alive else None
            if beat is not None and beat.lost is None:
                if worker.clock.monotonic() < beat.deadline:
                    raise Violation("told", "a lease was taken over that its holder had reason to think alive")
                self.seen["zombie superseded"] += 1

    def renewed(self, lease: Lease, now: int) -> None:
        """A lease was extended."""
        record = self.store.table.records[lease.key.digest]
        if now - record.started_us > self.setting.max_runtime_us and not self.held_up and not self.arriving:
            raise Violation("runtime", "a lease was renewed beyond max_runtime")
        self.seen["renewed"] += 1

    def cancelled_with(self, ticket: Ticket) -> None:
        """A caller is cancelled while it waits for this ticket."""
        if isinstance(ticket.operation, Claim):
            lane = self.callers[ticket.seat.actor].worker.lane
            out = lane.state == OUT and any(ticket in list_ for list_ in lane.round)
            self.seen["cancelled with its claim out" if out else "cancelled with its claim waiting or answered"] += 1

    def cleaned_up(self, caller: Caller, error: Exception | None) -> None:
        """A cancelled caller has left."""
        if error is not None:
            self.faults.unknown.update(nonce for nonce, owner in self.owners.items() if owner is caller)
        self.seen["cleaned up"] += 1

    def replace(self, worker: Worker) -> None:
        """A process is gone: its callers ask again in a new one."""
        heirs = [caller for caller in self.callers if caller.worker is worker and not caller.ended]
        for caller in heirs:
            caller.ended, caller.heir, caller.point, caller.until_us = True, False, None, None
            self.open -= 1
        again = [caller for caller in heirs if not caller.cancelled]
        if again:
            fresh = Worker(self, len(self.workers))
            self.workers.append(fresh)
            for caller in again:
                self.add(fresh, caller.asker, caller.request).alone = len(again) == 1
