"""A run on a MariaDB or MySQL database: callers use PyMySQL in threads and asyncmy in tasks."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import asyncmy
import pymysql

from semel.stores.mysql import MysqlStore
from tests.kill.grounds.ground import Row
from tests.kill.grounds.served import ServedGround
from tests.kill.grounds.sql import COLUMNS

_INSERT = f"INSERT INTO effect ({COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s)"  # noqa: S608 - names of ours


def _address(url: str) -> dict[str, Any]:
    at = urlsplit(url)
    return {
        "host": at.hostname,
        "port": at.port,
        "user": unquote(at.username or ""),
        "password": unquote(at.password or ""),
        "database": at.path.lstrip("/"),
    }


class _Connected:
    """A connection of either library, once there is one."""

    def __init__(self, url: str) -> None:
        self._address = _address(url)
        self._connection: Any = None
        self.in_transaction = False

    @property
    def raw(self) -> Any:
        """What `within` is given."""
        return self._connection


class PymysqlSession(_Connected):
    """A connection of PyMySQL."""

    def begin(self, chance: random.Random) -> None:
        """Begin."""
        del chance
        self.begin_step()

    def begin_step(self) -> None:
        """Begin."""
        if self._connection is None:
            self._connection = pymysql.connect(**self._address)
        self.in_transaction = True  # first: a connection that cannot even begin is let go by the rollback
        self._connection.begin()

    def insert(self, row: Row) -> None:
        """The effect of a handler."""
        with self._connection.cursor() as cursor:
            cursor.execute(_INSERT, row)

    def commit(self) -> None:
        """End the transaction."""
        self._connection.commit()
        self.in_transaction = False

    def rollback(self) -> None:
        """Undo what is open, or let go of a connection that is of no use any more."""
        if self.in_transaction:
            self.in_transaction = False
            try:
                self._connection.rollback()
            except MysqlGround.lost:
                self.close()

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            with suppress(*MysqlGround.lost):
                self._connection.close()
            self._connection = None


class AsyncmySession(_Connected):
    """A connection of asyncmy."""

    async def begin(self, chance: random.Random) -> None:
        """Begin."""
        del chance
        await self.begin_step()

    async def begin_step(self) -> None:
        """Begin."""
        if self._connection is None:
            self._connection = await asyncmy.connect(**self._address)
        self.in_transaction = True
        await self._connection.begin()

    async def insert(self, row: Row) -> None:
        """The effect of a handler."""
        async with self._connection.cursor() as cursor:
            await cursor.execute(_INSERT, row)

    async def commit(self) -> None:
        """End the transaction."""
        await self._connection.commit()
        self.in_transaction = False

    async def rollback(self) -> None:
        """Undo what is open, or let go of a connection that is of no use any more."""
        if self.in_transaction:
            self.in_transaction = False
            try:
                await self._connection.rollback()
            except MysqlGround.lost:
                await self.close()

    async def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            with suppress(*MysqlGround.lost):
                self._connection.close()
            self._connection = None


class MysqlGround(ServedGround):
    """The database at the URL `name`."""

    lost: ClassVar[tuple[type[Exception], ...]] = (pymysql.Error, asyncmy.errors.Error, OSError, EOFError)

    def __init__(self, name: str) -> None:
        super().__init__(name, MysqlStore, PymysqlSession, AsyncmySession)

    def fetch(self, text: str) -> list[tuple[Any, ...]]:
        """What one statement finds."""
        with pymysql.connect(**_address(self.url), autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())
