"""A file of payments: taken in with limits, and looked over, before anything of it is loaded.

What always holds: no more than the limits is ever written to the disk, and the file is gone when the request is.
"""

import asyncio
import csv
import tempfile
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import Request

from examples.payments.money import check_amount
from examples.payments.paying import check_names
from examples.payments.problems import Refused
from examples.payments.settings import BulkLimits

SUFFIXES: Final = {
    "application/x-ndjson": ".jsonl",
    "application/jsonl": ".jsonl",
    "application/json-lines": ".jsonl",
    "text/csv": ".csv",
}
COLUMNS: Final = "id, amount, customer_id, payment_method_id"


class BulkLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a file: a payment with an id, which no other line of the file has. An amount of 0 is skipped."""

    id: str
    amount: Decimal
    customer_id: str
    payment_method_id: str

    def __post_init__(self) -> None:
        check_amount(self.amount, may_be_zero=True)
        check_names(self.customer_id, self.payment_method_id)


class _Amount(msgspec.Struct):
    amount: Decimal


@dataclass(frozen=True)
class BulkFile:
    """A file that is within the limits.

    Attributes:
        path: where it is.
        total: the sum of the amounts that can be paid.
    """

    path: Path
    total: Decimal


@asynccontextmanager
async def receive_file(request: Request, limits: BulkLimits) -> AsyncIterator[BulkFile]:
    """The body of a request as a file, until the end of the block.

    Raises:
        Refused: it is of no known format, too large, or empty; nothing was loaded.
    """
    suffix = _suffix(request)
    if int(request.headers.get("content-length") or 0) > limits.size:
        raise _too_large(f"more than {limits.size} bytes")
    with tempfile.TemporaryDirectory(prefix="bulk-") as folder:
        path = Path(folder) / f"payments{suffix}"
        await _save(request, path, limits.size)
        yield BulkFile(path, await asyncio.to_thread(_look_over, path, limits))


async def _save(request: Request, path: Path, most: int) -> None:
    size = 0
    with path.open("wb") as file:
        async for chunk in request.stream():
            size += len(chunk)
            if size > most:
                raise _too_large(f"more than {most} bytes")
            file.write(chunk)


def _look_over(path: Path, limits: BulkLimits) -> Decimal:
    lines = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            lines += bool(line.strip())
            if len(line) > limits.line:
                raise _too_large(f"a line of more than {limits.line} bytes, number {number}")
            if lines > limits.lines:
                raise _too_large(f"more than {limits.lines} lines")
    if lines < (2 if path.suffix == ".csv" else 1):
        detail = f"No payment was begun: the file has none. Each line needs {COLUMNS}."
        raise Refused(422, "file-invalid", detail, count=0, lines=[])
    return sum(_amounts(path), Decimal(0))


def _amounts(path: Path) -> Iterator[Decimal]:
    """The amounts that can be paid; which lines cannot is found out when they are loaded."""
    reader = _csv_amounts if path.suffix == ".csv" else _json_amounts
    for amount in reader(path):
        with suppress(ValueError):
            check_amount(amount, may_be_zero=True)
            yield amount


def _json_amounts(path: Path) -> Iterator[Decimal]:
    decoder = msgspec.json.Decoder(_Amount)
    with path.open("rb") as file:
        if file.peek(len(BOM_UTF8)).startswith(BOM_UTF8):
            file.read(len(BOM_UTF8))
        for line in file:
            with suppress(msgspec.MsgspecError, UnicodeError):
                yield decoder.decode(line).amount


def _csv_amounts(path: Path) -> Iterator[Decimal]:
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as file, suppress(csv.Error):
        for row in csv.DictReader(file):
            with suppress(ArithmeticError):
                yield Decimal(row.get("amount") or "")


def _suffix(request: Request) -> str:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in SUFFIXES:
        detail = (
            f"Nothing was done. Send JSON lines (application/x-ndjson) or CSV (text/csv), each line with {COLUMNS}."
        )
        raise Refused(415, "unknown-format", detail)
    return SUFFIXES[kind]


def _too_large(what: str) -> Refused:
    return Refused(413, "file-too-large", f"No payment was begun: the file has {what}. Send it in parts.")
