"""From a connection of the caller to the library that speaks through it.

What always holds: a connection is known by the names of its classes, so nothing is imported that the caller does not
use. What cannot be joined is refused before anything is sent: another library, another kind of server, the other
colour; and the error says what can be joined instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal, cast

from semel.errors import UsageError
from semel.stores.served.libraries.dbapi import Meaning, kinds, of_postgresql
from semel.stores.served.library import AsyncJoinable, Joinable

Colour = Literal["sync", "async"]
_LIBRARIES: Final = "semel.stores.served.libraries"


@dataclass(frozen=True, slots=True)
class Server:
    """A kind of server, as far as joining has to know it.

    Attributes:
        name: for messages.
        spoken: what SQLAlchemy and Django call it.
        sync: what can be joined by `Semel`, for messages.
        awaited: what can be joined by `AsyncSemel`, for messages.
        meaning: what an error of a library under SQLAlchemy or Django means.
    """

    name: str
    spoken: frozenset[str]
    sync: str
    awaited: str
    meaning: Meaning


POSTGRESQL: Final = Server(
    "PostgreSQL",
    frozenset({"postgresql"}),
    "a psycopg.Connection, a SQLAlchemy Session or Connection, or a Django connection",
    "an asyncpg connection, a psycopg.AsyncConnection, or a SQLAlchemy AsyncSession or AsyncConnection",
    of_postgresql,
)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of connection: its colour, its library, and the server it leads to, where only one is possible."""

    colour: Colour
    library: str
    server: str | None = None


_KINDS: Final = {
    "psycopg.Connection": _Kind("sync", "psycopg:PsycopgLibrary", "postgresql"),
    "psycopg.AsyncConnection": _Kind("async", "psycopg:AsyncPsycopgLibrary", "postgresql"),
    "asyncpg.connection.Connection": _Kind("async", "asyncpg:AsyncpgLibrary", "postgresql"),
    "asyncpg.pool.PoolConnectionProxy": _Kind("async", "asyncpg:AsyncpgLibrary", "postgresql"),
    "pymysql.connections.Connection": _Kind("sync", "pymysql:PymysqlJoined", "mysql"),
    "asyncmy.connection.Connection": _Kind("async", "asyncmy:AsyncmyJoined", "mysql"),
    "sqlalchemy.engine.base.Connection": _Kind("sync", "sqlalchemy:SqlalchemyLibrary"),
    "sqlalchemy.orm.session.Session": _Kind("sync", "sqlalchemy:SqlalchemyLibrary"),
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": _Kind("async", "sqlalchemy:AsyncSqlalchemyLibrary"),
    "sqlalchemy.ext.asyncio.session.AsyncSession": _Kind("async", "sqlalchemy:AsyncSqlalchemyLibrary"),
    "django.db.backends.base.base.BaseDatabaseWrapper": _Kind("sync", "django:DjangoLibrary"),
}
_SCOPED: Final = ("sqlalchemy.orm.scoping.scoped_session", "sqlalchemy.ext.asyncio.scoping.async_scoped_session")


def meant(connection: Any) -> Any:
    """The connection of this thread or task, where the caller gives a stand-in that leads each to its own."""
    names = kinds(connection)
    if "django.utils.connection.ConnectionProxy" in names:
        return import_module("django.db").connections[connection.alias]
    return connection() if any(name in names for name in _SCOPED) else connection


def joinable(connection: object, server: Server) -> Joinable:
    """The library that speaks through a connection whose calls block.

    Raises:
        UsageError: it cannot be joined by `Semel` on this server.
    """
    return cast("Joinable", _library(connection, server, "sync"))


def async_joinable(connection: object, server: Server) -> AsyncJoinable:
    """The library that speaks through a connection whose calls are awaited.

    Raises:
        UsageError: it cannot be joined by `AsyncSemel` on this server.
    """
    return cast("AsyncJoinable", _library(connection, server, "async"))


def _library(connection: object, server: Server, colour: Colour) -> Any:
    kind = _kind(connection)
    if kind is None:
        named = _named(connection)
        raise UsageError(f"{named} is no connection that can be joined; nothing ran. {_give(server, colour)}")
    if kind.colour != colour:
        raise _other_colour(connection, server, colour)
    spoken = kind.server or spoken_by(connection)
    if spoken not in server.spoken:
        raise UsageError(
            f"{_named(connection)} leads to {spoken}, and the records are in {server.name}; nothing ran. "
            f"{_give(server, colour)}"
        )
    module, _, name = kind.library.partition(":")
    library: Callable[..., Any] = getattr(import_module(f"{_LIBRARIES}.{module}"), name)
    return library() if kind.server else library(server.meaning)


def _kind(connection: object) -> _Kind | None:
    return next((_KINDS[name] for name in kinds(connection) if name in _KINDS), None)


def spoken_by(connection: Any) -> str:
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
    from semel.stores.served.libraries.sqlalchemy import PARAMSTYLES

    if dialect.paramstyle not in PARAMSTYLES:
        raise UsageError(
            f"semel cannot send statements through {dialect.driver} (paramstyle {dialect.paramstyle}); nothing ran. "
            f"Use another library under SQLAlchemy."
        )
    return str(dialect.name)


def _other_colour(connection: object, server: Server, colour: Colour) -> UsageError:
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


def _give(server: Server, colour: Colour) -> str:
    what = server.sync if colour == "sync" else server.awaited
    return f"Give within() the connection that runs your own statements: {what}."
