"""A broker in memory that does to events what brokers do on bad days: for tests of consumers and relays.

- Every event suffers every fault once, in an order that the seed decides. So a test with one event meets all of them,
  and the same seed gives the same run. Nobody sleeps: time passes on the virtual clock, or not at all.
- An event is forgotten only when its consumer acknowledged it, or gave it up as a dead letter, and the broker heard it.
"""

from __future__ import annotations

import inspect
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast, get_args, overload
from unittest.mock import patch

from semel.api import AsyncSemel, Semel
from semel.engine.clock import Crash
from semel.errors import UsageError
from semel.events import Consumer, Disposition, Event
from semel.events.handlers import EventHandler
from semel.testing.clock import VirtualClock

Fault = Literal["duplicate", "lost_ack", "crash", "lost_confirm"]
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
MOST_DELIVERIES: Final = 100
"""How often an event is delivered before the test fails."""


class _Message:
    """An event in the queue of one consumer; `due` is when it may be delivered again."""

    def __init__(self, event: Event, *, due: float = 0.0) -> None:
        self.event = event
        self.due = due


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One delivery that is to be made; `is_last` where the process that takes it is killed before it acknowledges."""

    event: Event
    is_last: bool


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """What came of deliveries.

    Attributes:
        statuses: how many deliveries ended in each way, by the status of their disposition; `crashed` where the process
            was killed.
        faults: how often each fault happened.
        dead: the events that were given up as dead letters.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    dead: list[Event] = field(default_factory=list)

    @property
    def deliveries(self) -> int:
        """How many there were."""
        return self.statuses.total()


class FaultyBroker:
    """A broker in memory: a `Publisher` for a relay, and a source for consumers.

    Args:
        clock: that of engine and store; the broker lets time pass on it while a consumer wants to be asked later.
            Without it events are delivered again at once.
        seed: decides which fault comes when, and which event is delivered next.
        faults: what happens to every event, once each: `duplicate` (it is delivered twice), `lost_ack` (the broker does
            not hear that it is done with), `crash` (the process is killed before it acknowledges: where the handler
            runs, after that has returned and before anything is recorded), `lost_confirm` (it is kept, and who
            published it does not hear of it).
        reorders: whether the next event is any that waits, and not the first.

    Raises:
        UsageError: a fault is not known.

    Where neither a clock is given nor a transaction ends with its process, there is no `crash`: the next delivery would
    have to wait for the end of a lease.
    """

    def __init__(
        self,
        clock: VirtualClock | None = None,
        *,
        seed: int = 0,
        faults: Iterable[Fault] = FAULTS,
        reorders: bool = True,
    ) -> None:
        self._faults = tuple(faults)
        if unknown := [fault for fault in self._faults if fault not in FAULTS]:
            raise UsageError(f"faults are {', '.join(FAULTS)}, not {unknown[0]!r}; nothing was made.")
        self._clock = clock
        self._chance = random.Random(seed)
        self._reorders = reorders
        self._kept: list[Event] = []
        self._queues: dict[str, tuple[int, list[_Message]]] = {}
        self._left: dict[tuple[str, str, str], list[Fault]] = {}
        self._unconfirmed: set[tuple[str, str]] = set()

    @property
    def events(self) -> tuple[Event, ...]:
        """What it was given, in that order, repeats included."""
        return tuple(self._kept)

    def send(self, *events: Event) -> None:
        """Keep events, as if somebody had published them."""
        self._kept += events

    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        """Keep events. Of each the first confirmation is lost, so that a relay publishes it once more."""
        answers: list[Exception | None] = []
        for event in events:
            identity = event.source, event.id
            is_lost = "lost_confirm" in self._faults and identity not in self._unconfirmed
            self._unconfirmed.add(identity)
            self._kept.append(event)
            answers.append(ConnectionError("the confirmation was lost, as a test wanted") if is_lost else None)
        return answers

    @overload
    def deliver(self, consumer: Consumer[AsyncSemel]) -> Awaitable[DeliveryReport]: ...

    @overload
    def deliver(self, consumer: Consumer[Semel]) -> DeliveryReport: ...

    @overload
    def deliver(self, consumer: Callable[[Event], Any]) -> Any: ...

    def deliver(self, consumer: Any) -> Any:
        """Deliver all events to a consumer until it is done with every one of them.

        Each consumer gets every event. A function that takes an event is a consumer without an inbox: what it does not
        raise for is acknowledged. That of a consumer with coroutine functions, and of such a function, is awaited.

        Raises:
            AssertionError: an event was delivered a hundred times, and its consumer is not done with it.
        """
        if isinstance(consumer, Consumer):
            rounds = self._deliver_all(consumer.name, can_be_killed=self._can_kill(consumer))
            act, is_async = _consumer_action(consumer), consumer.is_async
        else:
            name = getattr(consumer, "__qualname__", repr(consumer))
            rounds, is_async = self._deliver_all(name, can_be_killed=True), inspect.iscoroutinefunction(consumer)
            act = _function_action(consumer)
        return _drive_async(rounds, act) if is_async else _drive(rounds, act)

    def _can_kill(self, consumer: Consumer[Any]) -> bool:
        settings = consumer._deliveries._settings
        return self._clock is not None or (settings.transaction is not None and settings.serial_by is None)

    def _deliver_all(
        self, name: str, *, can_be_killed: bool
    ) -> Generator[_Delivery, Disposition | None, DeliveryReport]:
        report = DeliveryReport()
        counts: Counter[tuple[str, str]] = Counter()
        queue = self._queue_of(name)
        while queue:
            message = self._choose(queue)
            event = message.event
            counts[event.source, event.id] += 1
            if counts[event.source, event.id] > MOST_DELIVERIES:
                raise AssertionError(
                    f"{name} is not done with the event {event.id} after {MOST_DELIVERIES} deliveries: "
                    f"{dict(report.statuses)}. Where it waits for a lease, give the broker the clock of its engine."
                )
            left = self._faults_left(name, event, can_be_killed=can_be_killed)
            fault = left.pop() if left else None
            disposition = yield _Delivery(event, is_last=fault == "crash")
            report.statuses["crashed" if disposition is None else disposition.status] += 1
            if fault == "lost_ack" and disposition is not None and disposition.action == "retry":
                left.insert(0, fault)  # nothing was acknowledged that could be lost
                fault = None
            report.faults.update([] if fault is None else [fault])
            self._settle(queue, message, disposition, fault, report)
        return report

    def _queue_of(self, name: str) -> list[_Message]:
        """What waits for a consumer: what is left of the last time, and what was published since."""
        first, queue = self._queues.get(name, (0, []))
        queue += [_Message(event) for event in self._kept[first:]]
        self._queues[name] = len(self._kept), queue
        return queue

    def _choose(self, queue: list[_Message]) -> _Message:
        """The next message that is due; if none is, time passes until one is."""
        if self._clock is not None:
            earliest = min(message.due for message in queue)
            self._clock.advance_to(earliest)
            due = [message for message in queue if message.due <= self._clock.monotonic()]
        else:
            due = list(queue)
        return self._chance.choice(due) if self._reorders else due[0]

    def _faults_left(self, name: str, event: Event, *, can_be_killed: bool) -> list[Fault]:
        """What is still to happen to an event on its way to a consumer; the last comes next."""
        identity = name, event.source, event.id
        if identity not in self._left:
            left = [fault for fault in self._faults if fault != "lost_confirm"]
            self._left[identity] = [fault for fault in left if can_be_killed or fault != "crash"]
            self._chance.shuffle(self._left[identity])
        return self._left[identity]

    def _settle(
        self,
        queue: list[_Message],
        message: _Message,
        disposition: Disposition | None,
        fault: Fault | None,
        report: DeliveryReport,
    ) -> None:
        queue.remove(message)
        if fault == "duplicate":
            queue.append(_Message(message.event))
        if disposition is None or fault == "lost_ack":
            queue.append(_Message(message.event))
        elif disposition.action == "retry":
            wait = 0.0 if disposition.retry_after is None else disposition.retry_after.total_seconds()
            now = 0.0 if self._clock is None else self._clock.monotonic()
            queue.append(_Message(message.event, due=now + wait))
        elif disposition.action == "dead_letter":
            report.dead.append(message.event)


