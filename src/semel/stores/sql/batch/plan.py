"""Plans of batches for the SQL stores: operations as commands, one plan for every server. No I/O.

- Claims and ends of items are planned as lists of ordinary operations; then follow the rows of the items.
- Nothing but `CommitPage` is part of a caller's transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from semel.core.batch.operations import (
    AbandonLoad,
    AddItems,
    BatchAnswer,
    BatchChangedState,
    BatchesFound,
    BatchFound,
    BeginRun,
    ChangeBatch,
    ClaimItems,
    CommitPage,
    DropItems,
    DuplicateItems,
    EndBatch,
    EraseItems,
    ExpiredBatches,
    FindItems,
    FindPages,
    FindSubject,
    FinishLoad,
    FinishPage,
    ForgetItems,
    HeldBatches,
    ItemEnd,
    ItemsAdded,
    ItemsClaimed,
    ItemsErased,
    ItemsForgotten,
    ItemsFound,
    ItemsSettled,
    ListBatches,
    LoadAbandoned,
    LoadLost,
    NoteBatch,
    OpenBatch,
    PageFinished,
    PagesFound,
    PageTaken,
    PlacesFound,
    RateReserved,
    ReadBatch,
    ReadItems,
    ReadRecords,
    RecordsFound,
    ReopenItems,
    ReserveRate,
    SettleItems,
    TakePage,
)
from semel.core.batch.values import ABANDONED_US, ENDED, BatchCounts, BatchPage, ItemPlace, StoredBatch, StoredItem
from semel.core.operations import Answer, Complete, Fail, Found, Operation, Read, Recorded
from semel.core.record import StoredRecord
from semel.core.store import Answers, Plan
from semel.errors import StoreUnavailable, UsageError
from semel.stores.batch.memory import ERASED_DATA, state_after
from semel.stores.rows import load_statements, storable
from semel.stores.sql.dialect import Asking, BatchDialect, Row
from semel.stores.sql.errors import RowError

BATCH_COLUMNS: Final = tuple(field.name for field in msgspec.structs.fields(StoredBatch))
ITEM_COLUMNS: Final = tuple(field.name for field in msgspec.structs.fields(StoredItem))
_TOGETHER: Final = 128
"""So many records are claimed or ended by one statement."""
_TRIES: Final = 10
Many = Callable[..., Plan]


_AFTER_ALL: Final = (1 << 63) - 1
"""Above the number of every batch."""


def shared_statements(parts: dict[str, str]) -> dict[str, str]:
    """The statements that all databases understand, in the words of one. `{among}` is left for a list of values."""
    columns = {
        "batch": ", ".join(BATCH_COLUMNS),
        "item": ", ".join(ITEM_COLUMNS),
        "among": "{among}",
        "abandoned_us": str(ABANDONED_US),
    }
    return load_statements("semel.stores.sql.batch", "shared.sql", {**columns, **parts})


class PlanOperations(Protocol):
    """Plans operations of one kind."""

    def __call__(self, operations: Sequence[Operation], /, *, joined: bool) -> Plan:
        """The commands for `operations`."""


def plan_batch(dialect: BatchDialect, operations: Sequence[Any], *, joined: bool, plan_records: PlanOperations) -> Plan:
    """The commands for operations about batches, all of one kind."""
    answers: Answers = []
    for operation in operations:
        try:
            answers.append((yield from _plan_one(dialect, operation, joined=joined, plan_records=plan_records)))
        except RowError as problem:
            answers.append(problem.error)
    return answers


def _plan_one(
    dialect: BatchDialect, operation: Any, *, joined: bool, plan_records: PlanOperations
) -> Asking[BatchAnswer]:
    if isinstance(operation, CommitPage):
        return (yield from _commit_page(dialect, operation, plan_records))
    is_sweep = isinstance(operation, HeldBatches) or (
        isinstance(operation, ExpiredBatches) and operation.number is None
    )
    if joined and is_sweep:
        return BatchesFound(())  # a sweep in the caller's transaction leaves them to the next one outside
    if joined:
        raise UsageError("A batch is not part of your transaction; nothing was changed. Use it outside within().")
    if isinstance(operation, ClaimItems):
        return ItemsClaimed(tuple((yield from _in_lists(operation.claims, plan_records, joined=False))))
    if isinstance(operation, ReadRecords):
        told = yield from _in_lists([Read(digest) for digest in operation.digests], plan_records, joined=False)
        return RecordsFound(tuple(_record_of(answer) for answer in told))
    if isinstance(operation, SettleItems):
        return (yield from _settle(dialect, operation, plan_records))
    return (yield from _PLANS[type(operation)](dialect, operation))


def _in_lists(
    operations: Sequence[Operation], plan_records: PlanOperations, *, joined: bool
) -> Asking[list[Answer | Exception]]:
    """The answers to operations of one kind, which are sent in lists."""
    answers: list[Answer | Exception] = []
    for begin in range(0, len(operations), _TOGETHER):
        answers += yield from plan_records(operations[begin : begin + _TOGETHER], joined=joined)
    return answers


def _record_of(answer: Answer | Exception) -> StoredRecord | None:
    """The record of an answer to `Read`.

    Raises:
        Exception: it could not be read.
    """
    if isinstance(answer, Exception):
        raise answer
    return answer.record if isinstance(answer, Found) else None


def _settle(dialect: BatchDialect, operation: SettleItems, plan_records: PlanOperations) -> Asking[BatchAnswer]:
    answers: dict[int, Answer | Exception] = {}
    for kind in (Complete, Fail):
        mine = [(end.position, end.write) for end in operation.ends if isinstance(end.write, kind)]
        told = yield from _in_lists([write for _, write in mine], plan_records, joined=False)
        answers |= dict(zip([position for position, _ in mine], told, strict=True))
    noted = [end for end in operation.ends if end.write is None or isinstance(answers[end.position], Recorded)]
    yield from _note_items(dialect, operation.number, operation.page, noted, joined=False)
    return ItemsSettled(tuple(answers[end.position] for end in operation.ends if end.write is not None))


def _note_items(
    dialect: BatchDialect, number: int, page: int, ends: Sequence[ItemEnd], *, joined: bool
) -> Asking[None]:
    rows = sorted((end.position, int(end.status), end.outcome) for end in ends if end.status is not None)
    if rows:
        yield from dialect.settle(number, page, rows, joined=joined)


def _commit_page(dialect: BatchDialect, operation: CommitPage, plan_records: PlanOperations) -> Asking[BatchAnswer]:
    (answer,) = yield from plan_records([Complete(operation.lease, operation.outcome)], joined=True)
    if isinstance(answer, Recorded):
        page = operation.page
        yield from _note_items(dialect, operation.number, page.page, operation.ends, joined=True)
        yield dialect.command("finish_page", operation.number, page.page, page.round)
    return ItemsSettled((answer,))


def _open(dialect: BatchDialect, operation: OpenBatch) -> Asking[BatchAnswer]:
    scope, id_, name = storable(operation.scope), storable(operation.id), storable(operation.operation)
    new = (scope, id_, name, operation.token, operation.metadata, b"[]", bytes(32), operation.keep_us)
    rows = yield dialect.command("by_name", scope, id_)
    if not rows:
        yield dialect.command("insert_batch", *new)
    elif _batch_of(rows[0]).state != "loading":
        return (yield from _with_counts(dialect, rows))
    yield dialect.command("take_load", operation.token, scope, id_)
    yield dialect.command("reset_load", name, operation.metadata, operation.keep_us, scope, id_, operation.token)
    return (yield from _read_by_name(dialect, scope, id_))


def _read_by_name(dialect: BatchDialect, scope: str | None, id_: str | None) -> Asking[BatchFound]:
    return (yield from _with_counts(dialect, (yield dialect.command("by_name", scope, id_))))


def _read_by_number(dialect: BatchDialect, number: int) -> Asking[BatchFound]:
    return (yield from _with_counts(dialect, (yield dialect.command("by_number", number))))


def _with_counts(dialect: BatchDialect, rows: list[Row]) -> Asking[BatchFound]:
    batch = _batch_of(rows[0]) if rows else None
    ((now, *counts, updated),) = yield dialect.command("counts", 0 if batch is None else batch.number)
    if batch is not None and updated > batch.updated_us:
        batch = msgspec.structs.replace(batch, updated_us=int(updated))
    return BatchFound(batch, BatchCounts(*map(int, counts)), now)


def _batch_of(row: Row) -> StoredBatch:
    fields = dict(zip(BATCH_COLUMNS, row, strict=True))
    return StoredBatch(**{**fields, "has_overrun": bool(fields["has_overrun"])})


def _item_of(row: Row) -> StoredItem:
    position, id_, data, about, status, outcome, is_erased = row
    return StoredItem(position, id_, data, about, status, outcome, bool(is_erased))


def _add(dialect: BatchDialect, operation: AddItems) -> Asking[BatchAnswer]:
    try:
        is_added = yield from dialect.add(operation)
    except RowError as problem:
        found = yield from _find(dialect, operation.number, [item.id for item in operation.items])
        if not found:
            raise problem from None
        return DuplicateItems(tuple(sorted(item.id for item in found)))
    end = operation.offset + operation.count
    if is_added:
        return ItemsAdded(end)
    rows = yield dialect.command("loading", operation.number)
    # The same again, after its reply was lost.
    is_mine = bool(rows) and rows[0] == (end, operation.token, "loading")
    return ItemsAdded(end) if is_mine else LoadLost()


def _drop(dialect: BatchDialect, operation: DropItems) -> Asking[BatchAnswer]:
    number, token = operation.number, operation.token
    rows = yield dialect.command("loading", number)
    if not rows or rows[0][1:] != (token, "loading"):
        return LoadLost()
    loaded = max(operation.offset, rows[0][0] - operation.limit)
    if loaded < rows[0][0]:
        # Rows first: whoever is cut off in between finds rows missing, and takes back what is behind them.
        yield dialect.command("drop_loaded", number, loaded, number, token)
        yield dialect.command("set_loaded", loaded, number, token)
    return ItemsAdded(min(loaded, rows[0][0]))


def _finish_load(dialect: BatchDialect, operation: FinishLoad) -> Asking[BatchAnswer]:
    number, token, total = operation.number, operation.token, operation.total
    yield dialect.command("finish_load", total, operation.digest, number, token, total)
    rows = yield dialect.command("loading", number)
    if not rows or rows[0][1] != token or rows[0][2] == "loading":
        return LoadLost()
    return (yield from _read_by_number(dialect, number))


def _abandon(dialect: BatchDialect, operation: AbandonLoad) -> Asking[BatchAnswer]:
    yield dialect.command("abandon", operation.number, operation.token)
    return LoadAbandoned()


def _note(dialect: BatchDialect, operation: NoteBatch) -> Asking[BatchAnswer]:
    yield dialect.command("note", operation.notes, operation.number, operation.seen)
    return (yield from _read_by_number(dialect, operation.number))


def _read(dialect: BatchDialect, operation: ReadBatch) -> Asking[BatchAnswer]:
    return (yield from _read_by_name(dialect, storable(operation.scope), storable(operation.id)))


def _list(dialect: BatchDialect, operation: ListBatches) -> Asking[BatchAnswer]:
    place, after = "list", operation.after
    if operation.newest_first:
        place, after = "newest", operation.after or _AFTER_ALL
    place += "" if operation.scope is not None else "_everywhere"
    values: list[Any] = [] if operation.scope is None else [storable(operation.scope)]
    wanted = storable(operation.operation)
    if operation.state is None:
        rows = yield dialect.command(place, *values, after, wanted, operation.limit)
    else:
        rows = yield dialect.command(f"{place}_of_state", *values, after, operation.state, wanted, operation.limit)
    return BatchesFound(tuple(map(_batch_of, rows)))


def _read_items(dialect: BatchDialect, operation: ReadItems) -> Asking[BatchAnswer]:
    asked = (operation.number, operation.first, operation.end)
    if operation.status is None:
        rows = yield dialect.command("items", *asked)
    else:
        rows = yield dialect.command("items_of_status", *asked, int(operation.status), operation.limit)
    return ItemsFound(tuple(map(_item_of, rows)))


def _find_items(dialect: BatchDialect, operation: FindItems) -> Asking[BatchAnswer]:
    return ItemsFound(tuple((yield from _find(dialect, operation.number, operation.ids))))


def _find(dialect: BatchDialect, number: int, ids: Sequence[str]) -> Asking[list[StoredItem]]:
    if not ids:
        return []
    rows = yield dialect.command_among("find_items", "text", [storable(id_) for id_ in ids], number)
    return list(map(_item_of, rows))


def _begin(dialect: BatchDialect, operation: BeginRun) -> Asking[BatchAnswer]:
    yield dialect.command("begin", operation.page, operation.number)
    return (yield from _read_by_number(dialect, operation.number))


def _take(dialect: BatchDialect, operation: TakePage) -> Asking[BatchAnswer]:
    page, state = yield from dialect.take(operation.number)
    return PageTaken(None if page is None else BatchPage(page, 0), state)


_WHICH: Final = {"open": "open_pages", "failed": "failed_pages", "in_doubt": "doubtful_pages", "all": "all_pages"}


def _find_pages(dialect: BatchDialect, operation: FindPages) -> Asking[BatchAnswer]:
    rows = yield dialect.command(_WHICH[operation.which], operation.number, operation.after, operation.limit)
    return PagesFound(tuple(BatchPage(page, round_) for page, round_ in rows))


def _finish_page(dialect: BatchDialect, operation: FinishPage) -> Asking[BatchAnswer]:
    yield dialect.command("finish_page", operation.number, operation.page, operation.round)
    rows = yield dialect.command("is_done", operation.number, operation.page)
    return PageFinished(bool(rows) and bool(rows[0][0]))


def _change(dialect: BatchDialect, operation: ChangeBatch) -> Asking[BatchAnswer]:
    """Decide on the state that is seen, and change it if it is still that one.

    Raises:
        StoreUnavailable: it changed under every look.
    """
    for _ in range(_TRIES):
        found = yield dialect.command("by_number", operation.number)
        batch = _batch_of(found[0]) if found else None
        state = None if batch is None else state_after(batch, operation)
        if batch is None or state is None or state == batch.state:
            return BatchChangedState(batch, is_changed=state is not None)
        reason = storable(operation.reason)
        if state in ENDED:
            seen = (batch.state, batch.has_overrun)
            yield dialect.command("cancel", state, reason or batch.reason, batch.number, *seen)
        else:
            yield dialect.command("change", state, reason, operation.has_overrun, batch.number, batch.state)
    raise StoreUnavailable("The batch changed under every look at it; nothing was changed. Try again.", conflict=True)


def _end(dialect: BatchDialect, operation: EndBatch) -> Asking[BatchAnswer]:
    rows = yield dialect.command("may_end", operation.number)
    if rows and rows[0][1]:
        yield dialect.command("end", operation.number, rows[0][0])
    return (yield from _read_by_number(dialect, operation.number))


def _reopen(dialect: BatchDialect, operation: ReopenItems) -> Asking[BatchAnswer]:
    if operation.positions:
        yield from dialect.reopen(operation)
    return ItemsSettled()


def _reserve(dialect: BatchDialect, operation: ReserveRate) -> Asking[BatchAnswer]:
    amount = operation.count * operation.interval_us
    until, now = yield from dialect.reserve(operation.number, amount)
    return RateReserved(max(0, until - amount - now))


def _expire(dialect: BatchDialect, operation: ExpiredBatches) -> Asking[BatchAnswer]:
    if operation.number is None:
        rows = yield dialect.command("may_expire", operation.limit)
    else:
        rows = yield dialect.command("one_may_expire", operation.number)
    for (number,) in rows:
        yield dialect.command("expire", number)
    if operation.number is None:
        rows = yield dialect.command("expired", operation.limit)
        return BatchesFound(tuple(map(_batch_of, rows)))
    found = map(_batch_of, (yield dialect.command("by_number", operation.number)))
    return BatchesFound(tuple(batch for batch in found if batch.state == "expired"))


def _held(dialect: BatchDialect, operation: HeldBatches) -> Asking[BatchAnswer]:
    rows = yield dialect.command("held", operation.after, operation.limit)
    return BatchesFound(tuple(map(_batch_of, rows)))


def _forget(dialect: BatchDialect, operation: ForgetItems) -> Asking[BatchAnswer]:
    rows = yield dialect.command("loading", operation.number)
    if not rows or rows[0][2] != "expired":  # nobody brings one that is expired back
        return ItemsForgotten(is_done=False)
    if operation.digests:
        yield dialect.command_among("expire_records", "bytea", list(operation.digests))
    yield dialect.command("drop_items", operation.number, operation.end)
    if operation.is_last:
        yield dialect.command("drop_pages", operation.number)
        yield dialect.command("drop_batch", operation.number)
    return ItemsForgotten(is_done=True)


def _subject(dialect: BatchDialect, operation: FindSubject) -> Asking[BatchAnswer]:
    """To a collation, texts that differ by spaces at their end only may be equal: those are read, and left out."""
    subject, scope = storable(operation.subject), storable(operation.scope)
    (number, position), found = operation.after, list[ItemPlace]()
    while True:
        rows = yield dialect.command("subject", subject, scope, number, number, position, operation.limit)
        found += [ItemPlace(*row[1:]) for row in rows if row[0] == subject and scope in (None, row[2])]
        if len(rows) < operation.limit or len(found) >= operation.limit:
            return PlacesFound(tuple(found[: operation.limit]))
        number, position = rows[-1][1], rows[-1][6]


def _erase(dialect: BatchDialect, operation: EraseItems) -> Asking[BatchAnswer]:
    if not operation.positions:
        return ItemsErased(0)
    positions = list(operation.positions)
    found = yield dialect.command_among("erasable", "bigint", positions, operation.number)
    yield dialect.command_among("erase", "bigint", positions, ERASED_DATA, operation.number)
    return ItemsErased(len(found))


_PLANS: Final[dict[type, Callable[[BatchDialect, Any], Asking[BatchAnswer]]]] = {
    OpenBatch: _open,
    AddItems: _add,
    DropItems: _drop,
    FinishLoad: _finish_load,
    AbandonLoad: _abandon,
    NoteBatch: _note,
    ReadBatch: _read,
    ListBatches: _list,
    ReadItems: _read_items,
    FindItems: _find_items,
    BeginRun: _begin,
    TakePage: _take,
    FindPages: _find_pages,
    FinishPage: _finish_page,
    ChangeBatch: _change,
    EndBatch: _end,
    ReopenItems: _reopen,
    ReserveRate: _reserve,
    ExpiredBatches: _expire,
    HeldBatches: _held,
    ForgetItems: _forget,
    FindSubject: _subject,
    EraseItems: _erase,
}
BATCH_OPERATIONS: Final = frozenset({*_PLANS, ClaimItems, ReadRecords, SettleItems, CommitPage})
"""The operations that `plan_batch` plans."""
