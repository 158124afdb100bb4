"""What a careful program would do without semel: the same two statements on a connection set in the same way.

What always holds: each statement is a transaction of its own, durable when it returns. The values are made as cheaply
as they can be (a digest, a nonce, the clock): no fingerprint, no look-up before, no result encoded.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from pathlib import Path

from bench.sqlite_files import open_reader, open_writer
from bench.workload import AMOUNT, OPERATION, TENANT, order
from semel import Key, Policy
from semel.core import codec
from semel.core.operations import Claim
from semel.core.record import NOTHING
from semel.engine.call_flow import terms_of
from semel.stores.sqlite.dialect import SQL, claim_command

_SAMPLE = Claim(
    Key.of("sample", operation=OPERATION, scope=TENANT), b"\x01" + bytes(32), bytes(16), terms_of(Policy()), NOTHING
)
_CLAIM = claim_command("claim_first", _SAMPLE, lease_us=_SAMPLE.terms.lease_us)
_COMPLETE = SQL["complete"]
_READ = SQL["seen"]
_OUTCOME = codec.encode({"order_id": order(0), "amount": AMOUNT}, codec.shape_of(object), 1024)


class Writer:
    """One connection; whoever holds its lock writes."""

    def __init__(self, path: Path) -> None:
        self._connection = open_writer(path)
        self._lock = threading.Lock()

    def first_run(self, number: int) -> None:
        """Claim and complete, two commits."""
        digest, nonce = digest_of(number), os.urandom(16)
        self.claim(number, digest, nonce)
        self.complete(digest, nonce)

    def claim(self, number: int, digest: bytes, nonce: bytes) -> None:
        """One statement, one commit."""
        values = {**_CLAIM.named, "digest": digest, "nonce": nonce, "value": order(number), "now": _now()}
        self._commit(_CLAIM.text, values)

    def complete(self, digest: bytes, nonce: bytes) -> None:
        """One statement, one commit."""
        self._commit(_COMPLETE, {"digest": digest, "nonce": nonce, "fence": 1, "outcome": _OUTCOME, "now": _now()})

    def _commit(self, statement: str, values: dict[str, object]) -> None:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            if self._connection.execute(statement, values).rowcount != 1:
                message = "the statement changed nothing: the comparison is wrong"
                raise AssertionError(message)
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


class Reader:
    """One connection for look-ups by primary key."""

    def __init__(self, path: Path) -> None:
        self._connection: sqlite3.Connection = open_reader(path)

    def read(self, digest: bytes) -> object:
        """The whole row of a record."""
        return self._connection.execute(_READ, {"digest": digest}).fetchone()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def digest_of(number: int) -> bytes:
    """A primary key."""
    return hashlib.sha256(order(number).encode()).digest()


def _now() -> int:
    return time.time_ns() // 1000
