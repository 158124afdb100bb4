"""The payment provider and its ledger: an append-only file of its own, which knows nothing of semel.

What always holds: a line is on the disk before the charge is answered; lines are only ever added. A key that was
charged before is recognised: it is noted, and answered with the first charge. So a double charge can only come from
two different keys for one payment, and the ledger would show it as two charges.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """One line of the ledger: a charge, or a repeat that was recognised and did not charge."""

    kind: Literal["charge", "recognised"]
    charge: str
    key: str
    payment: str
    amount: str
    worker: str
    attempt: int
    at: float


_LINES = msgspec.json.Decoder(Entry)


class Provider:
    """Takes money, once per key; it is asked by every worker process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def charge(self, key: str, payment: str, amount: str, *, worker: str, attempt: int) -> Entry:
        """Charge, or recognise the key and answer with the charge there is."""
        with self._locked() as file:
            first = next((entry for entry in read(self._path) if entry.key == key and entry.kind == "charge"), None)
            entry = Entry(
                kind="recognised" if first else "charge",
                charge=first.charge if first else f"ch_{secrets.token_hex(4)}",
                key=key,
                payment=payment,
                amount=amount,
                worker=worker,
                attempt=attempt,
                at=time.time(),
            )
            os.write(file, msgspec.json.encode(entry) + b"\n")
            os.fsync(file)
            return entry

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """One request at a time over all processes; the system lets go of the lock of a process that dies."""
        file = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def read(path: Path) -> list[Entry]:
    """The ledger, line by line. A damaged line raises `msgspec.DecodeError`: then nothing is proved."""
    return [_LINES.decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []
