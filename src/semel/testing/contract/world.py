"""The world of one scenario: a virtual clock, the store under test, and any number of clients of it.

Time moves only when a scenario says so, or when everything in progress waits for it; then it moves to the next instant
that somebody waits for. So no scenario depends on the speed of a machine.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from semel.core.fingerprint import fingerprint
from semel.core.key import SHARED, Key
from semel.core.operations import Answer, Claim, ClaimAnswer, Found, Granted, Operation, Read
from semel.core.policy import Policy
from semel.core.record import NOTHING, About, Happened, Lease, StoredRecord, instant
from semel.core.store import Store
from semel.engine.call_flow import terms_of
from semel.testing.clock import VirtualClock
from semel.testing.contract.api_client import OPERATION, ApiClient, CallStyle, Handler
from semel.testing.contract.calls import Call, Gate, current_call, until
from semel.testing.contract.engine_adapters import EngineAdapter, EngineKind
from semel.testing.contract.instrumented_store import InstrumentedStore

MakeStore = Callable[[], Store]


class World:
    """Everything one scenario needs. `ran` is the ledger: what its handlers noted when they were called."""

    def __init__(
        self, colour: EngineKind, clock: VirtualClock, make_store: MakeStore, call_style: CallStyle = "run"
    ) -> None:
        self.colour = EngineAdapter(colour)
        self.call_style = call_style
        self.clock = clock
        self.ran: list[Any] = []
        self._make_store = make_store
        self._bare: tuple[Store, Any] | None = None
        self._doors: list[ApiClient] = []
        self._calls: list[Call] = []
        self._gates: list[Gate] = []
        self._watched: list[InstrumentedStore] = []

    def client(self, store: Store | None = None, **settings: Any) -> ApiClient:
        """A process: an engine of its own on the records under test, or on a store given."""
        engine = self.colour.engine(store or self._make_store(), **{"clock": self.clock, **settings})
        self._doors.append(ApiClient(self, engine, decorates_methods=bool(self._doors)))
        return self._doors[-1]

    def store(self) -> Store:
        """The store under test itself, once more."""
        return self._make_store()

    def watched(self) -> InstrumentedStore:
        """The store under test, watched."""
        self._watched.append(InstrumentedStore(self._make_store()))
        return self._watched[-1]

    def gate(self) -> Gate:
        """A place where handlers stop."""
        self._gates.append(Gate())
        return self._gates[-1]

    def returning(self, value: Any, note: Any = None) -> Handler:
        """A handler that notes that it ran and returns `value`."""

        def handler() -> Any:
            self.ran.append(value if note is None else note)
            return value

        return handler

    def raising(self, error: BaseException) -> Handler:
        """A handler that notes that it ran and raises `error`."""

        def handler() -> Any:
            self.ran.append(type(error).__name__)
            raise error

        return handler

    def stopping(self, gate: Gate, value: Any = "value", error: BaseException | None = None) -> Handler:
        """A handler that notes that it ran, stops at `gate`, then returns `value` or raises `error`."""

        async def handler() -> Any:
            self.ran.append(value if error is None else type(error).__name__)
            await gate.passing()
            if error is not None:
                raise error
            return value

        return handler

    def finding(self, gate: Gate) -> Callable[[object], Awaitable[Happened]]:
        """A hook that notes that it was asked, stops at `gate`, then says that it happened, with the value "found"."""

        async def hook(_attempt: object) -> Happened:
            self.ran.append("asked")
            await gate.passing()
            return Happened("found")

        return hook

    def start(self, method: Callable[[], Any]) -> Call:
        """Let a method of an engine run as a call of its own."""
        call = Call(current_call.get())
        self._calls.append(call)
        self.colour.start(call, method)
        return call

    async def finish(self, call: Call) -> Any:
        """What a call returns; time passes only where everybody waits for it."""
        await self.ended(call)
        return call.outcome()

    async def ended(self, *calls: Call) -> None:
        """Wait until these calls are over, however they end."""
        while True:
            await until(lambda: all(call.done for call in calls) or self._stalled(), "the calls to end or stand still")
            if all(call.done for call in calls):
                self._calls = [call for call in self._calls if not call.done]
                return
            due = self.clock.next_due()
            assert due is not None, "a call stands still, and there is no instant that would wake it"
            self.clock.advance_to(due)

    async def settled(self) -> None:
        """Wait until everybody under way stands still."""
        await until(self._stalled, "everybody to stand still")

    async def waiting(self, *counts: tuple[ApiClient, int]) -> None:
        """Wait until so many callers wait for somebody else's key at these clients."""
        await until(lambda: all(client.waiters() == count for client, count in counts), f"waiters: {counts}")

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, from instant to instant, with everybody doing what is due at each."""
        target = self.clock.monotonic() + seconds
        while True:
            await self.settled()
            due = self.clock.next_due()
            if due is None or due > target:
                break
            self.clock.advance_to(due)
        self.clock.advance_to(target)

    def _stalled(self) -> bool:
        """Whether everybody under way waits: at a gate, for a call inside, for somebody's key, or for an instant."""
        if not self._keepers_rest():
            return False
        under_way = [call for call in list(self._calls) if not call.done]
        standing = sum(call.blocked for call in under_way) + sum(gate.waiting for gate in self._gates)
        standing += sum(client.waiters() for client in self._doors)
        # Waiting tasks are counted last: a task that begins to wait wakes its background task in the same step.
        pausing = self.clock.resting() - sum(len(client.keepers()) for client in self._doors)
        return len(under_way) <= standing + pausing and self._keepers_rest()

    def _keepers_rest(self) -> bool:
        return all(self.clock.rests_on(wake) for client in self._doors for wake in client.keepers())

    async def perform(self, *operations: Operation) -> list[Answer]:
        """Have operations of one kind carried out as one list; raises the first error among the answers."""
        if self._bare is None:
            store = self._make_store()
            self._bare = store, self.colour.driver(store)
        store, driver = self._bare
        reply = await self.colour.perform(driver, store.plan(operations, joined=False))
        if isinstance(reply, Exception):
            raise reply
        answers: list[Answer] = []
        for answer in reply:
            if isinstance(answer, Exception):
                raise answer
            answers.append(answer)
        return answers

    def claim(
        self,
        key: Any = "k",
        *,
        asked: Any = None,
        scope: Any = SHARED,
        policy: Policy | None = None,
        about: About = NOTHING,
        operation: str = OPERATION,
    ) -> Claim:
        """The claim of a caller, as an operation."""
        identity = Key.of(key, operation=operation, scope=scope)
        nonce = secrets.token_bytes(16)
        return Claim(identity, fingerprint(asked), nonce, terms_of(policy or Policy()), about)

    async def crash(self, key: Any = "k", **claim: Any) -> Lease:
        """A process that claims and is never heard of again. Its lease, for what it might still try."""
        answer: ClaimAnswer
        (answer,) = await self.perform(self.claim(key, **claim))  # type: ignore[assignment]  # a claim is answered so
        assert isinstance(answer, Granted), f"the claim was not granted: {answer}"
        return answer.lease

    def now(self) -> datetime:
        """The store's time, as a record shows it."""
        return instant(self.clock.store_clock())

    async def stored(self, key: Any = "k", *, operation: str = OPERATION, scope: Any = SHARED) -> StoredRecord | None:
        """The record as the store has it, finished steps included."""
        found: Found
        digest = Key.of(key, operation=operation, scope=scope).digest
        (found,) = await self.perform(Read(digest, with_steps=True))  # type: ignore[assignment]  # as above
        return found.record

    async def close(self) -> None:
        """Let go of everything, also after a scenario that failed half-way."""
        for gate in self._gates:
            gate.open()
        for watched in self._watched:
            watched.mend()
        await self.ended(*self._calls)
        for client in self._doors:
            await client.close()
        if self._bare is not None:
            await self.colour.close(self._bare[1])
