"""A wrapper that observes the store under test and injects faults, one operation at a time.

`refuse` and `lock` fail before anything is applied, `lose` applies and loses the reply, `hold` stops a batch before it
is sent or after it was applied. Everything else passes untouched.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from semel.core.operations import Answer, Operation
from semel.core.store import Answers, AsyncDriver, Capabilities, Capability, Driver, Plan, Store
from semel.errors import StoreUnavailable
from semel.stores.wrapper import StoreWrapper
from semel.testing.contract.calls import until

Kind = type[Any]
FaultKind = Literal["refuse", "lock", "lose"]
_NOT_APPLIED = ("refuse", "lock")


@dataclass(slots=True)
class _Fault:
    """A fault to inject into operations of some kinds, and how often yet (None: always)."""

    how: FaultKind
    kinds: tuple[Kind, ...]
    left: int | None


@dataclass(slots=True)
class Hold:
    """A round that is stopped on its way: the first one that carries an operation of this kind."""

    kind: Kind
    after: bool
    taken: bool = False
    _reached: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    async def reached(self) -> None:
        """Wait until a round is stopped here."""
        await until(self._reached.is_set, f"a round with a {self.kind.__name__}")

    def release(self) -> None:
        """Let the round go on."""
        self._released.set()

    def sync_stop(self) -> None:
        """Stop this thread."""
        self._reached.set()
        self._released.wait()

    async def async_stop(self) -> None:
        """Stop this task."""
        self._reached.set()
        await until(self._released.is_set, "the held round to be released")


class InstrumentedStore(StoreWrapper):
    """The store under test, watched."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._faults: list[_Fault] = []
        self._holds: list[Hold] = []
        self._sent: weakref.WeakKeyDictionary[Plan, tuple[Operation, ...]] = weakref.WeakKeyDictionary()
        self._seen: list[tuple[Operation, ...]] = []

    def _behind(self) -> Store:
        return self._store

    def refuse(self, *kinds: Kind, times: int | None = None) -> None:
        """Fail operations of these kinds before they are applied."""
        self._faults.append(_Fault("refuse", kinds, times))

    def lock(self, *kinds: Kind, times: int | None = None) -> None:
        """Fail operations of these kinds because somebody else holds the record for a moment."""
        self._faults.append(_Fault("lock", kinds, times))

    def lose(self, *kinds: Kind, times: int | None = 1) -> None:
        """Apply operations of these kinds and lose the reply."""
        self._faults.append(_Fault("lose", kinds, times))

    def mend(self) -> None:
        """No more faults, and everything that is held goes on."""
        self._faults.clear()
        for hold in self._holds:
            hold.release()

    def hold(self, kind: Kind, *, after: bool = False) -> Hold:
        """Stop the next round with an operation of this kind: before it is sent, or after it was applied."""
        hold = Hold(kind, after)
        self._holds.append(hold)
        return hold

    def count(self, kind: Kind) -> int:
        """How many operations of this kind were sent."""
        return sum(len(operations) for operations in self.lists(kind))

    def lists(self, kind: Kind) -> list[tuple[Operation, ...]]:
        """The lists of operations of this kind that were sent, each as one."""
        return [operations for operations in list(self._seen) if isinstance(operations[0], kind)]

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        plan = self._plan(operations, joined=joined)
        self._sent[plan] = tuple(operations)
        return plan

    def _plan(self, operations: Sequence[Operation], *, joined: bool) -> Generator[Any, Any, Answers]:
        self._seen.append(tuple(operations))
        fates = [self._fate(operation) for operation in operations]
        sent = [operation for operation, fate in zip(operations, fates, strict=True) if fate not in _NOT_APPLIED]
        given = iter((yield from self._store.plan(sent, joined=joined)) if sent else [])
        answers: list[Answer | Exception] = []
        for fate in fates:
            answer = None if fate in _NOT_APPLIED else next(given)
            answers.append(_silence(fate) if answer is None or fate == "lose" else answer)
        return answers

    def _fate(self, operation: Operation) -> FaultKind | None:
        for fault in self._faults:
            if fault.left != 0 and isinstance(operation, fault.kinds):
                if fault.left is not None:
                    fault.left -= 1
                return fault.how
        return None

    def holding(self, plans: Sequence[Plan], *, after: bool) -> list[Hold]:
        """Who stops a round with these plans at this side of it."""
        operations = [operation for plan in plans for operation in self._sent.get(plan, ())]
        holds = [
            hold
            for hold in self._holds
            if hold.after is after and not hold.taken and any(isinstance(one, hold.kind) for one in operations)
        ]
        for hold in holds:
            hold.taken = True
        return holds

    @property
    def capabilities(self) -> Capabilities:
        """Those of the store, except that its drivers are wrapped: they tell of nothing, and wait."""
        return super().capabilities - {Capability.NOTIFY, Capability.EAGER}

    def driver(self) -> Driver:
        return _SyncInstrumentedDriver(self, self._store.driver())

    def async_driver(self) -> AsyncDriver:
        return _AsyncInstrumentedDriver(self, self._store.async_driver())


class _AsyncInstrumentedDriver:
    def __init__(self, watched: InstrumentedStore, driver: AsyncDriver) -> None:
        self._watched = watched
        self._driver = driver

    async def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        after = self._watched.holding(plans, after=True)
        for hold in self._watched.holding(plans, after=False):
            await hold.async_stop()
        replies = await self._driver.perform(plans)
        for hold in after:
            await hold.async_stop()
        return replies

    async def close(self) -> None:
        await self._driver.close()


def _silence(fate: FaultKind | None) -> StoreUnavailable:
    return StoreUnavailable("The store did not answer, because the test says so.", conflict=fate == "lock")


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class _SyncInstrumentedDriver:
    def __init__(self, watched: InstrumentedStore, driver: Driver) -> None:
        self._watched = watched
        self._driver = driver

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        after = self._watched.holding(plans, after=True)
        for hold in self._watched.holding(plans, after=False):
            hold.sync_stop()
        replies = self._driver.perform(plans)
        for hold in after:
            hold.sync_stop()
        return replies

    def close(self) -> None:
        self._driver.close()
