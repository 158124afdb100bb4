"""A thread that is interrupted while it leads: its claim is given back, and those who wait are led on."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from semel import AsyncSemel, Limits, Policy, Semel
from semel.core.operations import AddReplays, Operation, Recorded
from semel.core.record import Status
from semel.core.store import Answers, Capability, Plan
from semel.engine.lane import Flight, Lane, PendingOperation, ThreadLane
from semel.errors import StoreUnavailable
from semel.stores.memory import AsyncMemoryDriver, MemoryDriver, MemoryStore


class Interrupted(MemoryDriver):
    """A driver whose first round takes effect, and is interrupted before its replies are there."""

    rounds = 0

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        replies = super().perform(plans)
        self.rounds += 1
        if self.rounds == 1:
            raise KeyboardInterrupt
        return replies


class InterruptedStore(MemoryStore):
    """A store whose drivers are interrupted once; it takes one operation at a time."""

    max_operations = 1

    def driver(self) -> MemoryDriver:
        return Interrupted(self)


@pytest.mark.parametrize("in_doubt", ["rerun", "hold"])
def test_a_claim_that_was_interrupted_on_its_way_is_given_back(in_doubt: str) -> None:
    policy = Policy(in_doubt=in_doubt)  # type: ignore[arg-type]  # one of the two words
    with Semel(InterruptedStore(), policy=policy) as semel:
        with pytest.raises(KeyboardInterrupt):
            semel.run("o-1", lambda: 7, operation="pay", fingerprint=None)
        record = semel.read("o-1", operation="pay")
        assert record is not None
        assert (record.status, record.attempts) == (Status.FAILED, 0)
        assert semel.run("o-1", lambda: 7, operation="pay", fingerprint=None).value == 7


def test_a_list_that_was_interrupted_leaves_the_lane_to_others() -> None:
    store = InterruptedStore()
    lane = ThreadLane(Lane(store), store.driver(), lambda _: None)
    tallies: list[Operation] = [AddReplays(bytes([number]) * 32, 1) for number in range(3)]
    with pytest.raises(KeyboardInterrupt):
        lane.perform_all(tallies)
    assert isinstance(lane.perform(tallies[0]), Recorded)


class Alarm(Exception):
    """What a handler of signals raises, as those of task queues do to end a task that takes too long."""


def _quiet() -> None:
    """No signal."""


def _ring(_number: int, _frame: object) -> None:
    raise Alarm


@pytest.fixture
def rings() -> Iterator[Callable[[], None]]:
    """Sends this process a signal whose handler raises."""
    before = signal.signal(signal.SIGUSR1, _ring)
    yield lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


class RungStore(MemoryStore):
    """A store whose first round takes effect, and is hit by a signal before its replies are there.

    With `caught` the error is caught on the way and becomes the reply of every plan, as by the drivers of servers.
    """

    def __init__(self, ring: Callable[[], None], *, caught: bool) -> None:
        super().__init__()
        self._ring, self._caught = ring, caught

    def driver(self) -> MemoryDriver:
        return RungDriver(self)

    def hit(self, plans: Sequence[Plan], replies: list[Answers | Exception]) -> list[Answers | Exception]:
        ring, self._ring = self._ring, _quiet
        try:
            ring()
        except Alarm as alarm:
            if not self._caught:
                raise
            return [alarm] * len(plans)
        return replies


class RungDriver(MemoryDriver):
    """A driver that is hit when a round has taken effect."""

    _store: RungStore

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        return self._store.hit(plans, super().perform(plans))


@pytest.fixture(params=[False, True], ids=["raised", "caught"])
def rung(request: pytest.FixtureRequest, rings: Callable[[], None]) -> RungStore:
    return RungStore(rings, caught=request.param)


def test_a_claim_that_a_signal_hit_on_its_way_is_given_back(rung: RungStore) -> None:
    with Semel(rung, policy=Policy(in_doubt="hold")) as semel:
        with pytest.raises(Alarm):
            semel.run("o-1", lambda: 7, operation="pay", fingerprint=None)
        assert semel.run("o-1", lambda: 7, operation="pay", fingerprint=None).value == 7


@pytest.mark.parametrize("make", [InterruptedStore, RungStore])
def test_a_claim_that_was_interrupted_takes_no_place_of_a_handler(
    make: type[MemoryStore], rings: Callable[[], None]
) -> None:
    store = RungStore(rings, caught=False) if make is RungStore else InterruptedStore()
    with Semel(store, limits=Limits(max_handlers=1)) as semel:
        with pytest.raises((KeyboardInterrupt, Alarm)):
            semel.run("o-1", lambda: 7, operation="pay", fingerprint=None)
        assert semel.run("o-2", lambda: 7, operation="pay", fingerprint=None).value == 7


def test_a_handler_that_a_signal_hit_takes_no_place(rings: Callable[[], None]) -> None:
    with Semel("memory://", limits=Limits(max_handlers=1)) as semel:
        with pytest.raises(Alarm):
            semel.run("o-1", rings, operation="pay", fingerprint=None)
        assert semel.run("o-2", lambda: 7, operation="pay", fingerprint=None).value == 7


class Joined(Lane):
    """A lane in which one more ticket is waiting when the first round is taken."""

    def __init__(self, store: MemoryStore, other: PendingOperation) -> None:
        super().__init__(store)
        self._others = [other]

    def next_flight(self) -> Flight:
        for other in self._others:
            self.submit(other)
        self._others = []
        return super().next_flight()


def test_what_a_signals_handler_raises_is_no_answer_to_those_who_shared_the_round(rung: RungStore) -> None:
    own, other = AddReplays(b"1" * 32, 1), PendingOperation(AddReplays(b"2" * 32, 1), threading.Lock())
    other.event.acquire()
    combining = ThreadLane(Joined(rung, other), rung.driver(), lambda _: None)
    with pytest.raises(Alarm):
        combining.perform(own)
    assert isinstance(other.answer, StoreUnavailable)
    assert other.event.acquire(blocking=False), "nobody told the one who waits"
    assert isinstance(combining.perform(own), Recorded)


class InterruptedDriver(AsyncMemoryDriver):
    """A driver for event loops whose first round takes effect, and is interrupted then."""

    rounds = 0

    async def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        replies = await super().perform(plans)
        self.rounds += 1
        if self.rounds == 1:
            raise KeyboardInterrupt
        return replies


@pytest.mark.parametrize("is_eager", [True, False], ids=["eager", "in a task"])
def test_an_event_loop_that_is_interrupted_in_a_round_can_be_run_again(is_eager: bool) -> None:
    class Store(MemoryStore):
        capabilities = MemoryStore.capabilities if is_eager else MemoryStore.capabilities - {Capability.EAGER}

        def async_driver(self) -> AsyncMemoryDriver:
            return InterruptedDriver(self)

    async def seven() -> int:
        return 7

    async def call() -> int:
        async with asyncio.timeout(60):
            return (await semel.run("o-1", seven, operation="pay", fingerprint=None)).value

    with asyncio.Runner() as runner:
        semel = AsyncSemel(Store(), policy=Policy(in_doubt="hold"))
        loop = runner.get_loop()
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(call())
        assert loop.run_until_complete(call()) == 7
        loop.run_until_complete(semel.close())
