"""Bulks: a file of payments, each of which is made once, run by workers and followed from outside.

What always holds: nothing of a file is paid before every line of it was accepted. A key with the same file is the same
bulk, a key with another file is refused. A bulk belongs to one account, and nobody else can name it.
"""

import hashlib
import re
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, cast

import msgspec
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import Request

from examples.payments.bulk_file import BulkLine, receive_file
from examples.payments.money import show
from examples.payments.parts import Parts
from examples.payments.problems import Refused, not_found
from examples.payments.tables import Bulk
from semel import AsyncSemel
from semel.batch import Batch, BatchChanged, BatchInvalid, BatchStatus, ItemResult
from semel.errors import RecordNotFound, UsageError

OPERATION: Final = "bulk_payment"
Action = Literal["pause", "resume", "cancel", "retry"]
ACTIONS: Final[tuple[Action, ...]] = ("pause", "resume", "cancel", "retry")
ResultStatus = Literal["pending", "completed", "failed", "skipped", "in_doubt"]
STATUSES: Final = ("pending", "completed", "failed", "skipped", "in_doubt")
CLASSES: Final = {
    "Declined": "Card declined",
    "GatewayDidNotAnswer": "No answer from the gateway",
    "PaymentClosed": "Given up",
    "OtherPayment": "Paid before, with another amount or customer",
}
"""What people read for the classes of failures; others are shown by their names."""
_SHOWN_LINES: Final = 200
_TO_RUN: Final[tuple[Literal["pending", "running"], ...]] = ("pending", "running")
_PLACE: Final = re.compile(r"(?P<what>.+) - at `\$\.?(?P<field>[\w.]*)`", re.DOTALL)
_KEY: Final = re.compile(r'"?([\x21\x23-\x7e]{1,255})"?')


