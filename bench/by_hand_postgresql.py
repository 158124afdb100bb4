"""What a careful program would do on PostgreSQL without semel: an insert, an update, a look-up by primary key.

What always holds: each statement is prepared, a transaction of its own, and durable when it returns. The values are
made as cheaply as they can be. The same texts go through psycopg, asyncpg and pgbench.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from bench.by_hand import digest_of
from bench.postgresql_server import program
from bench.workload import AMOUNT, OPERATION, TENANT, order
from semel.core import codec

OUTCOME = codec.encode({"order_id": order(0), "amount": AMOUNT}, codec.shape_of(object), 1024)
FINGERPRINT = b"\x01" + bytes(32)
_NOW = "(SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) AS t"
CLAIM = f"""
INSERT INTO semel_record (digest, scope, operation, value, status, retryable, fingerprint, fence, nonce, lease_us,
    in_doubt_policy, reconcile_after_us, doubtful, attempts, created_us, started_us, updated_us, expires_us, keep_us)
SELECT $1::bytea, '{TENANT}', '{OPERATION}', $2::text, 'running', false, $3::bytea, 1, $4::bytea, now + 30000000,
    'rerun', 30000000, false, 1, now, now, now, now + 86400000000, 86400000000 FROM {_NOW}
ON CONFLICT (digest) DO NOTHING RETURNING digest
"""  # noqa: S608 - fixed texts
COMPLETE = f"""
UPDATE semel_record SET status = 'completed', outcome = $3::bytea, updated_us = now, lease_us = now FROM {_NOW}
WHERE digest = $1::bytea AND nonce = $2::bytea AND fence = 1 AND status = 'running' RETURNING digest
"""  # noqa: S608 - fixed texts
READ = "SELECT * FROM semel_record WHERE digest = $1::bytea"


class Hand:
    """One psycopg connection."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor)

    def first_run(self, number: int) -> None:
        """Claim and complete, two commits."""
        digest, nonce = digest_of(number), os.urandom(16)
        changed(self._sent(CLAIM, (digest, order(number), FINGERPRINT, nonce)))
        changed(self._sent(COMPLETE, (digest, nonce, OUTCOME)))

    def read(self, number: int) -> object:
        """The whole row of a record."""
        return self._sent(READ, (digest_of(number),))

    def _sent(self, text: str, values: tuple[object, ...]) -> list[Any]:
        with self._connection.cursor(binary=True) as cursor:
            return cursor.execute(text.encode(), values, prepare=True).fetchall()

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


class AsyncHand:
    """One asyncpg connection, its statements prepared."""

    def __init__(self, connection: Any, claim: Any, complete: Any, read: Any) -> None:
        self._connection = connection
        self._claim, self._complete, self._read = claim, complete, read

    @staticmethod
    async def open(url: str) -> AsyncHand:
        """Connect and prepare."""
        import asyncpg

        connection = await asyncpg.connect(url)
        return AsyncHand(connection, *[await connection.prepare(text) for text in (CLAIM, COMPLETE, READ)])

    async def first_run(self, number: int) -> None:
        """Claim and complete, two commits."""
        digest, nonce = digest_of(number), os.urandom(16)
        changed(await self._claim.fetch(digest, order(number), FINGERPRINT, nonce))
        changed(await self._complete.fetch(digest, nonce, OUTCOME))

    async def read(self, number: int) -> object:
        """The whole row of a record."""
        return await self._read.fetch(digest_of(number))

    async def close(self) -> None:
        """Let go of the connection."""
        await self._connection.close()


def changed(rows: list[Any]) -> None:
    """A statement that changes nothing would be fast, and no comparison."""
    if len(rows) != 1:
        message = "the statement changed nothing: the comparison is wrong"
        raise AssertionError(message)


class Pgbench:
    """The server's own load generator, written in C: so many clients, each sends the two statements over and over."""

    def __init__(self, folder: Path, url: str, clients: int) -> None:
        self._script = folder / "first_run.pgbench"
        self._script.write_text(_script(), encoding="utf-8")
        path, self._environment = program(folder, "pgbench")
        self._command = [path, "--no-vacuum", f"--file={self._script}", "--protocol=prepared"]
        self._command += [f"--client={clients}", f"--jobs={min(clients, os.cpu_count() or 1)}", url]
        self._clients = clients

    def first_runs(self, calls: int) -> float:
        """Seconds for so many calls at the rate that pgbench reaches; connecting is not counted."""
        each = max(1, round(calls / self._clients))
        done = subprocess.run(
            [*self._command[:-1], f"--transactions={each}", self._command[-1]],
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
        )
        rate = re.search(r"^tps = ([0-9.]+) \(without initial connection time\)", done.stdout, re.MULTILINE)
        if done.returncode or rate is None:
            raise AssertionError(f"pgbench failed:\n{done.stdout}{done.stderr}")
        return calls / float(rate[1])


def _script() -> str:
    """A key drawn anew for each call, and everything else made from it by the server."""
    digest, nonce = "sha256(int8send(:n::bigint))", "substr(sha256(int8send(-(:n::bigint))), 1, 16)"
    claim = {"$1": digest, "$2": "'order-' || :n::bigint", "$3": _bytes(FINGERPRINT), "$4": nonce}
    complete = {"$1": digest, "$2": nonce, "$3": _bytes(OUTCOME)}
    return f"\\set n random(1, 4611686018427387903)\n{_filled(CLAIM, claim)};\n{_filled(COMPLETE, complete)};\n"


def _bytes(value: bytes) -> str:
    return f"decode('{value.hex()}', 'hex')"


def _filled(text: str, values: dict[str, str]) -> str:
    for mark, value in values.items():
        text = text.replace(mark, f"({value})")
    return text.strip()
