"""The world of `tests/within/world.py` on a real server, for one library: an engine, and callers of that library."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.engine.clock import SystemClock
from semel.stores.urls import store_from_url
from tests.decorated import CallStyle
from tests.servers.databases import Databases
from tests.servers.mysql import Mysql
from tests.within.servers.callers import (
    Asyncmy,
    Asyncpg,
    AsyncPsycopg,
    Caller,
    Django,
    Psycopg,
    Pymysql,
    alchemy,
    async_alchemy,
)
from tests.within.world import AsyncWorld, Handler, SyncWorld, World, drive

Open = Callable[..., Awaitable[Caller]]


@dataclass(frozen=True)
class Server:
    """What tests have to say differently to each kind of server."""

    table: str
    emptying: str
    process: str
    kill: str
    patience: str
    other_nonce: str


SERVERS = {
    "postgresql": Server(
        "CREATE TABLE effect (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL)",
        "DELETE FROM effect",  # to truncate would make new files
        "SELECT pg_backend_pid()",
        "SELECT pg_terminate_backend({}, 10000)",
        "SET LOCAL lock_timeout = '60s'",
        "decode(repeat('ff', 16), 'hex')",
    ),
    "mariadb": Server(
        "CREATE TABLE effect (number bigint AUTO_INCREMENT PRIMARY KEY, name varchar(40) NOT NULL)",
        "TRUNCATE TABLE effect",  # a deletion would lock the gaps between rows
        "SELECT CONNECTION_ID()",
        "KILL {}",
        "SET SESSION innodb_lock_wait_timeout = 60",
        "UNHEX(REPEAT('ff', 16))",
    ),
}


@dataclass(frozen=True)
class Door:
    """One library, as its users open it. `autocommit` are the settings that put it into that mode, if it has one."""

    server: str
    colour: str
    open: Open
    autocommit: dict[str, Any]


_ISOLATION = {"isolation_level": "AUTOCOMMIT"}
SERVERS["mysql"] = SERVERS["mariadb"]  # the same words
_PG, _MY, _MYSQL_ITSELF = "postgresql", "mariadb", "mysql"
DOORS = {
    "psycopg": Door(_PG, "sync", Psycopg.open, {"autocommit": True}),
    "psycopg-async": Door(_PG, "async", AsyncPsycopg.open, {"autocommit": True}),
    "asyncpg": Door(_PG, "async", Asyncpg.open, {}),
    "sqlalchemy-session-psycopg": Door(_PG, "sync", alchemy("postgresql+psycopg", "session"), _ISOLATION),
    "sqlalchemy-connection-psycopg": Door(_PG, "sync", alchemy("postgresql+psycopg", "connection"), _ISOLATION),
    "sqlalchemy-session-psycopg2": Door(_PG, "sync", alchemy("postgresql+psycopg2", "session"), _ISOLATION),
    "sqlalchemy-async-session-asyncpg": Door(_PG, "async", async_alchemy("postgresql+asyncpg", "session"), _ISOLATION),
    "sqlalchemy-async-session-psycopg": Door(_PG, "async", async_alchemy("postgresql+psycopg", "session"), _ISOLATION),
    "sqlalchemy-async-connection-asyncpg": Door(
        _PG, "async", async_alchemy("postgresql+asyncpg", "connection"), _ISOLATION
    ),
    "django": Door(_PG, "sync", Django.open, {}),
    "django-pymysql": Door(_MY, "sync", Django.open, {}),
    "pymysql": Door(_MY, "sync", Pymysql.open, {"autocommit": True}),
    "asyncmy": Door(_MY, "async", Asyncmy.open, {"autocommit": True}),
    "sqlalchemy-session-pymysql": Door(_MY, "sync", alchemy("mysql+pymysql", "session"), _ISOLATION),
    "sqlalchemy-async-session-asyncmy": Door(_MY, "async", async_alchemy("mysql+asyncmy", "session"), _ISOLATION),
}
"""A further library is one line here, and a class in callers.py if its verbs are new."""
if Mysql.is_asked_for():
    DOORS.update({
        f"mysql-{name}": replace(door, server=_MYSQL_ITSELF) for name, door in DOORS.items() if door.server == _MY
    })  # fmt: skip

on_postgresql = pytest.mark.parametrize(
    "world", [name for name, door in DOORS.items() if door.server == _PG], indirect=True
)
on_mariadb = pytest.mark.parametrize(
    "world", [name for name, door in DOORS.items() if door.server in (_MY, _MYSQL_ITSELF)], indirect=True
)


class Resting(SystemClock):
    """A clock for waiters: time passes only while somebody waits, and what happens meanwhile is said by the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: list[Callable[[], Any]] = []
        self.rests = 0

    def monotonic(self) -> float:
        return self.now

    def _pass(self, until: float | None) -> Any:
        self.rests += 1
        self.now = max(self.now, until or 0.0)
        return self.meanwhile.pop(0)() if self.meanwhile else None

    def rest(self, wake: threading.Event, until: float | None) -> None:
        happening = self._pass(until)
        if happening is not None:
            drive(happening)

    async def arest(self, wake: asyncio.Event, until: float | None) -> None:
        happening = self._pass(until)
        if happening is not None:
            await happening


class OnServer(World):
    """What both colours share on a server."""

    door: Door

    def __init__(self, databases: Databases, url: str, door: Door, style: CallStyle) -> None:
        self.databases = databases
        self.style = style
        self.url = url
        self.door = door
        self.server = SERVERS[door.server]
        self.runs: list[str] = []
        self.callers: list[Caller] = []
        self.semel = self.engine_at()

    def engine_at(self, url: str | None = None, **settings: Any) -> Any:
        """An engine of this colour, on this database or another."""
        raise NotImplementedError

    async def open(self, url: str | None = None, **settings: Any) -> Caller:
        """A connection of the caller."""
        caller = await self.door.open(url or self.url, **settings)
        self.callers.append(caller)
        return caller

    async def begun(self, isolation: str = "READ COMMITTED") -> Caller:
        """A connection of the caller inside a transaction."""
        caller = await self.open()
        await caller.begin(isolation)
        return caller

    def outside(self, text: str) -> list[Any]:
        """The first column of what an outsider sees, whose connection stays open from test to test."""
        return [row[0] for row in self.databases.admin_each([text], self.url)]

    def rows(self) -> list[str]:
        return self.outside("SELECT name FROM effect ORDER BY number")

    def statuses(self) -> list[str]:
        return self.outside("SELECT status FROM semel_record ORDER BY created_us, status")

    def writes(self, caller: Caller, name: str = "charged", error: BaseException | None = None) -> Handler:
        """A handler that writes a row, and then returns its name or raises."""

        async def handler() -> str:
            self.runs.append(name)
            await caller.sql(f"INSERT INTO effect (name) VALUES ('{name}')")  # noqa: S608 - the test's own word
            if error is not None:
                raise error
            return name

        return handler

    async def let_go(self) -> None:
        for caller in self.callers:
            with suppress(Exception):
                await caller.close()


class SyncOnServer(OnServer, SyncWorld):
    """`Semel`."""

    def engine_at(self, url: str | None = None, **settings: Any) -> Semel:
        return Semel(store_from_url(url or self.url), **settings)

    async def close(self) -> None:
        await self.let_go()
        self.semel.close()


class AsyncOnServer(OnServer, AsyncWorld):
    """`AsyncSemel`."""

    def engine_at(self, url: str | None = None, **settings: Any) -> AsyncSemel:
        return AsyncSemel(store_from_url(url or self.url), **settings)

    async def close(self) -> None:
        await self.let_go()
        await self.semel.close()
