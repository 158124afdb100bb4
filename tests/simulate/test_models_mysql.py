"""The model of MariaDB answers as the server does, over random sequences on lanes and in callers' transactions."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql
import pytest

from semel.core.operations import AddReplays, Checkpoint, Complete, Fail, MarkLapsed, Purge, Read, Renew, Resolve
from semel.stores.mysql import MysqlStore
from semel_lab.simulate.models import Act, Isolation, MysqlModel
from tests.servers.databases import Databases
from tests.servers.records import FORGET_SWEEPS
from tests.simulate.sequences import KEYS, Clock, Kind, compare
from tests.simulate.served import CALLERS, SEQUENCES, TIME_LIMIT, Served


def sends(act: Act, joined: bool, steps: bool) -> bool:
    """What an engine sends, and where.

    Sweeps begin and commit transactions of their own, so they go by lanes alone. A write in a transaction names it. Of
    finished steps and plain readings in a transaction a sequence has only one: a reading locks the steps it finds.
    """
    if isinstance(act, Checkpoint):
        return steps and (not joined or bool(act.lease.transaction))
    if not joined:
        return True
    if isinstance(act, (Complete, Fail, Renew)):
        return bool(act.lease.transaction)
    if isinstance(act, (Purge, MarkLapsed, AddReplays)):
        return False
    return not (steps and isinstance(act, (Read, Resolve)))


class Mariadb(Served):
    """A database, a lane's driver, and connections of callers."""

    def __init__(self, url: str, clock: Clock, stack: ExitStack) -> None:
        super().__init__(MysqlStore(url, clock=clock, listen=False, lock_timeout=1), stack)
        parts = urlsplit(url)
        self._address: dict[str, Any] = {
            "host": parts.hostname,
            "port": parts.port,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "database": parts.path.lstrip("/"),
        }
        self._own = self._opened(stack, autocommit=True)
        self._callers = [self._opened(stack, autocommit=False) for _ in range(CALLERS)]
        for caller in self._callers:
            self._told(caller, "SET SESSION innodb_lock_wait_timeout = 1")
        self._fence_in()

    def _opened(self, stack: ExitStack, *, autocommit: bool) -> Any:
        connection = pymysql.connect(**self._address, autocommit=autocommit)
        stack.callback(connection.close)
        return connection

    @staticmethod
    def _told(connection: Any, text: str, *values: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(text, values)

    def _fence_in(self) -> None:
        """Rows beside each key, so that the gap it is in belongs to no other key."""
        for key in KEYS:
            for beside in (_beside(key.digest, -1), _beside(key.digest, 1)):
                self._told(
                    self._own,
                    "INSERT INTO semel_record (digest, lease_us, created_us, started_us, updated_us, expires_us,"
                    " keep_us, reconcile_after_us, fence, attempts, retryable, doubtful, status, in_doubt_policy,"
                    " nonce, fingerprint, scope, operation, value)"
                    " VALUES (%s, %s, 1, 1, 1, %s, 1, 0, 1, 1, 0, 0, 'running', 'hold', %s, %s, 's', 'o', 'v')",
                    *(beside, 2**60, 2**60, b"\0" * 16, b"f"),
                )
                self._told(
                    self._own,
                    "INSERT INTO semel_step (digest, life, position, identity, number, name, outcome)"
                    " VALUES (%s, 1, 0, %s, 1, 's', 'o')",
                    *(beside, b"\0" * 32),
                )
                self._told(
                    self._own,
                    "INSERT INTO semel_search (digest, term, created_us, scope) VALUES (%s, 1, 1, 's')",
                    beside,
                )

    def begin(self, isolations: tuple[Isolation, ...]) -> None:
        """Forget what the sequence before left."""
        for caller in self._callers:
            caller.rollback()
        digests = [key.digest for key in KEYS]
        for table in ("semel_step", "semel_search", "semel_history", "semel_record"):
            self._told(self._own, f"DELETE FROM {table} WHERE digest IN (%s, %s)", *digests)  # noqa: S608
        self._told(self._own, FORGET_SWEEPS)
        for caller, isolation in zip(self._callers, isolations, strict=False):
            self._told(caller, f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation.upper()}")
            caller.rollback()


def _beside(digest: bytes, by: int) -> bytes:
    return (int.from_bytes(digest, "big") + by).to_bytes(32, "big")


@pytest.mark.slow
@pytest.mark.timeout(TIME_LIMIT)
def test_the_model_answers_as_the_server_does(mariadb: Databases) -> None:
    clock = Clock()
    with ExitStack() as stack:
        real = Mariadb(mariadb.new_database(), clock, stack)
        compare(MysqlModel, real, clock, seed=0, first=0, count=SEQUENCES, kind=Kind(sends))
