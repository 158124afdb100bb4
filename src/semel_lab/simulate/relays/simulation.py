"""One schedule of a world of relays: who goes next, what goes wrong, and whether all that was committed was published.

Invariant: the broker forgets nothing. After the faults a relay publishes once while one transaction is still
open, then that one commits, what is parked is released, and in the end there is nothing left to publish.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from typing import Any, Final, get_args

from semel.core.events.outbox import (
    AboutOutbox,
    CursorLost,
    EventsPurged,
    OpenCursor,
    ReadEvents,
    ReleaseParked,
    SaveCursor,
    SettleReleased,
    StreamPart,
)
from semel.core.operations import Answer, Operation, Running
from semel.core.store import Answers, Capability, Plan
from semel.errors import StoreUnavailable
from semel.events import Event
from semel.events.encoding import to_outbox
from semel.stores.memory import Table
from semel_lab.simulate.checks.violation import Violation
from semel_lab.simulate.events.database import START
from semel_lab.simulate.loop import Dice, Script
from semel_lab.simulate.relays.outboxes import Transaction, make_outbox
from semel_lab.simulate.relays.process import Publish, RelayProcess
from semel_lab.simulate.relays.world import RelayWorld, Writing
from semel_lab.simulate.world import SECOND

_MOST_MOVES: Final = 70
_MOST_CALM_MOVES: Final = 600
_LEASE_US: Final = 10 * SECOND
_LONG_US: Final = 70 * SECOND
"""So long that leases have passed, and that it is time to delete what was published."""
_PART: Final = StreamPart("default")
_LOG: Final = logging.getLogger("semel")
_OUTBOX: Final = get_args(AboutOutbox)


class _Writer:
    """One transaction of a caller: it gets its number, then adds its events, then ends, each by a move of its own."""

    def __init__(self, number: int, writing: Writing) -> None:
        self.actor = 100 + number
        self.writing = writing
        self.events = [
            Event(id=f"e{number}.{place}", type="asset.moved", source="/sim", subject=key, data=[number, place])
            for place, key in enumerate(writing.keys)
        ]
        self.transaction: Transaction | None = None
        self.has_added = False
        self.is_over = False


class _Move:
    """Something that can happen next."""

    def __init__(self, actor: int, who: RelayProcess | _Writer | None = None) -> None:
        self.actor = actor
        self.who = who


class RelaySimulation:
    """One schedule; the port of a store as far as relays need it."""

    name = "simulated://relays"
    max_operations = 64
    capabilities = frozenset({Capability.OUTBOX})

    def __init__(
        self, world: RelayWorld, choices: Script | Dice, seen: dict[str, int], trace: list[str] | None = None
    ) -> None:
        self.world = world
        self.choices = choices
        self.seen = seen
        self.trace = trace
        self.now_us = START
        self.table = Table()
        self.outbox = make_outbox(world.outbox)
        self.left = world.budget
        self.slow = world.slow
        self.moves = 0
        self.is_mended = False
        self._nonces = 0
        self._may_release = bool(world.poison or world.full)
        self._may_restore = world.is_restored
        self._has_given_up = False
        self._holder: RelayProcess | None = None
        self._excuses = 0
        self._committed: dict[str, Event] = {}
        self._keys: dict[str, list[str]] = defaultdict(list)
        self._published: dict[str, int] = {}
        self._firsts: dict[str, int] = defaultdict(int)
        self._highest = 0
        self.writers = [_Writer(number, writing) for number, writing in enumerate(world.writings)]
        self.processes = [RelayProcess(self, number) for number in range(world.relays)]

    def new_nonce(self) -> bytes:
        """A nonce that no one else has."""
        self._nonces += 1
        return b"nonce.%010d" % self._nonces

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """One command: the operations themselves."""
        del joined
        answers: Answers = yield operations
        return answers

    def run(self) -> None:
        """Let everybody go on for a while; then let nothing go wrong any more, and look at what was published."""
        was_off, _LOG.disabled = _LOG.disabled, True  # what goes wrong here is not worth a warning
        try:
            for process in self.processes:
                process.run()
            while self._move():
                pass
            self._calm_down()
        finally:
            _LOG.disabled = was_off

    def _move(self) -> bool:
        if self.moves >= _MOST_MOVES or self._is_idle():
            return False
        self.moves += 1
        moves = self._moves()
        self._go(moves[self.choices.move(moves) if len(moves) > 1 else 0])
        return True

    def _is_idle(self) -> bool:
        """Whether there is nothing more to add, and all that is committed was published."""
        return len(self._published) == len(self._committed) and not any(map(self._may_write, self.writers))

    def _moves(self) -> list[_Move]:
        writers = [_Move(writer.actor, writer) for writer in self.writers if self._may_write(writer)]
        relays = [_Move(process.actor, process) for process in self.processes]
        time = [_Move(-1)] if self.slow else []
        release = [_Move(-2)] if self._may_release and self.outbox.parked_rows() else []
        restore = [_Move(-3)] if self._may_restore else []
        return [*writers, *relays, *time, *release, *restore]

    def _may_write(self, writer: _Writer) -> bool:
        if writer.is_over or (writer.has_added and writer.writing.end == "stay open"):
            return False
        if writer.has_added:
            return True
        others = [one for one in self.writers if one is not writer and one.transaction and not one.is_over]
        if writer.transaction is None:
            return self.world.outbox != "positions" or not others
        mine = set(writer.writing.keys) - {None}
        return not any(one.has_added and mine.intersection(one.writing.keys) for one in others)

    def _go(self, move: _Move) -> None:
        if isinstance(move.who, _Writer):
            self._write(move.who)
        elif isinstance(move.who, RelayProcess):
            self._go_on(move.who)
        elif move.actor == -1:
            self.slow -= 1
            self.note("time", "passes")
            self._pass_time(_LONG_US)
        elif move.actor == -3:
            self._restore()
        else:
            self._may_release = False
            self.is_mended = bool(self.choices.fault(2))
            self.note("operator", f"releases{', once it is mended' if self.is_mended else ''}")
            self.seen["relays: released"] += 1
            self._apply(ReleaseParked(_PART.stream, None))

    def _restore(self) -> None:
        """Go on in another cluster, with new relays and without the transactions that were open."""
        self._may_restore = False
        is_lower = bool(self.choices.fault(2))
        self.note(
            "operator", f"restores a dump in another cluster, whose numbers are {'lower' if is_lower else 'higher'}"
        )
        self.seen["relays: restored"] += 1
        if self._committed and not self.outbox.owner(_PART)[0]:
            self.seen["relays: restored before anything was read"] += 1
        for writer in self.writers:
            if writer.transaction is not None and not writer.is_over:
                writer.is_over = True
                self.outbox.roll_back(writer.transaction)
        self._excuses += 2  # what was published and not saved, and what was published in the window that is under way
        self._pass_time(_LONG_US)
        self.outbox.restore(is_lower=is_lower)
        for process in list(self.processes):
            self._kill(process)

    def _write(self, writer: _Writer) -> None:
        """The next step of a transaction."""
        if writer.transaction is None:
            writer.transaction = self.outbox.begin()
            self.note("writer", f"{writer.actor - 100} begins")
        elif not writer.has_added:
            writer.has_added = True
            rows = [
                to_outbox(event, stream=_PART.stream, ordering_key=key)
                for event, key in zip(writer.events, writer.writing.keys, strict=True)
            ]
            self.outbox.add(writer.transaction, rows)
            self.note("writer", f"{writer.actor - 100} adds {[event.id for event in writer.events]}")
        elif writer.writing.end == "roll back":
            writer.is_over = True
            self.outbox.roll_back(writer.transaction)
            self.seen["relays: rolled back"] += 1
            self.note("writer", f"{writer.actor - 100} rolls back")
        else:
            self._commit(writer, writer.transaction)

    def _commit(self, writer: _Writer, transaction: Transaction) -> None:
        writer.is_over = True
        if any(position < self._highest for position in transaction.positions):
            self.seen["relays: committed late"] += 1
        if not self.outbox.names(transaction):
            self.seen["relays: committed unnamed"] += 1
        self.outbox.commit(transaction)
        for event, key in zip(writer.events, writer.writing.keys, strict=True):
            self._committed[event.id] = event
            if key is not None:
                self._keys[key].append(event.id)
        self._highest = max([self._highest, *transaction.positions])
        self.note("writer", f"{writer.actor - 100} commits")

    def _go_on(self, process: RelayProcess) -> None:
        wanted = process.wanted
        menu = self._menu(wanted)
        choice = self.choices.fault(len(menu) + 1) if menu else 0
        fault = menu[choice - 1] if choice else ""
        self.note(f"relay {process.actor}", f"{_show(wanted)}{fault and ': ' + fault}")
        if fault:
            self.left -= 1
            self._excuses += 1
            self.seen[f"relays: fault: {fault}"] += 1
        if fault == "crash":
            self._kill(process)
        elif fault == "unsent":
            process.refuse(StoreUnavailable("not sent", asked=False))
        elif isinstance(wanted, Publish):
            self._publish(process, wanted.events, fault)
        elif isinstance(wanted, float):
            self._pass_time(round(wanted * SECOND))
            process.answer(None)
        else:
            self._carry_out(process, wanted, is_lost=fault == "lost")

    def _menu(self, wanted: Any) -> list[str]:
        if not self.left:
            return []
        possible = ["crash"]
        if isinstance(wanted, Publish):
            several = ["half", "backwards"] if len(wanted.events) > 1 else []
            possible += ["no confirm", "gone", "raises", *several]
        elif not isinstance(wanted, float):
            possible += ["lost", "unsent"]
        return [fault for fault in possible if fault in self.world.faults]

    def _carry_out(self, process: RelayProcess, wanted: Any, *, is_lost: bool) -> None:
        """One command of an operation; whoever asked is answered after the last."""
        if not isinstance(wanted, _OUTBOX):
            answer: Any = self.table.apply(wanted, self.now_us)
            if isinstance(answer, Running):
                self.seen["relays: in progress"] += 1
        else:
            if process.steps is None:
                process.steps = self.outbox.carry_out(wanted)
            before = self.outbox.owner(_PART)
            try:
                is_over, answer = self._step(process.steps, wanted)
            except StoreUnavailable as error:
                self.seen["relays: opened at the same time"] += 1
                process.refuse(error)
                return
            if isinstance(wanted, OpenCursor) and self.outbox.owner(_PART) != before:
                self._take_over(process)  # as soon as it is written: the other one is overtaken before this one knows
            if not is_over and not is_lost:
                return
            if is_over:
                self._look_at(wanted, answer)
        if is_lost:
            process.refuse(StoreUnavailable("the answer was lost", asked=True))
        else:
            process.answer(answer)

    def _step(self, steps: Any, operation: AboutOutbox) -> tuple[bool, Any]:
        """Carry one command out, and see that only who opened the part last moves its cursor."""
        self.outbox.now_us = self.now_us
        number, token = self.outbox.owner(_PART)
        is_over, answer = False, None
        try:
            next(steps)
        except StopIteration as end:
            is_over, answer = True, end.value
        if isinstance(operation, SaveCursor):
            now, _ = self.outbox.owner(_PART)
            if now != number and token != operation.cursor.token:
                raise Violation("R4", "a relay that was overtaken has moved the cursor")
        return is_over, answer

    def _take_over(self, process: RelayProcess) -> None:
        if self._holder not in (None, process):
            self._excuses += 1
            self.seen["relays: taken over"] += 1
        self._holder = process

    def _look_at(self, operation: AboutOutbox, answer: Any) -> None:
        if isinstance(answer, CursorLost):
            self.seen["relays: overtaken"] += 1
        self._count_purged(answer)
        if isinstance(operation, SettleReleased) and operation.failed:
            self.seen["relays: released, and refused again"] += 1
        parked = self.outbox.parked_rows()
        if parked and all(error is None for _, error in parked):
            self.seen["relays: set aside"] += 1
        for _, error in parked:
            self.seen["relays: waited behind" if error is None else "relays: parked"] += 1
            if error not in (None, "builtins.ValueError"):
                raise Violation("R5", f"an event is parked for {error}, which says nothing of the event")

    def _count_purged(self, answer: Any) -> None:
        if isinstance(answer, EventsPurged) and answer.count:
            self.seen["relays: purged"] += 1

    def _apply(self, operation: AboutOutbox) -> Answer:
        """Carry an operation out at once."""
        steps = self.outbox.carry_out(operation)
        while True:
            is_over, answer = self._step(steps, operation)
            if is_over:
                return answer  # type: ignore[no-any-return]

    def finish(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Carry on what a relay has begun beside, and answer at once what it asks for."""
        answer: Any = None
        try:
            while True:
                wanted = work.send(answer)
                if isinstance(wanted, ReadEvents):
                    self.seen["relays: read ahead"] += 1
                answer = self._apply(wanted)
                self._count_purged(answer)
        except StopIteration as end:
            return end.value

    def _publish(self, process: RelayProcess, events: Sequence[Event], fault: str) -> None:
        """Have the broker do what it does, and the publisher answer or raise."""
        poisoned = [event for event in events if isinstance(self._refusal(event), ValueError)]
        if fault == "raises":
            process.refuse(LookupError("the broker is gone, in the words of its client"))
        elif poisoned and self.world.raising and fault != "gone":
            self.seen["relays: refused, by raising"] += 1
            process.refuse(ValueError("refused"))
        else:
            process.answer(self._keep(events, fault))

    def _keep(self, events: Sequence[Event], fault: str) -> list[Exception | None]:
        """What the broker does, and what it tells."""
        gone = ConnectionResetError("the broker is gone")
        if fault == "gone":
            return [gone] * len(events)
        told = [self._refusal(event) for event in events]
        arrived = [event for event, refused in zip(events, told, strict=True) if refused is None]
        if fault == "half":
            arrived, told = arrived[:1], [told[0], *[gone] * (len(events) - 1)]
            arrived = arrived if told[0] is None else []
        for event in reversed(arrived) if fault == "backwards" else arrived:
            self._receive(event)
        return [gone] * len(events) if fault == "no confirm" else told

    def _refusal(self, event: Event) -> Exception | None:
        number, _ = event.data
        if self.is_mended:
            return None
        if number in self.world.full:
            return OSError("the queue is full")
        return ValueError("refused") if number in self.world.poison else None

    def _receive(self, event: Event) -> None:
        """The broker has an event."""
        added = self._committed.get(event.id)
        if added is None:
            raise Violation("R1", f"{event.id} was published, and is not committed")
        if (event.source, event.subject, event.data) != (added.source, added.subject, added.data):
            raise Violation("R6", f"{event.id} was published as another one than was added")
        count = self._published[event.id] = self._published.get(event.id, 0) + 1
        self.seen["relays: published" if count == 1 else "relays: published again"] += 1
        if count > 1 + self._excuses:
            raise Violation("R6", f"{event.id} was published {count} times, after {self._excuses} faults")
        key = event.subject
        if count == 1 and key is not None:
            place = self._firsts[key]
            self._firsts[key] += 1
            expected = self._keys[key][place]
            if expected != event.id:
                raise Violation("R3", f"{event.id} of key {key} was published before {expected}")

    def _kill(self, process: RelayProcess) -> None:
        process.die()
        place = self.processes.index(process)
        self.processes[place] = RelayProcess(self, process.actor)
        self.processes[place].run()

    def ended(self, process: RelayProcess, value: Any) -> None:
        """A process has come to its end."""
        del value
        if self._holder is process:
            self._holder = None

    def gave_up(self, process: RelayProcess, error: OSError) -> None:
        """A process that publishes once met a broker that took nothing at all, or a publisher that never answered."""
        if self.is_mended or not (self.world.full or self.world.raising):
            raise error
        self.seen["relays: gave up"] += 1
        self._has_given_up = True
        self.ended(process, None)

    def _pass_time(self, us: int) -> None:
        self.now_us += us

    def _calm_down(self) -> None:
        """Nothing goes wrong any more: whoever is there comes to an end, and another one publishes what is left."""
        self.left = self.slow = 0
        self._end_transactions()
        for process in self.processes:
            process.relay.stop()
            self._excuses += 1  # who is told to stop while an event is refused leaves its batch to the next one
            self._drive(process)
        self._publish_rest()
        self._check(is_last=False)
        self.is_mended = True
        for writer in self.writers:
            if not writer.is_over and writer.transaction is not None:
                self.seen["relays: left open"] += 1
                self._commit(writer, writer.transaction)
        self._apply(ReleaseParked(_PART.stream, None))
        self._publish_rest()
        self._check(is_last=True)

    def _end_transactions(self) -> None:
        while any(self._may_write(writer) for writer in self.writers):
            for writer in self.writers:
                if self._may_write(writer):
                    self._write(writer)

    def _publish_rest(self) -> None:
        for _ in range(2):
            self._pass_time(2 * _LEASE_US)
            fresh = RelayProcess(self, len(self.processes))
            self.processes.append(fresh)
            self._holder = None
            fresh.run_once()
            self._drive(fresh)

    def _drive(self, process: RelayProcess) -> None:
        moves = 0
        while process.is_busy:
            moves += 1
            if moves > _MOST_CALM_MOVES:
                raise Violation("R2", "a relay goes on and on, although nothing goes wrong any more")
            self._go_on(process)

    def _check(self, *, is_last: bool) -> None:
        parked = self.outbox.parked_rows()
        missing = [id_ for id_ in self._committed if id_ not in self._published]
        if is_last and parked:
            raise Violation("R5", f"{parked} is parked although it was released, and nothing goes wrong any more")
        if is_last and missing:
            raise Violation("R2", f"{missing} was committed, and never published")
        if not is_last and len(missing) > len(parked) and not self._has_given_up:
            raise Violation("R2", f"{missing} was committed, is not published and only {parked} is parked")

    def note(self, who: str, what: str) -> None:
        """A line for people."""
        if self.trace is not None:
            self.trace.append(f"{(self.now_us - START) / SECOND:8.2f}  {who:<10} {what}")

    def untie(self) -> None:
        """Let go of what points in circles."""
        for process in self.processes:
            process.die()
        self.processes.clear()


def _show(wanted: Any) -> str:
    if isinstance(wanted, Publish):
        return f"publishes {[event.id for event in wanted.events]}"
    return f"rests {wanted:.2f} s" if isinstance(wanted, float) else type(wanted).__name__
