"""The ledger of the gateway: an append-only file of JSON lines, and the state of each key as a fold over it.

What always holds: a line is on the disk before its effect is visible to anybody; a key has at most one line "charged";
every line was a legal move when it was written. What is in memory can be thrown away at any moment.
"""

import fcntl
import json
import os
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

State = Literal["charged", "declined", "refunded", "closed"]
DECLINED_CARD = "tok_declined"


class LedgerUnusable(Exception):
    """The file cannot be the ledger of this process; it was not changed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a charge asks for. The same key with another one is a mistake of the caller."""

    amount: Decimal
    currency: str
    card: str
    reference: str


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a key stands. A key that was closed before any charge has neither `asked` nor a receipt."""

    state: State
    asked: Asked | None = None
    receipt: str | None = None
    given_back: Decimal = Decimal(0)

    def described(self) -> dict[str, str | None]:
        """The answer to whoever asks about the key."""
        amount = None if self.asked is None else str(self.asked.amount)
        return {"state": self.state, "receipt": self.receipt, "amount": amount}


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A part of a charge that was given back, under a key of its own."""

    charge: str
    amount: Decimal
    receipt: str


class Ledger:
    """The one writer of a ledger file. Every method is synchronous: nothing comes between its look and its line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, Entry] = {}
        self._given_back: dict[str, GivenBack] = {}
        self._receipts = 0
        self._file = path.open("a+b")
        try:
            self._lock()
            self._read()
        except LedgerUnusable:
            self._file.close()
            raise

    def find(self, key: str) -> Entry | None:
        """Where `key` stands, or None if the ledger has never seen it."""
        return self._entries.get(key)

    def charge(self, key: str, asked: Asked) -> Entry:
        """Where `key` stands after this charge; of a key that is known nothing is written."""
        if key not in self._entries:
            declined = asked.card == DECLINED_CARD
            self._append(
                event="declined" if declined else "charged",
                key=key,
                amount=str(asked.amount),
                currency=asked.currency,
                card=asked.card,
                reference=asked.reference,
                receipt=None if declined else f"G-{self._receipts + 1:06}",
            )
        return self._entries[key]

    def refund(self, key: str) -> Entry:
        """Give the money back, or close a key that was never charged, so that a late charge is refused."""
        match self._entries.get(key):
            case None:
                self._append(event="closed", key=key, amount=None)
            case Entry(state="charged", asked=Asked() as asked, receipt=receipt):
                rest = asked.amount - self._entries[key].given_back
                self._append(event="refunded", key=key, amount=str(rest), currency=asked.currency, receipt=receipt)
        return self._entries[key]

    def give_back(self, key: str, refund_key: str, amount: Decimal) -> GivenBack:
        """Give a part of a charge back; under a refund key that is known nothing is written.

        Raises:
            ValueError: so much is not there to be given back, or the refund key was used for something else.
        """
        known = self._given_back.get(refund_key)
        if known is None:
            receipt = f"B-{len(self._given_back) + 1:06}"
            line = {"event": "given back", "key": refund_key, "charge": key, "amount": str(amount), "receipt": receipt}
            self._check_given_back(key, amount)
            self._append(**line)
        elif (known.charge, known.amount) != (key, amount):
            raise ValueError("this key was used for another refund")
        return self._given_back[refund_key]

    def _check_given_back(self, key: str, amount: Decimal) -> Entry:
        """The charge that the money comes from."""
        entry = self._entries.get(key)
        if entry is None or entry.state != "charged" or entry.asked is None:
            raise ValueError("there is no charge under this key")
        if entry.given_back + amount > entry.asked.amount:
            raise ValueError("that is more than is left of the charge")
        return entry

    def _lock(self) -> None:
        # Two writers would each believe that a key is new. The lock goes with the process, however it ends.
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = f"Another gateway is writing {self._path}; nothing was changed. Stop it, or take another file."
            raise LedgerUnusable(message) from error

    def _read(self) -> None:
        self._file.seek(0)
        data = self._file.read()
        *lines, torn = data.split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                self._apply(json.loads(line))
            except (ValueError, TypeError, KeyError, ArithmeticError) as error:
                message = (
                    f"Line {number} of {self._path} is no entry ({error!r}); nothing was changed. Repair it first."
                )
                raise LedgerUnusable(message) from error
        if torn:
            # The process ended inside a write. Nobody was answered for this line, so it never happened.
            print(
                f"gateway: cut off a torn last line of {len(torn)} bytes in {self._path}", file=sys.stderr, flush=True
            )
            self._file.truncate(len(data) - len(torn))
        os.fsync(self._file.fileno())
        _sync_folder(self._path.parent)

    def _append(self, **fields: str | None) -> None:
        line: dict[str, Any] = {"at": datetime.now(UTC).isoformat(), **fields}
        try:
            self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            # The line may be on the disk or not, and only reading the file again tells. So this process knows no more.
            print(f"gateway: {self._path} cannot be written ({error}); ending", file=sys.stderr, flush=True)
            os._exit(1)
        self._apply(line)

    def _apply(self, line: dict[str, Any]) -> None:
        """One step of the fold; a line that is no legal move is refused."""
        key, event, known = line["key"], line["event"], self._entries.get(line["key"])
        match event:
            case "charged" | "declined" if known is None:
                asked = Asked(Decimal(line["amount"]), line["currency"], line["card"], line["reference"])
                self._entries[key] = Entry(event, asked, line["receipt"])
                self._receipts += event == "charged"
            case "refunded" if known is not None and known.state == "charged":
                self._entries[key] = replace(known, state="refunded")
            case "closed" if known is None:
                self._entries[key] = Entry("closed")
            case "given back" if key not in self._given_back:
                charge, amount = line["charge"], Decimal(line["amount"])
                entry = self._check_given_back(charge, amount)
                self._entries[charge] = replace(entry, given_back=entry.given_back + amount)
                self._given_back[key] = GivenBack(charge, amount, line["receipt"])
            case _:
                message = f"{event!r} cannot follow {known.state if known else 'nothing'!r} under the key {key!r}"
                raise ValueError(message)


def _sync_folder(folder: Path) -> None:
    # A new file survives a power cut only when its folder was written too.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
