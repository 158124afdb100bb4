"""The caller's own connection, joined for operations inside the caller's transaction, and the adapter that fits it.

- A connection is recognized by the names of its classes, so no library is imported that the caller does not use.
- Another library, another kind of server, or async where sync is needed is refused before anything is sent; the error
  says what can be joined instead.
- Nothing here begins, commits, rolls back or sends again; no setting of the connection is changed.
- The record is written only into the store's own database, by its install_id, and its outcome only in the transaction
  that it was claimed in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal, cast

from semel.core.flow import arun, run
from semel.core.store import Answers, Plan
from semel.errors import NotInTransaction, TransactionAborted, UsageError
from semel.stores.sql.adapter import AsyncJoinable, Joinable, Server, kinds
from semel.stores.sql.context import SqlContext
from semel.stores.sql.dialect import Command, Known, Row
from semel.stores.sql.errors import ErrorKind, ended, translate_server_error_in_joined

Colour = Literal["sync", "async"]
_ADAPTERS: Final = "semel.stores.sql.adapters"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of connection: its colour, its adapter, and the server it leads to, where only one is possible."""

    colour: Colour
    adapter: str
    server: str | None = None


_KINDS: Final = {
    "psycopg.Connection": _Kind("sync", "psycopg:PsycopgAdapter", "postgresql"),
    "psycopg.AsyncConnection": _Kind("async", "psycopg:AsyncPsycopgAdapter", "postgresql"),
    "asyncpg.connection.Connection": _Kind("async", "asyncpg:AsyncpgAdapter", "postgresql"),
    "asyncpg.pool.PoolConnectionProxy": _Kind("async", "asyncpg:AsyncpgAdapter", "postgresql"),
    "pymysql.connections.Connection": _Kind("sync", "pymysql:PymysqlJoined", "mysql"),
    "asyncmy.connection.Connection": _Kind("async", "asyncmy:AsyncmyJoined", "mysql"),
    "sqlalchemy.engine.base.Connection": _Kind("sync", "sqlalchemy:SqlalchemyAdapter"),
    "sqlalchemy.orm.session.Session": _Kind("sync", "sqlalchemy:SqlalchemyAdapter"),
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": _Kind("async", "sqlalchemy:AsyncSqlalchemyAdapter"),
    "sqlalchemy.ext.asyncio.session.AsyncSession": _Kind("async", "sqlalchemy:AsyncSqlalchemyAdapter"),
    "django.db.backends.base.base.BaseDatabaseWrapper": _Kind("sync", "django:DjangoAdapter"),
}
_SCOPED: Final = ("sqlalchemy.orm.scoping.scoped_session", "sqlalchemy.ext.asyncio.scoping.async_scoped_session")


def meant(connection: Any) -> Any:
    """The connection of this thread or task, where the caller gives a stand-in that leads each to its own."""
    names = kinds(connection)
    if "django.utils.connection.ConnectionProxy" in names:
        return import_module("django.db").connections[connection.alias]
    return connection() if any(name in names for name in _SCOPED) else connection


def joinable(connection: object, server: Server[Any]) -> Joinable:
    """The library that speaks through a connection whose calls block.

    Raises:
        UsageError: it cannot be joined by `Semel` on this server.
    """
    return cast("Joinable", _adapter(connection, server, "sync"))


def async_joinable(connection: object, server: Server[Any]) -> AsyncJoinable:
    """The library that speaks through a connection whose calls are awaited.

    Raises:
        UsageError: it cannot be joined by `AsyncSemel` on this server.
    """
    return cast("AsyncJoinable", _adapter(connection, server, "async"))


def _adapter(connection: object, server: Server[Any], colour: Colour) -> Any:
    kind = _kind(connection)
    if kind is None:
        named = _named(connection)
        raise UsageError(f"{named} is no connection that can be joined; nothing ran. {_give(server, colour)}")
    if kind.colour != colour:
        raise _other_colour(connection, server, colour)
    dialect = kind.server or dialect_of(connection)
    if dialect not in server.dialects:
        raise UsageError(
            f"{_named(connection)} leads to {dialect}, and the records are in {server.name}; nothing ran. "
            f"{_give(server, colour)}"
        )
    module, _, name = kind.adapter.partition(":")
    make: Callable[[Server[Any]], Any] = getattr(import_module(f"{_ADAPTERS}.{module}"), name)
    return make(server)


def _kind(connection: object) -> _Kind | None:
    return next((_KINDS[name] for name in kinds(connection) if name in _KINDS), None)


def dialect_of(connection: Any) -> str:
    """What SQLAlchemy or Django call the server that this connection leads to.

    Raises:
        UsageError: a session that has no single answer to that, or an unusable library underneath.
    """
    if hasattr(connection, "vendor"):
        return str(connection.vendor)  # Django
    if hasattr(connection, "dialect"):
        dialect = connection.dialect
    else:
        try:
            dialect = connection.get_bind().dialect
        except Exception as error:
            raise UsageError(
                f"{_named(connection)} does not tell by itself which database it leads to; nothing ran. Give within() "
                f"the connection of its transaction: session.connection(bind_arguments=…)."
            ) from error
    from semel.stores.sql.adapters.sqlalchemy import PARAMSTYLES

    if dialect.paramstyle not in PARAMSTYLES:
        raise UsageError(
            f"semel cannot send statements through {dialect.driver} (paramstyle {dialect.paramstyle}); nothing ran. "
            f"Use another library under SQLAlchemy."
        )
    return str(dialect.name)


