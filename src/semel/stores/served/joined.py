"""The caller's own connection as a place for single operations, inside the caller's transaction.

What always holds: nothing here begins, commits, rolls back or sends again; no setting of the connection is changed. The
record is written only into the store's own database, by its install_id, and its outcome only in the very transaction
that it was claimed in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from semel.core.flow import arun, run
from semel.core.store import Answers, Plan
from semel.errors import NotInTransaction, TransactionAborted
from semel.stores.served.command import Command, Row
from semel.stores.served.library import AsyncLibrary, Library
from semel.stores.served.place import Place
from semel.stores.served.troubles import translated_joined


class ServedJoined:
    """A connection of the caller whose calls block."""

    def __init__(self, place: Place, library: Library, connection: Any, learn: Callable[[], None]) -> None:
        self._place = place
        self._library = library
        self._connection = connection
        self._learn = learn

    def perform(self, plan: Plan) -> Answers:
        """Run one plan.

        Raises:
            NotInTransaction: no transaction of the store's database is open, or the one of the claim has ended.
            TransactionAborted: the caller's transaction is gone.
        """
        self._library.demand_transaction(self._connection)
        if self._place.install_id is None:
            self._learn()
        return checked(run(plan, self._execute))

    def _execute(self, command: Command) -> list[Row]:
        try:
            return self._library.execute(self._connection, self._place.spoken(command))
        except Exception as error:
            raise translated_joined(error, self._library.trouble(error), self._place.name) from error


class AsyncServedJoined:
    """The same, awaited."""

    def __init__(
        self, place: Place, library: AsyncLibrary, connection: Any, learn: Callable[[], Awaitable[None]]
    ) -> None:
        self._place = place
        self._library = library
        self._connection = connection
        self._learn = learn

    async def perform(self, plan: Plan) -> Answers:
        """Run one plan."""
        self._library.demand_transaction(self._connection)
        if self._place.install_id is None:
            await self._learn()
        return checked(await arun(plan, self._execute))

    async def _execute(self, command: Command) -> list[Row]:
        try:
            return await self._library.execute(self._connection, self._place.spoken(command))
        except Exception as error:
            raise translated_joined(error, self._library.trouble(error), self._place.name) from error


def checked(answers: Answers) -> Answers:
    """The answers, unless one of them says that the transaction is not usable."""
    for answer in answers:
        if isinstance(answer, (NotInTransaction, TransactionAborted)):
            raise answer
    return answers
