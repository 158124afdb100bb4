"""One schedule of a world of batches: who goes next, what goes wrong, and whether every item came to one right end.

Invariants, looked at after every step: counts are those of the rows (B1); an item whose record is completed never runs
again, and under `hold` none runs twice (B2); a row says completed only where its record does (B3). After the faults
another process finishes the batch without anybody's help (B4), and nothing is completed that never ran (B5). Two
seconds after the batch was paused a process begins nothing more than what it is about to begin (B6). A batch of which
more items have failed than may is not completed, unless somebody began to work on it with that in sight (B7). Where
effects commit with their page, each of them is committed once (B8).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from functools import cache
from typing import Any, Final

from semel.batch.control import retry
from semel.core.batch.operations import AddItems, BeginRun, ChangeBatch, FinishLoad, OpenBatch, ReadBatch, ReadItems
from semel.core.batch.values import ItemStatus, NewItem, State, StoredBatch, item_key
from semel.core.fingerprint import PLAIN
from semel.core.operations import Answer, Claim, Granted, Operation, Running
from semel.core.record import Status
from semel.core.store import Answers, Capability, Plan
from semel.errors import StoreUnavailable
from semel_lab.simulate.batches.process import BatchProcess, Effect
from semel_lab.simulate.batches.transactions import BatchDatabase, Commit
from semel_lab.simulate.batches.world import BatchWorld
from semel_lab.simulate.checks.violation import Violation
from semel_lab.simulate.events.database import START, InTransaction, Joined, Session
from semel_lab.simulate.loop import Dice, Script
from semel_lab.simulate.world import SECOND

_MOST_MOVES: Final = 90
_MOST_CALM_MOVES: Final = 800
_LEASE_US: Final = 31 * SECOND
_TICK_US: Final = 3 * SECOND
_SEEN_US: Final = 2 * SECOND
_LAST: Final = 9
_LOG: Final = logging.getLogger("semel")


class _Move:
    """Something that can happen next."""

    def __init__(self, actor: int, act: Callable[[], None]) -> None:
        self.actor = actor
        self.act = act


class BatchSimulation:
    """One schedule; the port of a store as far as runners need it."""

    name = "simulated://batches"
    max_operations = 64
    capabilities = frozenset({Capability.BATCH})

    def __init__(
        self, world: BatchWorld, choices: Script | Dice, seen: dict[str, int], trace: list[str] | None = None
    ) -> None:
        self.world = world
        self.choices = choices
        self.seen = seen
        self.trace = trace
        self.database = BatchDatabase()
        self.table = self.database.table
        self.left = world.budget
        self.slow = world.slow
        self.retries = world.retries
        self.pauses = world.pauses
        self.ticks = world.ticks
        self.paused_at: int | None = None
        self.late: Counter[int] = Counter()
        self.accepted = 0
        self.effects: Counter[str] = Counter()
        self._nonces = 0
        self.moves = 0
        self.batch = self._load()
        self.processes = [BatchProcess(self, actor, self.batch) for actor in range(world.workers)]

    @property
    def now_us(self) -> int:
        """The instant."""
        return self.database.now_us

    @now_us.setter
    def now_us(self, instant: int) -> None:
        self.database.now_us = instant

    def async_join(self, connection: Any) -> Joined:
        """A transaction as a place for plans."""
        return Joined(connection)

    def is_outage(self, error: Exception) -> bool:
        """Whether an error says nothing of what was sent."""
        return isinstance(error, ConnectionError)

    has_one_writer = False

    def new_nonce(self) -> bytes:
        """A nonce that no one else has."""
        self._nonces += 1
        return b"nonce.%010d" % self._nonces

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """One command: the operations themselves."""
        del joined
        answers: Answers = yield operations
        return answers

    def _load(self) -> StoredBatch:
        token, count = bytes(16), self.world.items
        opening = OpenBatch(scope="", id="b", operation="pay", metadata=b"null", keep_us=0, token=token)
        number = self._apply(opening).known.number
        self._apply(AddItems(number, token, 0, count, tuple(NewItem(n, f"i{n}", b"null") for n in range(count))))
        self._apply(FinishLoad(number, token, count, bytes(32)))
        batch: StoredBatch = self._apply(BeginRun(number, self.world.page)).known
        return batch

    def run(self) -> None:
        """Let everybody go on for a while; then let nothing go wrong any more, and look at what became of it."""
        was_off, _LOG.disabled = _LOG.disabled, True  # what goes wrong here is not worth a warning
        try:
            for process in self.processes:
                process.run()
            while self.moves < _MOST_MOVES and self._move():
                self.moves += 1
            self._calm_down()
        finally:
            _LOG.disabled = was_off

    def _move(self) -> bool:
        moves = [_Move(p.actor, lambda p=p: self._go_on(p)) for p in self.processes if p.is_busy]  # type: ignore[misc]
        if self.slow:
            moves.append(_Move(-1, self._pass_leases))
        if self.retries:
            moves.append(_Move(-2, self._retry))
        if self.paused_at is not None:
            moves.append(_Move(-3, self._resume))
        elif self.pauses:
            moves.append(_Move(-3, self._pause))
        if self.ticks:
            moves.append(_Move(-4, self._tick))
        if self.paused_at is None and not any(move.actor >= 0 for move in moves):
            return False
        moves[self.choices.move(moves) if len(moves) > 1 else 0].act()
        self._check()
        return True

    def _pass_leases(self) -> None:
        self.slow -= 1
        self.now_us += _LEASE_US
        self.note("time", "passes")

    def _tick(self) -> None:
        self.ticks -= 1
        self.now_us += _TICK_US
        self.note("time", "passes, and no lease ends")

    def _pause(self) -> None:
        self.pauses -= 1
        if self._apply(ChangeBatch(number=self.batch.number, to="paused")).is_changed:
            self.seen["batches: paused"] += 1
        self.note("operator", "pauses")

    def _resume(self) -> None:
        """An operator has it go on, whatever has failed; whoever has stopped begins again."""
        self._apply(ChangeBatch(number=self.batch.number, to="running"))
        self.seen["batches: resumed"] += 1
        self.note("operator", "resumes")
        self.paused_at = None
        self.accepted = self._apply(ReadBatch("", "b")).counts.failed
        for place, process in enumerate(self.processes):
            if not process.is_busy:
                self._replace(place, process.actor)

    def _replace(self, place: int, actor: int) -> None:
        """Another process begins, and goes by what it finds."""
        self.late[actor] = 0
        self.processes[place] = BatchProcess(self, actor, self.batch)
        self.processes[place].run()

    def _retry(self) -> None:
        """An operator has failed or doubtful items run again: says that what is in doubt did not happen."""
        self.retries -= 1
        which: Any = "failed" if self.world.policy == "rerun" else "in_doubt"
        count = self._carry_out(retry(self.batch, which, "as the operator says", self.new_nonce, PLAIN))
        self.note("operator", f"retries {count}")
        if count:
            self.seen["batches: retried"] += 1
            if which == "in_doubt":
                self.effects.clear()  # the operator took it upon themselves

    def _carry_out(self, flow: Generator[Any, Any, Any]) -> Any:
        try:
            wanted = next(flow)
            while True:
                wanted = flow.send(self._apply(wanted))
        except StopIteration as end:
            return end.value

    def _go_on(self, process: BatchProcess) -> None:
        wanted = process.wanted
        possible = ["crash"] if isinstance(wanted, float | Effect | InTransaction) else ["crash", "lost", "unsent"]
        menu = [fault for fault in possible if self.left and fault in self.world.faults]
        choice = self.choices.fault(len(menu) + 1) if menu else 0
        fault = menu[choice - 1] if choice else ""
        self.note(f"worker {process.actor}", f"{_show(wanted)}{fault and ': ' + fault}")
        if fault:
            self.left -= 1
            self.seen[f"batches: fault: {fault}"] += 1
        if fault == "crash":
            self._kill(process, wanted)
        elif isinstance(wanted, InTransaction):
            process.answer(self.database.apply_in(wanted.session, wanted.operation))
        elif isinstance(wanted, Commit):
            self._commit(process, wanted.session, fault)
        elif fault == "unsent":
            process.refuse(StoreUnavailable("not sent", asked=False))
        elif isinstance(wanted, Effect):
            self._take_effect(process, wanted)
        elif isinstance(wanted, float):
            self.now_us += round(wanted * SECOND)
            process.answer(None)
        else:
            answer = self._apply(wanted)
            self._look_at(wanted, answer)
            if fault == "lost":
                process.refuse(StoreUnavailable("the answer was lost", asked=True))
            else:
                process.answer(answer)

    def _commit(self, process: BatchProcess, session: Session, fault: str) -> None:
        if fault != "unsent":
            self.database.commit(session)
            for item in session.effects:
                self._note_effect(item)
            self.seen["batches: page committed"] += len(session.effects) > 1
        if fault:
            process.refuse(ConnectionError(fault))
        else:
            process.answer(None)

    def _kill(self, process: BatchProcess, wanted: Any) -> None:
        if isinstance(wanted, Effect) and process.session is None and self.choices.fault(2):
            self._note_effect(wanted.item.id)  # it died after its effect
        process.die()
        self._replace(self.processes.index(process), process.actor)

    def _take_effect(self, process: BatchProcess, wanted: Effect) -> None:
        item = wanted.item
        if item.position in self.world.failing and item.number == 1:
            self.seen["batches: failed"] += 1
            process.refuse(ValueError("no"))
            return
        if process.session is None:
            self._note_effect(item.id)
        else:
            process.session.effects.append(item.id)
        process.answer(f"paid {item.id}")

    def begin_item(self, actor: int, item: str) -> None:
        """The handler of an item is called; its effect comes later, however long its process stands still."""
        if self.paused_at is not None and self.now_us > self.paused_at + _SEEN_US:
            self.late[actor] += 1
            if self.late[actor] > 1:
                raise Violation("B6", f"{item} begins although everybody knows that the batch is paused")
        record = self.table.records.get(_digest(item))
        if record is not None and record.status is Status.COMPLETED:
            raise Violation("B2", f"{item} runs although it is completed")

    def _note_effect(self, item: str) -> None:
        self.effects[item] += 1
        self.seen["batches: ran" if self.effects[item] == 1 else "batches: ran again"] += 1
        if self.world.policy == "hold" and self.effects[item] > 1:
            raise Violation("B2", f"{item} ran twice under hold")
        if self.world.by_page and self.effects[item] > 1:
            raise Violation("B8", f"the effect of {item} was committed twice")

    def _look_at(self, wanted: Any, answer: Any) -> None:
        if isinstance(wanted, BeginRun):
            self.accepted = answer.counts.failed
        if isinstance(wanted, Claim) and isinstance(answer, Running):
            self.seen["batches: somebody else's page"] += 1
        if isinstance(wanted, Claim) and isinstance(answer, Granted) and answer.record.attempts > 1:
            self.seen["batches: page taken over"] += 1

    def _apply(self, operation: Any) -> Any:
        answer: Answer = self.database.apply(operation)
        return answer

    def _items(self) -> Any:
        return self._apply(ReadItems(self.batch.number, 0, self.world.items)).items

    def _check(self) -> None:
        found = self._apply(ReadBatch("", "b"))
        counts = found.counts
        told = (counts.completed, counts.failed, counts.skipped, counts.in_doubt)
        recount = self.table.batches.recount(self.batch.number)
        if told != (recount.completed, recount.failed, recount.skipped, recount.in_doubt):
            raise Violation("B1", f"the counts are {told}, and the rows say {recount}")
        self._check_state(found.known.state, counts.failed)
        for item in self._items():
            record = self.table.records.get(_digest(item.id))
            if item.outcome is not None:
                continue  # it was committed with its page
            if item.status == ItemStatus.COMPLETED and (record is None or record.status is not Status.COMPLETED):
                raise Violation("B3", f"{item.id} counts as completed, and its record does not say so")
            if item.status == ItemStatus.IN_DOUBT:
                self.seen["batches: in doubt"] += 1

    def _check_state(self, state: State, failed: int) -> None:
        most = self.world.max_failed
        if state == "completed" and most is not None and failed > max(most, self.accepted):
            raise Violation("B7", f"the batch is completed with {failed} failures, and {most} may be")
        if state == "paused" and self.paused_at is None:
            self.paused_at = self.now_us
            self.late.clear()
            if most is not None and failed > most:
                self.seen["batches: paused by failures"] += 1

    def _calm_down(self) -> None:
        """Nothing goes wrong any more: leases pass, and whoever is there finishes the batch."""
        self.left = self.slow = self.retries = self.pauses = 0
        for process in self.processes:
            process.die()
        self.now_us += _LEASE_US
        self.processes = self.processes[:1]
        self._replace(0, _LAST)
        moves = 0
        while self.processes[0].is_busy or self.paused_at is not None:
            moves += 1
            if moves > _MOST_CALM_MOVES:
                raise Violation("B4", "a worker goes on and on, although nothing goes wrong any more")
            if self.processes[0].is_busy:
                self._go_on(self.processes[0])
            else:
                self._resume()
            self._check()
        found = self._apply(ReadBatch("", "b"))
        if found.known.state != "completed" or found.counts.settled != self.world.items:
            raise Violation("B4", f"the batch is {found.known.state} with {found.counts} of {self.world.items}")
        for item in self._items():
            record = self.table.records.get(_digest(item.id))
            is_alone = item.outcome is None  # otherwise it was committed with its page
            if is_alone and (item.status == ItemStatus.COMPLETED) != (
                record is not None and record.status is Status.COMPLETED
            ):
                raise Violation("B3", f"{item.id} counts as {item.status}, and its record says otherwise")
            if item.status == ItemStatus.COMPLETED and not self.effects[item.id] and not self.world.retries:
                raise Violation("B5", f"{item.id} is completed, and never ran")

    def note(self, who: str, what: str) -> None:
        """A line for people."""
        if self.trace is not None:
            self.trace.append(f"{(self.now_us - START) / SECOND:8.2f}  {who:<10} {what}")

    def untie(self) -> None:
        """Let go of what points in circles."""
        for process in self.processes:
            process.die()
        self.processes.clear()


@cache
def _digest(item: str) -> bytes:
    """Under which digest the record of an item is kept; looked for after every move, and always the same."""
    return item_key("", "pay", "b", item).digest


def _show(wanted: Any) -> str:
    if isinstance(wanted, Effect):
        return f"runs {wanted.item.id}"
    return f"rests {wanted:.2f} s" if isinstance(wanted, float) else type(wanted).__name__
