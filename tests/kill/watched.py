"""A store that shows on the board how far each operation has come: sent, written, committed. It changes nothing else.

Whose operation it is tells the nonce, because in a lane one thread carries out what others asked for.
"""

import secrets
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from semel.core.operations import (
    Answer,
    Checkpoint,
    Claim,
    Complete,
    Fail,
    Granted,
    InDoubtAnswer,
    JoinTransaction,
    Operation,
    Recorded,
    Running,
    TransactionJoined,
)
from semel.core.record import Lease
from semel.core.store import Answers, AsyncDriver, Capabilities, Capability, Driver, Plan, Store
from semel.stores.wrapper import StoreWrapper
from tests.kill.board import Field, Slot
from tests.kill.positions import At

current_slot: ContextVar[Slot] = ContextVar("slot")


class Way(NamedTuple):
    """The positions of one kind of operation; inside the caller's transaction there is no commit of ours."""

    sent: At | None
    written: At
    committed: At | None = None


_WAYS: Final = {
    (Claim, False): Way(At.CLAIMING, At.CLAIM_WRITTEN, At.CLAIMED),
    (Complete, False): Way(At.COMPLETING, At.COMPLETE_WRITTEN, At.COMPLETED),
    (Checkpoint, False): Way(At.STEP_SAVING, At.STEP_WRITTEN, At.STEP_SAVED),
    (Claim, True): Way(At.JOINING, At.JOINED),
    (Complete, True): Way(At.JOINED_COMPLETING, At.JOINED_COMPLETED),
    (JoinTransaction, True): Way(None, At.STEP_JOINED),
    (Checkpoint, True): Way(None, At.STEP_JOINED_SAVED),
}


class WatchedStore(StoreWrapper):
    """`store`, watched. Without `commits_rounds` what is written is committed already."""

    def __init__(self, store: Store, note_return: Callable[[Lease], None], *, commits_rounds: bool = True) -> None:
        self._commits_rounds = commits_rounds
        self._note_return = note_return
        self._store = store
        self._slots: dict[bytes, Slot] = {}
        # By plan: rounds of callers and rounds that renew leases go on side by side. Not by its number, which another
        # plan may get once this one is gone.
        self._uncommitted: WeakKeyDictionary[Plan, list[tuple[Slot, At]]] = WeakKeyDictionary()

    def new_nonce(self) -> bytes:
        """For the engine: a nonce that leads back to the slot of whoever asks."""
        nonce = secrets.token_bytes(16)
        self._slots[nonce] = current_slot.get()
        return nonce

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The plan of the store, with marks."""
        for operation in operations:
            if isinstance(operation, Fail) and not operation.started:
                self._note_return(operation.lease)  # before it is sent: a kill may strike as soon as it is recorded
        plan = self._store.plan(operations, joined=joined)
        way = _WAYS.get((type(operations[0]), joined))
        if way is None:
            return plan
        uncommitted: list[tuple[Slot, At]] = []
        marked = self._marked(plan, way, [self._slot(operation) for operation in operations], uncommitted)
        if not joined:
            self._uncommitted[marked] = uncommitted
        return marked

    def _slot(self, operation: Operation) -> Slot:
        nonce = operation.nonce if isinstance(operation, Claim) else operation.lease.nonce  # type: ignore[union-attr]
        return self._slots[nonce]

    def _marked(self, plan: Plan, way: Way, slots: list[Slot], uncommitted: list[tuple[Slot, At]]) -> Plan:
        if way.sent is not None:
            for slot in slots:
                slot.mark(way.sent)
        answers = yield from plan
        for slot, answer in zip(slots, answers, strict=True):
            self._answered(slot, way, answer, uncommitted)
        return answers

    def _answered(self, slot: Slot, way: Way, answer: Answer | Exception, uncommitted: list[tuple[Slot, At]]) -> None:
        if isinstance(answer, Granted):
            slot.put(Field.FENCE, answer.record.fence)
        if isinstance(answer, (Granted, Recorded, TransactionJoined)):
            done_at_once = way.committed is not None and not self._commits_rounds
            slot.mark(way.committed if way.committed is not None and done_at_once else way.written)
            if way.committed is not None and not done_at_once:
                uncommitted.append((slot, way.committed))
        elif isinstance(answer, (Running, InDoubtAnswer)):
            slot.mark(At.WAITING)

    def committed(self, plans: Sequence[Plan], replies: Sequence[Answers | Exception]) -> None:
        """A round is over: what its plans wrote is committed, unless the round failed."""
        marks = [mark for plan in plans for mark in self._uncommitted.pop(plan, [])]
        if not any(isinstance(reply, Exception) for reply in replies):
            for slot, at in marks:
                slot.mark(at)

    @property
    def capabilities(self) -> Capabilities:
        """Those of the store, except that its drivers are wrapped: they tell of nothing, and wait."""
        return super().capabilities - {Capability.NOTIFY, Capability.EAGER}

    def driver(self) -> Driver:
        """The store's driver, watched."""
        return WatchedDriver(self, self._store.driver())

    def async_driver(self) -> AsyncDriver:
        """The same for event loops."""
        return AsyncWatchedDriver(self, self._store.async_driver())

    def _behind(self) -> Store:
        return self._store


class WatchedDriver:
    """Tells the watched store when a round is committed."""

    def __init__(self, watched: WatchedStore, driver: Driver) -> None:
        self._watched = watched
        self._driver = driver

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        """Run one round."""
        replies = self._driver.perform(plans)
        self._watched.committed(plans, replies)
        return replies

    def close(self) -> None:
        """Let go of the connections."""
        self._driver.close()


class AsyncWatchedDriver:
    """The same, awaited."""

    def __init__(self, watched: WatchedStore, driver: AsyncDriver) -> None:
        self._watched = watched
        self._driver = driver

    async def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        """Run one round."""
        replies = await self._driver.perform(plans)
        self._watched.committed(plans, replies)
        return replies

    async def close(self) -> None:
        """Let go of the connections."""
        await self._driver.close()
