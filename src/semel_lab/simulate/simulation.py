"""One schedule of one world: a single thread, a virtual clock, and a choice wherever order or luck could differ.

What always holds: what happens depends on the world and the choices taken, and on nothing else. Moves are what others
can see (a round reaches the store, an effect, a look at the ledger, a start, time); everything between two moves is
done at once, because nobody else could tell the difference.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from semel.engine.call_flow import Request
from semel_lab.simulate.caller import Caller
from semel_lab.simulate.checks.answers import Answers, Ledger
from semel_lab.simulate.checks.observer import Witness
from semel_lab.simulate.checks.violation import SeenBefore, Violation
from semel_lab.simulate.dynamodb_requests import LateRequest
from semel_lab.simulate.faults import Faults, Late
from semel_lab.simulate.loop import START, Dice, Script
from semel_lab.simulate.process import READY, LaneRunner, Worker
from semel_lab.simulate.state import signature
from semel_lab.simulate.store_model import Quirks, watched
from semel_lab.simulate.world import SECOND, Asker, Setting

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
        "answers", "arriving", "callers", "calm", "calm_since_us", "choices", "faults", "held_up", "jump_us", "jumped",
        "late", "ledger", "moves", "now_us", "open", "quirks", "ready", "seen", "served", "setting", "slow",
        "store", "time", "trace", "witness", "workers", "world",
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
        self.late: list[Late | LateRequest] = []
        self.store = watched(self, self.world)
        self.quirks = Quirks(self)
        self.served = self.world.store == "dynamodb"
        self.answers = Answers(self)
        self.faults = Faults(self)
        self.ledger = Ledger(self)
        self.witness = Witness(self)
        self.time = Time(self)
        self.workers = [Worker(self, index) for index in range(1 + max(asker.worker for asker in self.world.askers))]
        self.callers: list[Caller] = []
        self.open = 0
        for asker, request in zip(self.world.askers, setting.requests, strict=True):
            caller = self.add(self.workers[asker.worker], asker, request if asker.calls else None)
            caller.twin = setting.twins.get(caller.actor)
            caller.alone = caller.actor in setting.alone

    def add(self, worker: Worker, asker: Asker, request: Request | None) -> Caller:
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
            senders = self._senders()
            for lane in senders:
                lane.go()
            requests = self._requests()
            for request in requests:
                request.go()
            if senders or requests:
                continue
            alive = [worker for worker in self.workers if worker.alive]
            times = [worker.thaws_us for worker in alive if worker.thaws_us]
            times += [lane.due_us for worker in alive for lane in worker.lanes if lane.due_us]
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
        moves: list[Any] = list(self._senders())
        if self.served:
            moves += self._requests()
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

    def _senders(self) -> list[LaneRunner]:
        """The lanes that have something to send."""
        return [lane for worker in self.workers if worker.up for lane in worker.lanes if lane.state == READY]

    def _requests(self) -> list[Any]:
        """Requests on their way to a service that takes several for one operation."""
        exchanges = [lane.exchange for worker in self.workers if worker.up for lane in worker.lanes]
        return [one for exchange in exchanges if exchange is not None for one in exchange.requests if one.call]

    def next_instant(self) -> int | None:
        """When something is due next."""
        now = self.now_us
        times: list[int] = []
        begins = False
        for worker in self.workers:
            if worker.thaws_us is not None:
                times.append(worker.thaws_us)
            elif worker.up:
                dues = (*(lane.due_us for lane in worker.lanes), worker.keeper.due_us(), worker.leases.due_us())
                times += [due for due in dues if due is not None]
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
        self.witness.quiet(instant)
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
                for lane in worker.lanes:
                    if lane.due_us is not None and lane.due_us <= self.now_us:
                        lane.due_us = None
                        self.calm_since_us = self.now_us
                        self.ready.append(lane)
                worker.keeper.on_time()
                worker.leases.on_time()
        for caller in self.callers:
            if caller.until_us is not None and caller.worker.up:
                caller.on_time()

    def untie(self) -> None:
        """Let go of the knot of objects, so that nobody has to look for it."""
        for caller in self.callers:
            if caller.body is not None:
                caller.body.close()
        for worker in self.workers:
            worker.untie()
        for caller in self.callers:
            caller.body = caller.once = caller.held = caller.waiter = caller.waits = caller.visit = None
            caller.answer = caller.error = caller.value = None
            caller.inputs.clear()
        del self.workers, self.callers, self.ready, self.late, self.time
        del self.store, self.quirks, self.faults, self.answers, self.ledger, self.witness

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
