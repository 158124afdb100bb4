"""A caller that is cancelled, or struck by a signal, in the very turn in which its claim was granted gives it back.

Nobody else has to wait for the lease: the next who asks is granted the key at once, without any time passing.
"""

import asyncio
import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any

import pytest

from semel import AsyncSemel, Policy, Semel
from semel.core import flow
from semel.core.fingerprint import fingerprint
from semel.core.key import Key
from semel.core.operations import AddReplays, Claim, Granted
from semel.core.record import NOTHING
from semel.core.store import Answers, Capability, Plan
from semel.engine import call_flow, sync_engine
from semel.engine.call_flow import terms_of
from semel.engine.lane import Lane, PendingOperation, ThreadLane, locked_lock
from semel.stores.memory import AsyncMemoryDriver, MemoryDriver, MemoryStore
from semel.testing.clock import VirtualClock

AT_ONCE = Policy(when_running="reject")
OPERATION = "pay"


class Alarm(Exception):
    """What a handler of signals raises to end a task that takes too long."""


def granted_at_once(store: MemoryStore, clock: VirtualClock, key: str = "k") -> Any:
    """What another process gets for the key; raises `InProgress` where the claim was left behind."""
    with Semel(store, policy=AT_ONCE, clock=clock) as other:
        return other.run(key, lambda: "next", operation=OPERATION, fingerprint=None).value


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


class InTurn(AsyncMemoryDriver):
    """A driver for event loops that has something done between the reply of its first claim and the caller's turn."""

    def __init__(self, store: "TurnStore") -> None:
        super().__init__(store)
        self._turns = store

    async def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        replies = await super().perform(plans)
        act, self._turns.act = self._turns.act, None
        if act is not None:
            asyncio.get_running_loop().call_soon(act)
        return replies


class TurnStore(MemoryStore):
    """A store whose first awaited round is followed by `act`, before whoever waits for it has its turn."""

    capabilities = MemoryStore.capabilities - {Capability.EAGER}
    act: Callable[[], object] | None = None

    def async_driver(self) -> AsyncMemoryDriver:
        return InTurn(self)


@pytest.mark.parametrize("victim", [0, 1, 2], ids=["first", "second", "last"])
def test_a_task_cancelled_in_the_turn_of_its_grant_gives_the_claim_back(clock: VirtualClock, victim: int) -> None:
    """However many share the round."""
    store = TurnStore(clock=clock.store_clock)
    ran: list[str] = []

    async def main() -> list[Any]:
        async with AsyncSemel(store, policy=AT_ONCE, clock=clock) as semel:

            async def call(key: str) -> str:
                async def handler() -> str:
                    ran.append(key)
                    return key

                return (await semel.run(key, handler, operation=OPERATION, fingerprint=None)).value

            tasks = [asyncio.ensure_future(call(f"k{number}")) for number in range(3)]
            store.act = tasks[victim].cancel
            return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(main())
    assert isinstance(found[victim], asyncio.CancelledError), "the task was not cancelled in its turn"
    assert f"k{victim}" not in ran, "the handler of a cancelled caller ran"
    assert granted_at_once(store, clock, f"k{victim}") == "next"


LINES_OF: list[Any] = [
    ThreadLane.perform_flow,
    ThreadLane._await,
    ThreadLane._run_flights,
    sync_engine.SyncPerformer.perform,
    sync_engine.SyncCall._advance,
    sync_engine.SyncCall._drive,
    flow.run,
    flow.ask,
    call_flow.CallFlow._claim,
    call_flow.CallFlow.flow,
    call_flow.CallFlow._granted,
]
TRACED: frozenset[CodeType] = frozenset(function.__code__ for function in LINES_OF)


class Striking:
    """Strikes a thread at the n-th line of engine code after its claim was granted, up to where the handler begins."""

    def __init__(self, line: int, error: BaseException) -> None:
        self._left = line
        self._error = error
        self.armed = False
        self.struck: str | None = None

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code not in TRACED:
            return None
        if event == "line" and self.armed:
            if not self._left:
                self.armed, self.struck = False, f"{frame.f_code.co_name}:{frame.f_lineno}"
                raise self._error
            self._left -= 1
        return self.trace

    def call(self, semel: Semel) -> None:
        """Make the call, struck on the way."""

        def handler() -> str:
            self.armed = False
            return "ran"

        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            semel.run("k", handler, operation=OPERATION, fingerprint=None)
        except type(self._error):
            pass
        finally:
            sys.settrace(before)


