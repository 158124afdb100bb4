"""What a careful program would do on MariaDB without semel: an insert and an update, one statement per call.

What always holds: each statement is a transaction of its own, durable when it returns; as many connections as callers.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from bench.by_hand import digest_of
from bench.by_hand_postgresql import FINGERPRINT, OUTCOME
from bench.mariadb_server import where
from bench.workload import OPERATION, TENANT, order

CLAIM = f"""
INSERT INTO semel_record (digest, scope, operation, value, status, retryable, fingerprint, fence, nonce, lease_us,
    in_doubt_policy, reconcile_after_us, doubtful, attempts, created_us, started_us, updated_us, expires_us, keep_us)
VALUES (%s, '{TENANT}', '{OPERATION}', %s, 'running', 0, %s, 1, %s, %s, 'rerun', 30000000, 0, 1, %s, %s, %s, %s,
    86400000000)
"""  # noqa: S608 - fixed texts
COMPLETE = """
UPDATE semel_record SET status = 'completed', outcome = %s, updated_us = %s, lease_us = %s
WHERE digest = %s AND nonce = %s AND fence = 1 AND status = 'running'
"""


def _claim(number: int, digest: bytes, nonce: bytes) -> tuple[object, ...]:
    now = time.time_ns() // 1000
    return (digest, order(number), FINGERPRINT, nonce, now + 30_000_000, now, now, now, now + 86_400_000_000)


def _complete(digest: bytes, nonce: bytes) -> tuple[object, ...]:
    now = time.time_ns() // 1000
    return (OUTCOME, now, now, digest, nonce)


def _changed(rows: int) -> None:
    """A statement that changes nothing would be fast, and no comparison."""
    assert rows == 1, "the statement changed nothing: the comparison is wrong"


class Hands:
    """As many PyMySQL connections as there are threads; a call takes one that nobody uses."""

    def __init__(self, url: str, callers: int) -> None:
        import pymysql

        self._idle = [pymysql.connect(**where(url), autocommit=True) for _ in range(callers)]

    def first_run(self, number: int) -> None:
        """Claim and complete, two commits."""
        digest, nonce = digest_of(number), os.urandom(16)
        connection = self._idle.pop()
        try:
            with connection.cursor() as cursor:
                _changed(cursor.execute(CLAIM, _claim(number, digest, nonce)))
                _changed(cursor.execute(COMPLETE, _complete(digest, nonce)))
        finally:
            self._idle.append(connection)

    def close(self) -> None:
        """Let go of the connections."""
        for connection in self._idle:
            connection.close()


class AsyncHands:
    """The same with asyncmy and tasks."""

    def __init__(self, connections: list[Any]) -> None:
        self._idle = connections

    @staticmethod
    async def open(url: str, callers: int) -> AsyncHands:
        """Connect."""
        import asyncmy

        return AsyncHands([await asyncmy.connect(**where(url), autocommit=True) for _ in range(callers)])

    async def first_run(self, number: int) -> None:
        """Claim and complete, two commits."""
        digest, nonce = digest_of(number), os.urandom(16)
        connection = self._idle.pop()
        try:
            async with connection.cursor() as cursor:
                _changed(await cursor.execute(CLAIM, _claim(number, digest, nonce)))
                _changed(await cursor.execute(COMPLETE, _complete(digest, nonce)))
        finally:
            self._idle.append(connection)

    async def close(self) -> None:
        """Let go of the connections."""
        for connection in self._idle:
            await connection.ensure_closed()
        await asyncio.sleep(0)