class Bulks:
    """The bulks of all accounts, each call for one of them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def start(self, request: Request, account_id: str) -> tuple[str, bool]:
        """Take the file in a request; gives the id of its bulk, and whether it was there already."""
        bulk_id = make_id(request.headers.get("idempotency-key", ""))
        settings = self._parts.settings
        async with receive_file(request, settings.bulk) as file:
            metadata = {"initiated_by": "payment_service", "total_amount": show(file.total)}
            try:
                batch = await self._parts.batches(account_id).start(
                    bulk_id,
                    file.path,
                    operation=OPERATION,
                    item_id="id",
                    type=BulkLine,
                    metadata=metadata,
                    about=lambda line: {"subject": line.customer_id},
                    keep_for=settings.retention.bulk,
                )
            except BatchInvalid as error:
                raise _invalid(error) from error
            except BatchChanged as error:
                detail = "Nothing was done: this key came with another file before. Take a new key for a new file."
                raise Refused(422, "key-reused", detail, differences=list(error.differences)) from error
        name = _file_name(request.query_params.get("name", ""))
        is_new = (await batch.status()).state == "pending"
        adding = partial(_add, (account_id, bulk_id), name, settings.clock(), is_new)
        try:
            return bulk_id, not await self._parts.database.transact(adding)
        except IntegrityError:  # the same file was sent twice at the same time, and the other was faster
            return bulk_id, True

    async def describe(self, account_id: str, bulk_id: str) -> dict[str, Any]:
        """How far a bulk is."""
        bulk, batch = await self._find(account_id, bulk_id)
        return describe(bulk, await batch.status())

    async def act(self, account_id: str, bulk_id: str, action: Action) -> dict[str, Any]:
        """Pause, resume, cancel, or run failed payments again; gives how far it is. Repeated, it adds nothing."""
        bulk, batch = await self._find(account_id, bulk_id)
        try:
            match action:
                case "pause":
                    await batch.pause("asked for")
                case "cancel":
                    await batch.cancel("asked for")
                case "resume":
                    await batch.resume()
                case "retry":
                    await batch.retry("failed", reason="asked for")
                    if (await batch.status()).state == "paused":
                        await batch.resume()
        except UsageError as error:
            state = (await batch.status()).state
            detail = f"Nothing was changed: a bulk that is {state} cannot do this ({action})."
            raise Refused(409, "wrong-state", detail, state=state) from error
        if action in ("resume", "retry"):
            await self._parts.database.transact(partial(_open, account_id, bulk_id))
        return describe(bulk, await batch.status())

    async def failures(self, account_id: str, bulk_id: str) -> dict[str, Any]:
        """How many payments failed, by the class of the failure."""
        _, batch = await self._find(account_id, bulk_id)
        counts: Counter[str] = Counter()
        async for result in batch.results(status="failed"):
            counts[_class_of(result)] += 1
        return {
            "failures": [
                {"class": name, "title": CLASSES.get(name, name), "count": count}
                for name, count in counts.most_common()
            ]
        }

    async def results(
        self, account_id: str, bulk_id: str, status: str | None, after: int | None, limit: int | None
    ) -> AsyncIterator[dict[str, Any]]:
        """What became of its payments, in the order of the file."""
        if status is not None and status not in STATUSES:
            raise Refused(400, "malformed", f"Nothing was read. status is one of {', '.join(STATUSES)}.")
        _, batch = await self._find(account_id, bulk_id)
        return _lines(batch, cast("ResultStatus | None", status), after, limit)

    async def list(self, account_id: str, most: int = 20) -> list[dict[str, Any]]:
        """The latest bulks of an account."""
        chosen = select(Bulk).where(Bulk.account_id == account_id).order_by(Bulk.created_at.desc()).limit(most)
        async with self._parts.database.reading() as session:
            rows = list(await session.scalars(chosen))
        batches, found = self._parts.batches(account_id), []
        for row in rows:
            try:
                found.append(describe(row, await (await batches.get(row.id, type=BulkLine)).status()))
            except RecordNotFound:
                continue  # it has expired
        return found

    async def _find(self, account_id: str, bulk_id: str) -> tuple[Bulk, Batch[AsyncSemel]]:
        if not bulk_id.isprintable():
            raise not_found("bulk")  # the id of nothing, and PostgreSQL would not even look for some
        async with self._parts.database.reading() as session:
            bulk = await session.get(Bulk, (account_id, bulk_id))
        if bulk is None:
            raise not_found("bulk")
        try:
            return bulk, await self._parts.batches(account_id).get(bulk_id, type=BulkLine)
        except RecordNotFound:
            raise not_found("bulk") from None


def make_id(key: str) -> str:
    """The id of the bulk that a key names: the same on every machine.

    Raises:
        Refused: it is no key.
    """
    match = _KEY.fullmatch(key)
    if match is None:
        detail = (
            "Nothing was done. Send an Idempotency-Key of 1 to 255 characters, and the same one again if you repeat it."
        )
        raise Refused(400, "key-missing", detail)
    return f"bulk_{hashlib.sha256(match[1].encode()).hexdigest()[:24]}"


def describe(bulk: Bulk, status: BatchStatus) -> dict[str, Any]:
    """A bulk as the API shows it."""
    return {
        "bulk_id": bulk.id,
        "file_name": bulk.file_name,
        "state": status.state,
        "reason": status.reason,
        "total": status.total,
        "completed": status.completed,
        "failed": status.failed,
        "skipped": status.skipped,
        "in_doubt": status.in_doubt,
        "remaining": status.remaining,
        "total_amount": (status.metadata or {}).get("total_amount"),
        "rate": None if status.rate is None else round(status.rate, 1),
        "eta_seconds": None if status.eta is None else round(status.eta.total_seconds(), 1),
        "created_at": bulk.created_at.isoformat(),
        "started_at": None if status.started is None else status.started.isoformat(),
        "updated_at": status.updated.isoformat(),
        "actions": _actions(status),
    }


def _actions(status: BatchStatus) -> list[Action]:
    """What can be done with it now."""
    retry: list[Action] = ["retry"] if status.failed else []
    match status.state:
        case "pending" | "running":
            return ["pause", "cancel"]
        case "paused":
            return ["resume", "cancel", *retry]
        case "completed":
            return retry
    return []


async def _lines(
    batch: Batch[AsyncSemel], status: ResultStatus | None, after: int | None, limit: int | None
) -> AsyncIterator[dict[str, Any]]:
    count = 0
    async for result in batch.results(status=status, type=dict[str, Any], after=after):
        if count == limit:
            return
        count += 1
        yield {
            "id": result.id,
            "position": result.position,
            "status": result.status,
            "payment": result.value,
            "error": None if result.error is None else {"class": _class_of(result), "message": result.error.message},
            "attempts": result.attempts,
        }


def _class_of(result: ItemResult[Any]) -> str:
    return "Unknown" if result.error is None else result.error.type.rpartition(".")[2]


def encode_line(line: dict[str, Any]) -> bytes:
    """A result as a line of JSON."""
    return msgspec.json.encode(line) + b"\n"


def _invalid(error: BatchInvalid) -> Refused:
    lines = [{"line": line, "problem": _in_words(problem)} for line, problem in error.problems[:_SHOWN_LINES]]
    detail = f"No payment was begun: {error.count} of the lines cannot be paid. Correct them, and send the file again."
    return Refused(422, "file-invalid", detail, count=error.count, lines=lines)


def _in_words(problem: str) -> str:
    """What is wrong with a line, with the name of its field in front."""
    text = problem.replace("Invalid decimal string", "no decimal number such as 12.50")
    found = _PLACE.fullmatch(text)
    return text if found is None else f"{found['field'] or 'line'}: {found['what'][0].lower()}{found['what'][1:]}"


def _file_name(given: str) -> str:
    name = "".join(letter for letter in given.rpartition("/")[2] if letter.isprintable())
    return name.strip()[:120] or "payments"


async def _add(key: tuple[str, str], name: str, now: datetime, is_new: bool, session: AsyncSession) -> bool:
    """Write down that workers have to run it; tells whether it was new."""
    row = await session.get(Bulk, key)
    if row is not None:
        if row.is_open or not is_new:
            return False
        # The bulk that had this key before is not kept any more, and its row was left.
        row.file_name, row.is_open, row.opened, row.created_at = name, True, row.opened + 1, now
        await session.flush()
        return True
    account_id, bulk_id = key
    session.add(Bulk(account_id=account_id, id=bulk_id, file_name=name, is_open=True, opened=1, created_at=now))
    await session.flush()
    return True


async def open_left(parts: Parts) -> int:
    """Open bulks that are to be run and whose rows say otherwise; gives how many.

    So it is after somebody resumed the batch with `semel batch resume` or in the console, or was cut off between the
    batch and its row.
    """
    shut = select(Bulk.account_id, Bulk.id).where(~Bulk.is_open)
    async with parts.database.reading() as session:
        rows = {(account_id, bulk_id) for account_id, bulk_id in await session.execute(shut)}
    found = 0
    for account_id in sorted({account_id for account_id, _ in rows}):
        for state in _TO_RUN:
            async for batch in parts.batches(account_id).list(state=state):
                if (account_id, batch.id) in rows:
                    await parts.database.transact(partial(_open, account_id, batch.id))
                    found += 1
    return found


async def _open(account_id: str, bulk_id: str, session: AsyncSession) -> None:
    chosen = update(Bulk).where(Bulk.account_id == account_id, Bulk.id == bulk_id)
    await session.execute(chosen.values(is_open=True, opened=Bulk.opened + 1))