class Armed(MemoryDriver):
    """A driver that arms whoever strikes when the first claim was answered."""

    def __init__(self, store: "ArmedStore") -> None:
        super().__init__(store)
        self._armed = store

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        replies = super().perform(plans)
        striking, self._armed.striking = self._armed.striking, None
        if striking is not None:
            striking.armed = True
        return replies


class ArmedStore(MemoryStore):
    striking: Striking | None = None

    def driver(self) -> MemoryDriver:
        return Armed(self)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Alarm()], ids=lambda error: type(error).__name__)
def test_a_thread_struck_at_any_line_between_its_grant_and_its_handler_gives_the_claim_back(
    clock: VirtualClock, error: BaseException
) -> None:
    struck: list[str] = []
    for line in range(1000):
        store = ArmedStore(clock=clock.store_clock)
        store.striking = striking = Striking(line, error)
        with Semel(store, policy=AT_ONCE, clock=clock) as semel:
            striking.call(semel)
        if striking.struck is None:
            break
        struck.append(striking.struck)
        assert granted_at_once(store, clock) == "next", f"struck at {striking.struck}"
    assert {where.partition(":")[0] for where in struck} >= {"_run_flights", "perform_flow", "_claim", "_granted"}, (
        struck
    )


class StruckEvent:
    """A seat whose taker is struck right after it was given up: the answer, or the lead, is there by then."""

    def __init__(self, error: BaseException) -> None:
        self._lock = locked_lock()
        self._error: BaseException | None = error

    def release(self) -> None:
        self._lock.release()

    def acquire(self) -> None:
        self._lock.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            raise error


class Crowd(Lane):
    """A lane that tells how many have come."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.came = threading.Semaphore(0)

    def submit(self, pending: PendingOperation) -> bool:
        leads = super().submit(pending)
        self.came.release()
        return leads


class Slow(MemoryDriver):
    """A driver whose first round goes on when it is told to."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.goes_on = threading.Event()

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        assert self.goes_on.wait(60), "nobody let the first round go on"
        return super().perform(plans)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Alarm()], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("before", [1, 2], ids=["handed the lead", "brought its answer"])
def test_a_thread_struck_on_its_seat_leaves_no_claim_behind(error: BaseException, before: int) -> None:
    """With one before it, it is the next to lead; with two, the second of them leads and brings its answer."""
    store = MemoryStore()
    crowd, slow = Crowd(store), Slow(store)
    events: list[Any] = []
    lane = ThreadLane(crowd, slow, lambda _: None, lambda: events.pop() if events else locked_lock())
    others = [threading.Thread(target=lane.perform, args=(AddReplays(bytes(32), 1),)) for _ in range(before)]
    for other in others:
        other.start()
        assert crowd.came.acquire(timeout=60), "a thread did not come to the lane"
    struck: list[BaseException] = []
    events.append(StruckEvent(error))
    victim = threading.Thread(target=_performed, args=(lane, a_claim(), struck))
    victim.start()
    assert crowd.came.acquire(timeout=60), "the claim did not come to the lane"
    slow.goes_on.set()
    for thread in (*others, victim):
        thread.join(60)
    assert struck == [error], "the thread was not struck on its seat"
    assert isinstance(lane.perform(a_claim()), Granted), "the claim of the thread that was struck was left behind"


def _performed(lane: ThreadLane, claim: Claim, struck: list[BaseException]) -> None:
    try:
        lane.perform(claim)
    except (KeyboardInterrupt, Alarm) as error:
        struck.append(error)


def a_claim() -> Claim:
    """A claim of the same key, by somebody else each time."""
    key = Key.of("k", operation=OPERATION)
    return Claim(key, fingerprint(None), secrets.token_bytes(16), terms_of(Policy()), NOTHING)
