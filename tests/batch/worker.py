"""A process that works on a batch and may kill itself: `python -m tests.batch.worker URL COMMIT KIND WHERE AT`.

KIND is that of the engine, `sync` or `async`. Each item writes a row in the transaction of its record. WHERE is
`before` or `after` that row, or `committed`; AT is the item of this process at which it dies, or with `committed` the
transaction, 0 for never. With the WHERE `gate` it says that it is ready, waits for a line and never dies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from datetime import timedelta
from typing import Any

import aiosqlite
import asyncmy
import psycopg
import pymysql

from semel import AsyncSemel, Semel
from semel.batch import Batches, Item
from tests.within.servers.callers import mysql_address

PAGE = 10
INSERT = "INSERT INTO batch_effect (item) VALUES ('{}')"


def connect(url: str) -> Any:
    """A connection to the database of the records."""
    if "sqlite" in url:
        return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)
    if "mysql" in url:
        return pymysql.connect(**mysql_address(url))
    return psycopg.connect(url)


async def async_connect(url: str) -> Any:
    """The same of a library for event loops."""
    if "sqlite" in url:
        return await aiosqlite.connect(url.removeprefix("sqlite:///"), timeout=30)
    if "mysql" in url:
        return await asyncmy.connect(**mysql_address(url))
    return await psycopg.AsyncConnection.connect(url)


async def async_close(connection: Any) -> None:
    """Let go of it, and so of its transaction, whatever state it is in."""
    with suppress(Exception):  # it may be lost
        await getattr(connection, "ensure_closed", connection.close)()


@contextmanager
def committing(connection: Any) -> Iterator[None]:
    """A transaction, in the form that all these libraries understand."""
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


class Fate:
    """When this process dies."""

    def __init__(self, where: str, at: int) -> None:
        self._where = where
        self._at = at
        self._passed = 0
        self._lock = threading.Lock()

    def meet(self, where: str) -> None:
        """Die here, if it is time."""
        if where == self._where and self._at:
            with self._lock:
                self._passed += 1
                if self._passed == self._at:
                    os.kill(os.getpid(), signal.SIGKILL)


class Connections:
    """Begins transactions, on one connection of each thread, as a pool would; after an error it takes another one."""

    def __init__(self, url: str, fate: Fate) -> None:
        self._url = url
        self._fate = fate
        self._kept = threading.local()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Begin one, and commit it."""
        connection = getattr(self._kept, "connection", None) or connect(self._url)
        self._kept.connection = None
        try:
            with committing(connection):
                yield connection
        except BaseException:
            connection.close()
            raise
        self._kept.connection = connection
        self._fate.meet("committed")
        print(".", flush=True)  # for whoever waits for commits


class AsyncConnections:
    """The same for tasks: whatever connection is free. The threads of aiosqlite end with their connections alone."""

    def __init__(self, url: str, fate: Fate) -> None:
        self._url = url
        self._fate = fate
        self._free: list[Any] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Begin one, and commit it."""
        connection = self._free.pop() if self._free else await async_connect(self._url)
        try:
            yield connection
            await connection.commit()
        except BaseException:
            await async_close(connection)
            raise
        self._free.append(connection)
        self._fate.meet("committed")
        print(".", flush=True)

    async def close(self) -> None:
        """Let go of all."""
        for connection in self._free:
            await async_close(connection)


class Work:
    """What is done with items, and how."""

    def __init__(self, url: str, commit: Any, where: str, at: int) -> None:
        self._url = url
        self._where = where
        self._fate = Fate(where, at)
        self._settings: dict[str, Any] = {
            "commit": commit,
            "concurrency": 4,
            "page": PAGE,
            "lease_for": timedelta(seconds=1),
        }

    def run(self) -> None:
        """In threads."""
        transaction = Connections(self._url, self._fate).transaction

        def pay(item: Item, session: Any) -> str:
            self._fate.meet("before")
            with closing(session.cursor()) as cursor:
                cursor.execute(INSERT.format(item.id))
            self._fate.meet("after")
            return item.id

        with Semel(self._url) as semel:
            batch = Batches(semel).get("kill")
            self._wait_at_gate()
            status = batch.run(pay, transaction=transaction, **self._settings)
            print(status.state, status.completed)

    async def async_run(self) -> None:
        """In tasks."""
        connections = AsyncConnections(self._url, self._fate)

        async def pay(item: Item, session: Any) -> str:
            self._fate.meet("before")
            async with session.cursor() as cursor:
                await cursor.execute(INSERT.format(item.id))
            self._fate.meet("after")
            return item.id

        async with AsyncSemel(self._url) as semel:
            batch = await Batches(semel).get("kill")
            self._wait_at_gate()
            status = await batch.run(pay, transaction=connections.transaction, **self._settings)
            await connections.close()
            print(status.state, status.completed)

    def _wait_at_gate(self) -> None:
        if self._where == "gate":
            print("ready", flush=True)
            sys.stdin.readline()


def main(url: str, commit: str, kind: str, where: str, at: str) -> None:
    """Work on the batch, to its end or to that of this process."""
    work = Work(url, commit, where, int(at))
    if kind == "async":
        asyncio.run(work.async_run())
    else:
        work.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
