"""One schedule of a world of events: who goes next, what goes wrong, and what became of every event in the end.

What always holds: the broker forgets an event only when it is acknowledged or passed on as a dead letter; whatever dies
gives back what it had taken. After the faults all that is left is delivered until the broker has nothing more.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from semel.core.key import Key
from semel.core.record import Status
from semel.errors import StoreUnavailable
from semel.events import Disposition, Event
from semel.events.dead_letters import show_letter
from semel.events.delivery import identify
from semel_lab.simulate.checks.violation import Violation
from semel_lab.simulate.events.database import START, Database, InTransaction
from semel_lab.simulate.events.process import TYPE, Point, Process, label
from semel_lab.simulate.events.world import LEASE, MAX_ATTEMPTS, EventWorld
from semel_lab.simulate.loop import Dice, Script
from semel_lab.simulate.world import SECOND, Broken

_MOST_DELIVERIES: Final = 40
_MOST_MOVES: Final = 60
"""After so many the faults are over: somebody who asks again and again could keep all others waiting for ever."""
_LEASE_US: Final = round(LEASE * SECOND)


class _Message:
    """An event in the queue of one consumer, and who holds it."""

    def __init__(self, consumer: str, event: Event) -> None:
        self.consumer = consumer
        self.event = event
        self.holders: list[Process] = []
        self.due_us = 0


class _Move:
    """Something that can happen next."""

    def __init__(self, actor: int, process: Process | None = None, message: _Message | None = None) -> None:
        self.actor = actor
        self.process = process
        self.message = message


class EventSimulation:
    """One schedule."""

    def __init__(
        self, world: EventWorld, choices: Script | Dice, seen: dict[str, int], trace: list[str] | None = None
    ) -> None:
        self.world = world
        self.choices = choices
        self.seen = seen
        self.trace = trace
        self.database = Database()
        self.left = world.budget
        self.slow = world.slow
        self.moves = 0
        self.is_mended = False
        self._nonces = 0
        self._started: Counter[tuple[str, str]] = Counter()
        self._faults: Counter[tuple[str, str]] = Counter()
        self._stalls = 0
        self.events = [
            Event(id=f"e-{number}", type=TYPE, source="/sim", subject=subject, data=number)
            for number in range(world.events)
            for subject in ("pump", "valve")[: 1 + world.reused]
        ]
        self.processes = [
            Process(self, name, place * world.processes + number)
            for place, name in enumerate(world.consumers)
            for number in range(world.processes)
        ]
        self.queue = [_Message(name, event) for name in world.consumers for event in self.events]

    def new_nonce(self) -> bytes:
        """A nonce that no one else has."""
        self._nonces += 1
        return b"nonce.%010d" % self._nonces

    def run(self) -> None:
        """Let everybody go on until the broker has nothing more; then redrive, and look at what is there."""
        while self._move():
            pass
        self._calm_down()
        self._check_end()
        if self.world.redrives:
            self._redrive()

    def _move(self) -> bool:
        moves = self._moves()
        if not moves or self.moves >= _MOST_MOVES or not self.left + self.slow:
            return False
        self.moves += 1
        chosen = moves[self.choices.move(moves) if len(moves) > 1 else 0]
        self._go(chosen)
        return True

    def _moves(self) -> list[_Move]:
        busy = [_Move(process.actor, process) for process in self.processes if process.wanted is not None]
        taken = [
            _Move(process.actor, process, message)
            for message in self.queue
            for process in self.processes
            if process.wanted is None and process.name == message.consumer and self._may_take(message)
        ]
        time = [_Move(-1)] if self.slow and busy else []
        return [*busy, *taken, *time]

    def _may_take(self, message: _Message) -> bool:
        if not message.holders:
            return True
        return bool(self.left) and "twice" in self.world.faults and len(message.holders) < 2

    def _go(self, move: _Move) -> None:
        if move.process is None:
            self.slow -= 1
            self._stalls += 1
            self._pass_time(_LEASE_US + SECOND // 10)
        elif move.message is not None:
            self._deliver(move.process, move.message)
        else:
            self._go_on(move.process)

    def _deliver(self, process: Process, message: _Message) -> None:
        if message.holders:
            self._spend("twice", process, message.event)
        if message.holders:
            self.seen["events: taken twice"] += 1
        message.holders.append(process)
        self.note(process, f"takes {message.event.id}")
        process.take(message.event)

    def _go_on(self, process: Process) -> None:
        wanted = process.wanted
        menu = self._menu(wanted)
        choice = self.choices.fault(len(menu) + 1) if menu else 0
        fault = menu[choice - 1] if choice else ""
        self.note(process, f"{_name(wanted)}{fault and ': ' + fault}")
        if fault:
            self._spend(fault, process, process.event)
        if fault == "crash":
            self._kill(process)
        elif fault == "unsent":
            process.refuse(StoreUnavailable("not sent", asked=False))
        elif fault == "fail":
            process.refuse(Broken("a fault"))
        else:
            self._carry_out(process, wanted, is_lost=fault == "lost")

    def _menu(self, wanted: Any) -> list[str]:
        if not self.left:
            return []
        possible = ["crash"]
        if isinstance(wanted, Point):
            possible += ["lost", "unsent"] if wanted.name == "commit" else ["fail"]
        elif not isinstance(wanted, float | InTransaction):
            possible += ["lost", "unsent"]
        return [fault for fault in possible if fault in self.world.faults]

    def _spend(self, fault: str, process: Process, event: Event | None) -> None:
        self.left -= 1
        self.seen[f"events: fault: {fault}"] += 1
        if event is not None:
            self._faults[process.name, event.id] += 1

    def _carry_out(self, process: Process, wanted: Any, *, is_lost: bool) -> None:
        if isinstance(wanted, Point):
            self._reach(process, wanted)
            answer = None
        elif isinstance(wanted, InTransaction):
            answer = self.database.apply_in(wanted.session, wanted.operation)
        elif isinstance(wanted, float):
            self._pass_time(round(wanted * SECOND))
            answer = None
        else:
            answer = self.database.apply(wanted)
        if is_lost:
            process.refuse(StoreUnavailable("the answer was lost", asked=True))
        else:
            process.answer(answer)

    def _reach(self, process: Process, point: Point) -> None:
        match point.name:
            case "hook":
                self.seen["events: asked"] += 1
            case "start":
                self._begin_handler(process, point.subject)
            case "effect" if point.session is None:
                self.database.effects.append(f"{process.name} {point.subject}")
            case "effect":
                assert point.session is not None
                point.session.effects.append(f"{process.name} {point.subject}")
            case "commit":
                assert point.session is not None
                self.database.commit(point.session)

    def _begin_handler(self, process: Process, subject: str) -> None:
        assert process.event is not None or self.is_mended
        others = [one for one in self.processes if one is not process and one.handling == subject]
        if others and self.world.serial and not self._stalls:
            raise Violation("E6", "two events of one subject are handled at the same time")
        if others:
            self.seen["events: took over"] += 1
        process.handling = subject
        if process.event is not None:
            self._started[process.name, process.event.id] += 1

    def _kill(self, process: Process) -> None:
        for session in list(self.database.sessions):
            wanted = process.wanted
            if getattr(wanted, "session", None) is session:
                self.database.roll_back(session)
        for message in self.queue:
            if process in message.holders:
                message.holders.remove(process)
        process.die()
        place = self.processes.index(process)
        self.processes[place] = Process(self, process.name, process.actor)

    def told(self, process: Process, event: Event | None, disposition: Disposition | None) -> None:
        """A process has ended with an event."""
        assert disposition is not None
        self.seen[f"events: {disposition.status}"] += 1
        self.note(process, f"says {disposition.status}: {disposition.action}")
        if event is None:
            return
        message = next((one for one in self.queue if process in one.holders), None)
        self._check_disposition(process, event, disposition)
        if message is None:
            return  # somebody else has settled it meanwhile
        message.holders.remove(process)
        if disposition.action == "retry":
            message.due_us = self.database.now_us
            return
        if self.left and "lost ack" in self.world.faults and self.choices.fault(2):
            self._spend("lost ack", process, event)
            return
        self.queue.remove(message)
        if self.world.hook is not None and disposition.action == "dead_letter":
            self.seen["events: gave up asking"] += 1
        self.seen["events: acknowledged" if disposition.action == "ack" else "events: dead letter"] += 1

    def _check_disposition(self, process: Process, event: Event, disposition: Disposition) -> None:
        record = self._record(process, event)
        if disposition.action == "ack" and not self._is_done(process, event, record):
            raise Violation("E1", f"{event.id} was acknowledged, and its record is not completed")
        letters = len(self._letters(process.name, event))
        if disposition.action == "dead_letter" and letters != 1:
            raise Violation("E2", f"{event.id} was given up, and it has {letters} letters")

    def has_effect(self, consumer: str, key: Key) -> bool:
        """Whether the effect of an event happened, as the other side of it would say."""
        event = next(one for one in self.events if identify(self._settings_of(consumer), one) == key)
        return f"{consumer} {label(event)}" in self.database.effects

    def _settings_of(self, consumer: str) -> Any:
        process = next(one for one in self.processes if one.name == consumer)
        return process.consumer._deliveries._settings

    def _record(self, process: Process, event: Event) -> Any:
        key = identify(self._settings_of(process.name), event)
        return self.database.table.records.get(key.digest)

    def _is_done(self, process: Process, event: Event, record: Any) -> bool:
        """Whether a completed record is that of an event, and not of another one under its id."""
        if record is None or record.status is not Status.COMPLETED:
            return False
        asked: bytes = process.consumer._deliveries._deliver(event).request.fingerprint
        return bool(asked == record.fingerprint)

    def _letters(self, consumer: str, event: Event) -> list[Any]:
        wanted = event.to_json()
        return [one for one in self.database.letters() if one.consumer == consumer and one.content == wanted]

    def _pass_time(self, us: int) -> None:
        self.database.now_us += us

    def _calm_down(self) -> None:
        """Nothing goes wrong any more: let everybody go on, and deliver what is left."""
        self.left = self.slow = 0
        while any(process.wanted is not None for process in self.processes):
            for process in self.processes:
                if process.wanted is not None:
                    self._go_on(process)
        deliveries = 0
        while self.queue:
            deliveries += 1
            if deliveries > _MOST_DELIVERIES * self.world.events * len(self.world.consumers):
                raise Violation("E4", "an event is delivered again and again, and never comes to an end")
            message = self.queue[0]
            self.queue.append(self.queue.pop(0))
            self._pass_time(2 * _LEASE_US)
            process = next(one for one in self.processes if one.name == message.consumer)
            self._deliver(process, message)
            while process.wanted is not None:
                self._go_on(process)

    def _check_end(self) -> None:
        for process in {process.name: process for process in self.processes}.values():
            for event in self.events:
                self._check_event(process, event)

    def _check_event(self, process: Process, event: Event) -> None:
        record = self._record(process, event)
        letters = [letter for letter in process.list_letters() if letter.event == event]
        effects = self.database.effects.count(f"{process.name} {label(event)}")
        is_done = self._is_done(process, event, record)
        if is_done == bool(letters):
            raise Violation("E3", f"{event.id}: {'done' if is_done else 'not done'}, with {len(letters)} dead letters")
        if is_done and not effects:
            raise Violation("E5", f"{event.id} counts as processed, and its effect did not happen")
        faults = self._faults[process.name, event.id]
        if effects > 1 + faults + self._stalls or (self.world.transaction and effects > 1):
            raise Violation("E5", f"the effect of {event.id} happened {effects} times, after {faults} faults")
        if self.world.transaction and effects and not is_done:
            raise Violation("E5", f"the effect of {event.id} was committed without its mark")
        if letters and letters[0].reason == "exhausted" and record is not None and record.attempts > MAX_ATTEMPTS:
            raise Violation("E4", f"{event.id} was tried {record.attempts} times")
        self._check_outbox(process, event, is_done=is_done)

    def _check_outbox(self, process: Process, event: Event, *, is_done: bool) -> None:
        if not self.world.outbox:
            return
        added = [one for one in self.database.table.events if one.subject == event.id]
        if len(added) != int(is_done):
            raise Violation("E7", f"{event.id} is {'done' if is_done else 'not done'}, and added {len(added)} events")

    def _redrive(self) -> None:
        """The handler is mended, and an operator hands every dead letter over again."""
        self.is_mended = True
        for letter in self.database.letters():
            self._pass_time(2 * _LEASE_US)
            process = next(one for one in self.processes if one.name == letter.consumer)
            process.redrive(show_letter(letter).id)
            while process.wanted is not None:
                self._go_on(process)
            self.seen["events: redriven"] += 1
        if any(letter.reason != "reused" for letter in self.database.letters()):
            raise Violation("E8", "a dead letter was redriven with success, and is still there")
        self._check_end()

    def note(self, process: Process, what: str) -> None:
        """A line for people."""
        if self.trace is not None:
            at = (self.database.now_us - START) / SECOND
            self.trace.append(f"{at:8.2f}  {process.name} {process.actor:<3} {what}")

    def untie(self) -> None:
        """Let go of what points in circles."""
        for process in self.processes:
            process.die()
        self.processes.clear()


def _name(wanted: Any) -> str:
    if isinstance(wanted, Point):
        return wanted.name
    if isinstance(wanted, InTransaction):
        return f"{type(wanted.operation).__name__} in its transaction"
    return f"rests {wanted:.2f} s" if isinstance(wanted, float) else type(wanted).__name__
