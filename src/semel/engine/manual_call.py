"""Open calls: claimed here, carried out elsewhere, and settled by whoever carried them out.

A framework calls its views by itself, so what must happen once cannot be handed over as a function: the call is opened,
the framework goes on, and what came of it is told afterwards. What always holds: until it is settled an open call keeps
its lease alive; it is settled once, and with everything `run` does: errors by policy, a lost lease, a lost store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from semel.core.flow import Begin, Flow, arun, run
from semel.core.record import Status
from semel.engine import context
from semel.engine.call import ShellBase
from semel.engine.call_flow import Once, Request, Result, read_committed
from semel.engine.effects import Call
from semel.errors import InProgress

T = TypeVar("T")


class Teller(NamedTuple):
    """Whom to tell how a call went."""

    result: Callable[[Request, Result[Any]], None]
    error: Callable[[Once, BaseException], None]
    rolled_back: Callable[[Once, BaseException], None]


class Opened(ABC, Generic[T]):
    """A call under way, without the colour of whoever settles it.

    Attributes:
        result: what was found instead of a claim: then there is nothing to carry out and nothing to settle.
    """

    def __init__(self, teller: Teller, shell: ShellBase, once: Once, joined: Any) -> None:
        self.result: Result[T] | None = None
        self._teller = teller
        self._shell = shell
        self._once = once
        self._joined = joined
        self._flow: Flow[Any] = once.flow()
        self._call: Call | None = None
        self._member: context.Membership | None = None

    @property
    def claimed_at(self) -> float:
        """When the key was claimed, by the engine's clock."""
        return self._once.asked

    @property
    def is_joined(self) -> bool:
        """Whether the call is part of a transaction of its caller."""
        return self._joined is not None

    def _begun(self, found: Call | Result[T]) -> None:
        if isinstance(found, Call):
            self._call = found
            if found.attempt is not None:
                self._shell.hold(found.attempt)
        else:
            self.result = found
            self._ended(found)

    def _ended(self, result: Result[T]) -> None:
        if result.replayed:
            self._shell.replayed()
        self._teller.result(self._once.request, result)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside, this is the current attempt, and operations join the transaction that it was opened in."""
        attempt = None if self._call is None else self._call.attempt
        if attempt is None:
            yield
            return
        token = self._shell.entered(attempt, self._once.request.policy)
        try:
            with context.joining(self._shell.store_name, self._joined) as self._member:
                yield
        finally:
            self._shell.left(attempt, token)

    def _tell(self, error: BaseException) -> None:
        """Tell how the call failed. In a transaction whoever opened that waits for others, and rolls it back."""
        if self._joined is None:
            self._teller.error(self._once, error)
        elif self._call is not None:
            self._teller.rolled_back(self._once, error)
        elif not isinstance(error, InProgress):
            self._teller.error(self._once, error)

    def _read_committed(self) -> Flow[Status | None]:
        attempt = None if self._call is None else self._call.attempt
        if attempt is None:
            return None
        record = yield from read_committed(attempt.lease)
        return None if record is None else record.status

    @abstractmethod
    def read_status(self) -> Any:
        """The status of the record that this call has committed, as everybody else sees it; None: there is none."""

    @abstractmethod
    def settle(self, value: T) -> Any:
        """It gave `value`. The result is another one where somebody else had taken the key over."""

    @abstractmethod
    def fail(self, error: Exception) -> Any:
        """It raised `error`, which is recorded by policy and raised again."""

    def _leave(self) -> None:
        """The handler is over, whatever may still run in its context: it no longer stands in its key's way."""
        if self._call is not None and self._call.attempt is not None:
            self._call.attempt.active = False
        if self._member is not None:
            # What runs on in its context, such as background work, must not join a transaction that has ended.
            self._member.over = True


class SyncOpened(Opened[T]):
    """An open call, settled by a call that blocks."""

    def begin(self) -> SyncOpened[T]:
        """Claim, or find what there is; raises what `run` raises."""
        self._begun(self._carry(next))
        return self

    def settle(self, value: T) -> Result[T]:
        """It gave `value`. The result is another one where somebody else had taken the key over."""
        return self._end(lambda flow: flow.send(value))

    def fail(self, error: Exception) -> Result[T]:
        """It raised `error`, which is recorded by policy and raised again."""
        return self._end(lambda flow: flow.throw(error))

    def abandon(self, error: BaseException) -> None:
        """It was cut off: write down what is known, and no more."""
        self._leave()
        self._shell.abandon(error)
        self._tell(error)

    def read_status(self) -> Status | None:
        """The status of the record that this call has committed, as everybody else sees it; None: there is none."""
        return run(self._read_committed(), self._shell.outside().perform)

    def _end(self, begin: Begin) -> Result[T]:
        self._leave()
        result: Result[T] = self._carry(begin)
        self._ended(result)
        return result

    def _carry(self, begin: Begin) -> Any:
        try:
            return self._shell.carry(self._once, self._flow, begin, (Call,))
        except BaseException as error:
            self._tell(error)
            raise


class AsyncOpened(Opened[T]):
    """An open call, settled by a call that is awaited."""

    async def begin(self) -> AsyncOpened[T]:
        """Claim, or find what there is; raises what `run` raises."""
        self._begun(await self._carry(next))
        return self

    async def settle(self, value: T) -> Result[T]:
        """It gave `value`. The result is another one where somebody else had taken the key over."""
        return await self._end(lambda flow: flow.send(value))

    async def fail(self, error: Exception) -> Result[T]:
        """It raised `error`, which is recorded by policy and raised again."""
        return await self._end(lambda flow: flow.throw(error))

    async def abandon(self, error: BaseException) -> None:
        """It was cut off: write down what is known, and no more."""
        self._leave()
        await self._shell.abandon(error)
        self._tell(error)

    async def read_status(self) -> Status | None:
        """The status of the record that this call has committed, as everybody else sees it; None: there is none."""
        return await arun(self._read_committed(), self._shell.outside().perform)

    async def _end(self, begin: Begin) -> Result[T]:
        self._leave()
        result: Result[T] = await self._carry(begin)
        self._ended(result)
        return result

    async def _carry(self, begin: Begin) -> Any:
        try:
            return await self._shell.carry(self._once, self._flow, begin, (Call,))
        except BaseException as error:
            self._tell(error)
            raise
