"""The caller's own connection as a place for single operations, inside the caller's transaction.

What always holds: nothing here begins, commits, rolls back or sends again; no setting of the connection is changed. The
record is written only into the store's own database, by its install_id, and its outcome only in the very transaction
that it was claimed in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from semel.core.flow import arun, run
from semel.core.store import Answers, Plan
from semel.errors import NotInTransaction, TransactionAborted
from semel.stores.served.command import Command, Known, Row
from semel.stores.served.library import AsyncJoinable, Joinable
from semel.stores.served.place import Place
from semel.stores.served.troubles import Trouble, ended, translated_joined


class _Membership:
    """What both colours know of a transaction they take part in."""

    def __init__(self, place: Place, library: Joinable | AsyncJoinable, connection: Any) -> None:
        self._place = place
        self._told = library
        self._connection = connection
        self._entered = False

    def _before(self, *, opens: bool) -> bool:
        """Refuse what has no transaction; answers whether the store itself has to be asked which database it is.

        Once a claim is written, its transaction is demanded by name: a handler that ended it did run, and has to be
        told so, and not that a transaction is missing.
        """
        if opens or not self._entered:
            self._told.demand_transaction(self._connection)
        return opens and self._place.install_id is None

    def _spoken(self, command: Command) -> Command:
        marks = self._place.marks
        return self._place.spoken(command if marks is None else marks.kept(self._connection, command))

    @contextmanager
    def _sending(self, *, opens: bool) -> Iterator[None]:
        """Around a command on its way: what its errors mean, and that the transaction is entered once it answered."""
        try:
            yield
        except Exception as error:
            meaning = self._meaning(error, opens=opens)
            if meaning is error:
                raise
            raise meaning from error
        self._entered |= opens

    def _meaning(self, error: Exception, *, opens: bool) -> Exception:
        trouble = self._told.trouble(error)
        if trouble is Trouble.NO_TRANSACTION and self._entered and not opens:
            return ended()
        return translated_joined(error, trouble, self._place.name)


class ServedJoined(_Membership):
    """A connection of the caller whose calls block."""

    def __init__(self, place: Place, library: Joinable, connection: Any, learn: Callable[[], None]) -> None:
        super().__init__(place, library, connection)
        self._library = library
        self._learn = learn

    def perform(self, plan: Plan) -> Answers:
        """Run one plan.

        Raises:
            NotInTransaction: no transaction of the store's database is open, or the one of the claim has ended.
            TransactionAborted: the caller's transaction is gone.
        """
        return checked(run(plan, self._execute))

    def _execute(self, command: Command) -> list[Row]:
        opens = Known.INSTALL in command.values
        if self._before(opens=opens):
            self._learn()
        with self._sending(opens=opens):
            return self._library.execute(self._connection, self._spoken(command))


class AsyncServedJoined(_Membership):
    """The same, awaited."""

    def __init__(
        self, place: Place, library: AsyncJoinable, connection: Any, learn: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(place, library, connection)
        self._library = library
        self._learn = learn

    async def perform(self, plan: Plan) -> Answers:
        """Run one plan."""
        return checked(await arun(plan, self._execute))

    async def _execute(self, command: Command) -> list[Row]:
        opens = Known.INSTALL in command.values
        if self._before(opens=opens):
            await self._learn()
        with self._sending(opens=opens):
            return await self._library.execute(self._connection, self._spoken(command))


def checked(answers: Answers) -> Answers:
    """The answers, unless one of them says that the transaction is not usable."""
    for answer in answers:
        if isinstance(answer, (NotInTransaction, TransactionAborted)):
            raise answer
    return answers
