"""The transaction of one request: opened for its claim, given back while it waits, and ended once.

Invariants: a request that waits for another one holds no transaction and no connection that `transaction=` gave. What
is sent after `commit` was seen to be committed. Without `transaction=` there is no transaction, and nothing here but
the claim.

Proof of a commit that costs nothing, where the client library tells of commits.

Invariant: a listener says that a transaction was committed only if its library has said so after the outermost commit.
It may miss one; then the record is looked for instead. A session that a test has joined to a transaction of its own,
which is rolled back at the end of the test, tells of its commits like any other.

The transaction that a request runs in, for the code of its view.

What always holds: it is there exactly where the route has `transaction=`, from before the view is called until its
response and its effects are committed together.
"""

from __future__ import annotations

import contextvars
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from semel.core.flow import arun, run
from semel.engine.async_engine import AsyncCall, AsyncEngine
from semel.engine.runtime import Turn
from semel.engine.sync_engine import SyncCall, SyncEngine
from semel.errors import InProgress, UsageError
from semel.http.exchange import Exchange, Open, Respond, Rollback, RunApp
from semel.http.response import Response
from semel.http.route import Within


class CommitListener:
    """Listens, as a context, to a session of SQLAlchemy, of either kind; other connections tell nothing.

    Attributes:
        has_heard: whether the session was committed since.
    """

    def __init__(self, connection: Any) -> None:
        self.has_heard = False
        self._session = _session_of(connection)

    def __enter__(self) -> Self:
        if self._session is not None:
            from sqlalchemy import event

            event.listen(self._session, "after_commit", self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            from sqlalchemy import event

            event.remove(self._session, "after_commit", self._hear)

    def _hear(self, session: Any) -> None:
        # The end of a savepoint is told in the same way, while it is still the current one.
        if not session.in_nested_transaction():
            self.has_heard = True


def _session_of(connection: Any) -> Any:
    """The plain session behind what `transaction=` gave; None where it is no session."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__}
    if names & {"sqlalchemy.orm.scoping.scoped_session", "sqlalchemy.ext.asyncio.scoping.async_scoped_session"}:
        return _session_of(connection())
    if "sqlalchemy.ext.asyncio.session.AsyncSession" in names:
        return connection.sync_session
    return connection if "sqlalchemy.orm.session.Session" in names else None


class TransactionFactory(ABC):
    """A `transaction=` that can do more than a function: its connections belong to threads.

    Attributes:
        commits_or_raises: whether leaving the transaction without an error proves its commit.
    """

    commits_or_raises: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, request: Any) -> AbstractContextManager[Any]:
        """Open a transaction for one request."""

    @abstractmethod
    def release(self) -> None:
        """Give the connection of this thread back while its request waits."""


def _waiting() -> Rollback:
    return Rollback("the request waits for another one with the same key")


class _Unit:
    """What both kinds have in common.

    Attributes:
        connection: what `transaction=` gave, while a transaction is open; None where there is none.
    """

    def __init__(self, within: Within | None) -> None:
        self.connection: Any = None
        self._within = within
        self._turn: Turn | None = None

    def _release(self) -> None:
        """Let go of a connection that belongs to the thread and not to the transaction, as Django's do."""
        if isinstance(self._within, TransactionFactory):
            self._within.release()

    def _is_proof(self, listener: CommitListener) -> bool:
        """Whether the commit needs no further look, now that the transaction has ended without an error."""
        self.connection = None
        return listener.has_heard or (isinstance(self._within, TransactionFactory) and self._within.commits_or_raises)

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()


class AsyncUnitOfWork(_Unit):
    """The transaction of a request, in an engine of the same kind."""

    def __init__(self, exchange: Exchange[AsyncEngine], within: Within | None) -> None:
        super().__init__(within)
        self._exchange = exchange
        self._stack = AsyncExitStack()

    async def open(self, wanted: Open) -> AsyncCall[Response]:
        """Claim, in a transaction where the route has one. Raises what the engine raises."""
        engine, settings = self._exchange.engine, wanted.settings()
        if self._within is None:
            return await engine.open(wanted.key, **settings)
        turn = self._turn = engine.turn(wanted.key, **settings)
        while True:
            if turn.take():
                self.connection = connection_of(await self._stack.enter_async_context(self._within(wanted.request)))
                try:
                    return await engine.open_within(self.connection, turn.key, **settings)
                except InProgress as error:
                    turn.refuse(error)
                await self._leave(_waiting())
            self._release()
            await turn.wait()

    async def commit(self, run_app: RunApp) -> Respond | None:
        """Leave the transaction so that it commits; gives what is sent where that was not seen to be so."""
        if self._within is None:
            return None
        try:
            with CommitListener(self.connection) as listener:
                await self._stack.aclose()
            if self._is_proof(listener):
                return None
            return await arun(self._exchange.check_commit(run_app), run_app.perform)
        finally:
            self._end_turn()

    async def roll_back(self, why: BaseException) -> None:
        """Leave the transaction, if there is one, so that nothing stays of it."""
        try:
            await self._leave(why)
        finally:
            self._end_turn()

    async def _leave(self, why: BaseException) -> None:
        self.connection = None
        await self._stack.__aexit__(type(why), why, why.__traceback__)


def connection_of(entered: Any) -> Any:
    """What can be joined: SQLAlchemy's `session.begin()` gives its transaction, which knows whose it is."""
    kind = type(entered)
    is_transaction = kind.__name__ == "SessionTransaction" and kind.__module__.startswith("sqlalchemy.")
    return entered.session if is_transaction else entered


@dataclass
class Running:
    """A request's transaction, for as long as it is open."""

    connection: Any | None

    def end(self) -> None:
        """It is decided: what runs on in the context of the request, such as background work, finds none."""
        self.connection = None


_current: contextvars.ContextVar[Running | None] = contextvars.ContextVar("semel_http_transaction", default=None)


def transaction() -> Any:
    """The session or connection that `transaction=` of the route gave for this request.

    Raises:
        UsageError: there is none here.
    """
    running = _current.get()
    if running is None or running.connection is None:
        message = (
            "transaction() was called where no request runs in a transaction of its route; nothing was written. "
            "Give the route transaction=…, and call it from its view."
        )
        raise UsageError(message)
    return running.connection


@contextmanager
def running_in(connection: Any | None) -> Iterator[Running]:
    """Views called inside find this transaction, until it is said to have ended."""
    running = Running(connection)
    token = _current.set(running)
    try:
        yield running
    finally:
        _current.reset(token)


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class UnitOfWork(_Unit):
    """The transaction of a request, in an engine of the same kind."""

    def __init__(self, exchange: Exchange[SyncEngine], within: Within | None) -> None:
        super().__init__(within)
        self._exchange = exchange
        self._stack = ExitStack()

    def open(self, wanted: Open) -> SyncCall[Response]:
        """Claim, in a transaction where the route has one. Raises what the engine raises."""
        engine, settings = self._exchange.engine, wanted.settings()
        if self._within is None:
            return engine.open(wanted.key, **settings)
        turn = self._turn = engine.turn(wanted.key, **settings)
        while True:
            if turn.take():
                self.connection = connection_of(self._stack.enter_context(self._within(wanted.request)))
                try:
                    return engine.open_within(self.connection, turn.key, **settings)
                except InProgress as error:
                    turn.refuse(error)
                self._leave(_waiting())
            self._release()
            turn.wait()

    def commit(self, run_app: RunApp) -> Respond | None:
        """Leave the transaction so that it commits; gives what is sent where that was not seen to be so."""
        if self._within is None:
            return None
        try:
            with CommitListener(self.connection) as listener:
                self._stack.close()
            if self._is_proof(listener):
                return None
            return run(self._exchange.check_commit(run_app), run_app.perform)
        finally:
            self._end_turn()

    def roll_back(self, why: BaseException) -> None:
        """Leave the transaction, if there is one, so that nothing stays of it."""
        try:
            self._leave(why)
        finally:
            self._end_turn()

    def _leave(self, why: BaseException) -> None:
        self.connection = None
        self._stack.__exit__(type(why), why, why.__traceback__)
