"""The transaction of one request: opened for its claim, given back while it waits, and ended once.

Invariants: a request that waits for another one holds no transaction and no connection that `within=` gave. What is
sent after `commit` was seen to be committed. Without `within=` there is no transaction, and nothing here but the claim.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack
from typing import Any

from semel.core.flow import arun, run
from semel.engine.aio import AsyncEngine
from semel.engine.opened import AsyncOpened, SyncOpened
from semel.engine.sync import SyncEngine
from semel.engine.turn import Turn
from semel.errors import InProgress
from semel.http.commit_listener import CommitListener
from semel.http.exchange import Answer, Go, Open, Undone, settlement
from semel.http.front import Front
from semel.http.response import Response
from semel.http.route import Within


def _waiting() -> Undone:
    return Undone("the request waits for another one with the same key")


class _Unit:
    """What both kinds have in common.

    Attributes:
        connection: what `within=` gave, while a transaction is open; None where there is none.
    """

    def __init__(self, within: Within | None) -> None:
        self.connection: Any = None
        self._within = within
        self._turn: Turn | None = None

    def _release(self) -> None:
        """Let go of a connection that belongs to the thread and not to the transaction, as Django's do."""
        release = getattr(self._within, "release", None)
        if release is not None:
            release()

    def _is_proof(self, listener: CommitListener) -> bool:
        """Whether the commit needs no further look, now that the transaction has ended without an error."""
        self.connection = None
        return listener.has_heard or bool(getattr(self._within, "commits_or_raises", False))

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()


class UnitOfWork(_Unit):
    """The transaction of a request that is handled in a thread."""

    def __init__(self, front: Front[SyncEngine], within: Within | None) -> None:
        super().__init__(within)
        self._front = front
        self._stack = ExitStack()

    def open(self, wanted: Open) -> SyncOpened[Response]:
        """Claim, in a transaction where the route has one. Raises what the engine raises."""
        engine, settings = self._front.engine, wanted.settings()
        if self._within is None:
            return engine.open(wanted.key, **settings)
        turn = self._turn = engine.turn(wanted.key, **settings)
        while True:
            if turn.take():
                self.connection = connection_of(self._stack.enter_context(self._within(wanted.request)))
                try:
                    return engine.within(self.connection).open(turn.key, **settings)
                except InProgress as error:
                    turn.refuse(error)
                self._leave(_waiting())
            self._release()
            turn.wait()

    def commit(self, going: Go) -> Answer | None:
        """Leave the transaction so that it commits; gives what is sent where that was not seen to be so."""
        if self._within is None:
            return None
        try:
            with CommitListener(self.connection) as listener:
                self._stack.close()
            if self._is_proof(listener):
                return None
            return run(self._front.committed(going), settlement(going.opened))
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


class AsyncUnitOfWork(_Unit):
    """The transaction of a request that is handled in an event loop."""

    def __init__(self, front: Front[AsyncEngine], within: Within | None) -> None:
        super().__init__(within)
        self._front = front
        self._stack = AsyncExitStack()

    async def open(self, wanted: Open) -> AsyncOpened[Response]:
        """Claim, in a transaction where the route has one. Raises what the engine raises."""
        engine, settings = self._front.engine, wanted.settings()
        if self._within is None:
            return await engine.open(wanted.key, **settings)
        turn = self._turn = engine.turn(wanted.key, **settings)
        while True:
            if turn.take():
                self.connection = await self._stack.enter_async_context(self._within(wanted.request))
                try:
                    return await engine.within(self.connection).open(turn.key, **settings)
                except InProgress as error:
                    turn.refuse(error)
                await self._leave(_waiting())
            await turn.wait()

    async def commit(self, going: Go) -> Answer | None:
        """Leave the transaction so that it commits; gives what is sent where that was not seen to be so."""
        if self._within is None:
            return None
        try:
            with CommitListener(self.connection) as listener:
                await self._stack.aclose()
            if self._is_proof(listener):
                return None
            return await arun(self._front.committed(going), settlement(going.opened))
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