Act = Callable[[_Delivery], Any]


def _drive(rounds: Generator[_Delivery, Disposition | None, DeliveryReport], act: Act) -> DeliveryReport:
    disposition: Disposition | None = None
    try:
        wanted = next(rounds)
        while True:
            try:
                disposition = act(wanted)
            except Crash:
                disposition = None
            wanted = rounds.send(None if wanted.is_last else disposition)
    except StopIteration as end:
        return cast("DeliveryReport", end.value)


async def _drive_async(rounds: Generator[_Delivery, Disposition | None, DeliveryReport], act: Act) -> DeliveryReport:
    disposition: Disposition | None = None
    wanted = next(rounds, None)
    while wanted is not None:
        try:
            disposition = await act(wanted)
        except Crash:
            disposition = None
        try:
            wanted = rounds.send(None if wanted.is_last else disposition)
        except StopIteration as end:
            return cast("DeliveryReport", end.value)
    return DeliveryReport()


def _consumer_action(consumer: Consumer[Any]) -> Act:
    """Have a consumer receive an event as a broker would hand it over."""

    def act(delivery: _Delivery) -> Any:
        headers, body = delivery.event.to_headers()
        with _killed_after_handlers(consumer) if delivery.is_last else nullcontext():
            return consumer.receive(headers, body)

    async def act_async(delivery: _Delivery) -> Any:
        headers, body = delivery.event.to_headers()
        with _killed_after_handlers(consumer) if delivery.is_last else nullcontext():
            return await consumer.receive(headers, body)

    return act_async if consumer.is_async else act


def _function_action(function: Callable[[Event], Any]) -> Act:
    """Have a function take an event, and acknowledge what it does not raise for."""

    def act(delivery: _Delivery) -> Disposition:
        try:
            function(Event.from_headers(*delivery.event.to_headers()))
        except Exception as error:  # noqa: BLE001 - whatever it is, such a consumer has the event delivered again
            return Disposition("retry", "failed", error=error)
        return Disposition("ack", "processed")

    async def act_async(delivery: _Delivery) -> Disposition:
        try:
            await function(Event.from_headers(*delivery.event.to_headers()))
        except Exception as error:  # noqa: BLE001 - as above
            return Disposition("retry", "failed", error=error)
        return Disposition("ack", "processed")

    return act_async if inspect.iscoroutinefunction(function) else act


@contextmanager
def _killed_after_handlers(consumer: Consumer[Any]) -> Iterator[None]:
    """Inside, the process is killed when a handler of the consumer has returned."""
    handlers = consumer._handlers
    find = handlers.find

    def find_dying(type_: str) -> EventHandler | None:
        found = find(type_)
        return None if found is None else replace(found, function=_dying(found.function, is_async=consumer.is_async))

    replaced: AbstractContextManager[Any] = patch.object(handlers, "find", find_dying)
    with replaced:
        yield


def _dying(function: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
    def die(**given: Any) -> None:
        function(**given)
        raise Crash("The process was killed before it had recorded anything, as a test wanted.")

    async def die_async(**given: Any) -> None:
        await function(**given)
        raise Crash("The process was killed before it had recorded anything, as a test wanted.")

    return die_async if is_async else die
