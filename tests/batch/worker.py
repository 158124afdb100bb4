"""A process that works on a batch and may kill itself: `python -m tests.batch.worker URL COMMIT WHERE AT`.

Each item writes a row in the transaction of its record. WHERE is `before` or `after` that row, or `committed`; AT is
the item of this process at which it dies, or with `committed` the transaction, 0 for never. With the WHERE `gate` it
says that it is ready, waits for a line and never dies.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pymysql

from semel import Semel
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


def main(url: str, commit: Any, where: str, at: str) -> None:
    """Work on the batch, to its end or to that of this process."""
    fate = Fate(where, int(at))
    transaction = Connections(url, fate).transaction

    def pay(item: Item, session: Any) -> str:
        fate.meet("before")
        with closing(session.cursor()) as cursor:
            cursor.execute(INSERT.format(item.id))
        fate.meet("after")
        return item.id

    with Semel(url) as semel:
        batch = Batches(semel).get("kill")
        if where == "gate":
            print("ready", flush=True)
            sys.stdin.readline()
        status = batch.run(
            pay, transaction=transaction, commit=commit, concurrency=4, page=PAGE, lease_for=timedelta(seconds=1)
        )
        print(status.state, status.completed)


if __name__ == "__main__":
    main(*sys.argv[1:])