def _other_colour(connection: object, server: Server[Any], colour: Colour) -> UsageError:
    named = _named(connection)
    if colour == "sync":
        return UsageError(
            f"{named} is awaited, and Semel cannot await; nothing ran. Use AsyncSemel with it, or give within() "
            f"{server.sync}."
        )
    if any(name.startswith("django.") for name in kinds(connection)):
        return UsageError(
            f"{named} has no transactions in coroutines: Django has no async atomic(); nothing ran. Use Semel, "
            f"in a function that sync_to_async calls, with atomic() inside it."
        )
    return UsageError(
        f"{named} blocks, and would stop the event loop of AsyncSemel; nothing ran. Use Semel with it, or give "
        f"within() {server.awaited}."
    )


def _named(connection: object) -> str:
    return f"A {kinds(connection)[0].removeprefix('builtins.')}"


def _give(server: Server[Any], colour: Colour) -> str:
    what = server.sync if colour == "sync" else server.awaited
    return f"Give within() the connection that runs your own statements: {what}."


class _Membership:
    """What both colours know of a transaction they take part in."""

    def __init__(self, context: SqlContext, adapter: Joinable | AsyncJoinable, connection: Any) -> None:
        self._context = context
        self._told = adapter
        self._connection = connection
        self._entered = False

    def _before(self, *, opens: bool) -> bool:
        """Refuse what has no transaction; answers whether the store itself has to be asked which database it is.

        Once a claim is written, its transaction is demanded by name: a handler that ended it did run, and has to be
        told so, and not that a transaction is missing.
        """
        if opens or not self._entered:
            self._told.demand_transaction(self._connection)
        return opens and self._context.install_id is None

    def _render(self, command: Command) -> Command:
        savepoints = self._context.savepoints
        return self._context.render(command if savepoints is None else savepoints.note(self._connection, command))

    def _limits_around(self, command: Command) -> tuple[Command, Command] | None:
        facts = self._context.facts
        if command.around is None or facts is None or not facts.limits_by_session:
            return None
        limit, restore = command.around
        return Command(limit), Command(restore)

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
        kind = self._told.error_kind(error)
        if kind is ErrorKind.NO_TRANSACTION and self._entered and not opens:
            return ended()
        return translate_server_error_in_joined(error, kind, self._context.name)


class AsyncSqlJoined(_Membership):
    """A connection of the caller as a place for single plans."""

    def __init__(
        self, context: SqlContext, adapter: AsyncJoinable, connection: Any, learn: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(context, adapter, connection)
        self._adapter = adapter
        self._learn = learn

    async def perform(self, plan: Plan) -> Answers:
        """Run one plan.

        Raises:
            NotInTransaction: no transaction of the store's database is open, or the one of the claim has ended.
            TransactionAborted: the caller's transaction is gone.
        """
        return checked(await arun(plan, self._execute))

    async def _execute(self, command: Command) -> list[Row]:
        opens = Known.INSTALL in command.values
        if self._before(opens=opens):
            await self._learn()
        with self._sending(opens=opens):
            rendered = self._render(command)
            around = self._limits_around(command)
            if around is None:
                return await self._adapter.execute(self._connection, rendered)
            return await self._execute_within(around, rendered)

    async def _execute_within(self, around: tuple[Command, Command], command: Command) -> list[Row]:
        """Send a command between what limits its wait for locks and what leaves the session as it was."""
        limit, restore = around
        await self._adapter.execute(self._connection, limit)
        try:
            rows = await self._adapter.execute(self._connection, command)
        except Exception:
            with suppress(Exception):  # what the command met is what counts; a lost session has no limit any more
                await self._adapter.execute(self._connection, restore)
            raise
        await self._adapter.execute(self._connection, restore)
        return rows


def checked(answers: Answers) -> Answers:
    """The answers, unless one of them says that the transaction is not usable."""
    for answer in answers:
        if isinstance(answer, (NotInTransaction, TransactionAborted)):
            raise answer
    return answers


# Generated by scripts/generate-sync from what is awaited above: change that, and run the script.
class SqlJoined(_Membership):
    """A connection of the caller as a place for single plans."""

    def __init__(self, context: SqlContext, adapter: Joinable, connection: Any, learn: Callable[[], None]) -> None:
        super().__init__(context, adapter, connection)
        self._adapter = adapter
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
            rendered = self._render(command)
            around = self._limits_around(command)
            if around is None:
                return self._adapter.execute(self._connection, rendered)
            return self._execute_within(around, rendered)

    def _execute_within(self, around: tuple[Command, Command], command: Command) -> list[Row]:
        """Send a command between what limits its wait for locks and what leaves the session as it was."""
        limit, restore = around
        self._adapter.execute(self._connection, limit)
        try:
            rows = self._adapter.execute(self._connection, command)
        except Exception:
            with suppress(Exception):  # what the command met is what counts; a lost session has no limit any more
                self._adapter.execute(self._connection, restore)
            raise
        self._adapter.execute(self._connection, restore)
        return rows
