"""The statements of SQLite for the shared plan, from `statements.sql`.

- Values are bound. The only text made at run time is the name of a savepoint, which cannot be bound: hex digits.
- The store's clock is read once per command.
- Reading in the caller's transaction gives the same result whatever factories and converters the caller has set.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from semel.core.events.letters import DropLetter, Letter, ScanLetters, TouchLetter
from semel.core.operations import (
    AddReplays,
    Claim,
    Confirm,
    CountFailure,
    CountRecords,
    Erase,
    MarkLapsed,
    Pending,
    Purge,
    PurgeLetters,
    PurgeWorkers,
    Query,
    Reopen,
    Resolve,
    Scan,
    SkipRecords,
)
from semel.core.record import ERASED_FAILURE, ERASED_OUTCOME, LEASE_ENDED, NOTHING, Status, Worker
from semel.stores.letters import LETTER_COLUMNS, letter_values, select_letters
from semel.stores.rows import (
    RECORD_COLUMNS,
    TEXT_COLUMNS,
    about_values,
    claim_values,
    count_values,
    load_statements,
    reopen_values,
    resolve_values,
    storable,
    worker_row,
)
from semel.stores.search import Wording, select_records, select_skipped, term_numbers
from semel.stores.sql.dialect import Lapse, Row, Sweep, Values
from semel.stores.sqlite.batch.dialect import SqliteBatch
from semel.stores.sqlite.commands import Kind, SqliteCommand, blob
from semel.stores.sqlite.operators.dialect import SqliteAudit
from semel.stores.sqlite.outbox import SqliteOutbox


def _as_expression(column: str) -> str:
    return f"CAST({column} AS BLOB)" if column in TEXT_COLUMNS else f"+{column}"


SQL: Final = load_statements(
    "semel.stores.sqlite",
    "statements.sql",
    {
        "record": ", ".join(RECORD_COLUMNS),
        "record_joined": ", ".join(map(_as_expression, RECORD_COLUMNS)),
        "r_record": ", ".join(f"r.{column}" for column in RECORD_COLUMNS),
        "letter": ", ".join(LETTER_COLUMNS),
        **{name: f"{{{name}}}" for name in ("found", "restrictions", "order")},
    },
)
_ABOUT: Final = ", ".join(f":{name}" for name in ("subject", "business_key", "process_instance", "requester", "tags"))
# Most claims are about nothing in particular, and to bind five times None costs more than all other values together.
_WITHOUT_ABOUT: Final = {
    name: text.replace(_ABOUT, "NULL, NULL, NULL, NULL, NULL") for name, text in SQL.items() if _ABOUT in text
}
_TEXTS: Final = [index for index, column in enumerate(RECORD_COLUMNS) if column in TEXT_COLUMNS]


def claim_command(statement: str, claim: Claim, *, lease_us: int) -> SqliteCommand:
    """One of the three statements that claim."""
    kind = Kind.ENTER if statement == "claim_joined" else Kind.WRITE
    values = claim_values(claim, lease_us=lease_us)
    for name in ("digest", "fingerprint", "nonce"):
        values[name] = blob(values[name])
    if claim.about == NOTHING:
        return SqliteCommand(_WITHOUT_ABOUT[statement], kind=kind, named=values, is_bare=True)
    values = {**values, **about_values(claim.about)}
    return SqliteCommand(SQL[statement], kind=kind, named=values, is_bare=True)


def read_many_command(digests: Sequence[bytes]) -> SqliteCommand:
    """Look several keys up at once: a third of the time that single look-ups take."""
    if len(digests) == 1:
        return SqliteCommand(SQL["seen"], kind=Kind.READ, named={"digest": blob(digests[0])}, is_bare=True)
    size = 1 << (len(digests) - 1).bit_length()  # few different texts, so that all stay prepared
    names = _NAMES[:size] if size <= len(_NAMES) else [f"d{i}" for i in range(size)]
    padded = [*digests, *[digests[-1]] * (size - len(digests))]
    named = dict(zip(names, map(blob, padded), strict=True))
    return SqliteCommand(_read_many_text(size), kind=Kind.READ, named=named, is_bare=True)


_NAMES: Final = [f"d{i}" for i in range(64)]
_seen_texts: dict[int, str] = {}


def _read_many_text(size: int) -> str:
    text = _seen_texts.get(size)
    if text is None:
        text = SQL["seen_many"].replace(":digests", ", ".join(f":d{i}" for i in range(size)))
        _seen_texts[size] = text
    return text


def decode_texts(row: Row) -> Row:
    """A row of `{record_joined}` as one of `{record}`."""
    plain = list(row)
    for index in _TEXTS:
        if plain[index] is not None:
            plain[index] = plain[index].decode()
    return tuple(plain)


# Literally the WHERE of the partial index, without which SQLite cannot know that the index holds all that is asked for.
_OPEN: Final = "r.status IN ('running', 'in_doubt')"
_WORDING: Final = Wording(lambda name, _: f":{name}", ":now", "instr")


def select_command(
    name: str, query: Query, cursor: tuple[int, bytes] | None = None, **further: int
) -> SqliteCommand | None:
    """The command for what is selected by a query; None where nothing can match."""
    found = select_records(query, cursor, _WORDING)
    if found is None:
        return None
    is_open = query.status in (Status.RUNNING, Status.IN_DOUBT)
    terms = f"{found.text} AND {_OPEN}" if is_open else found.text
    rest = SQL[name].replace("{restrictions}", terms).replace("{order}", found.order)
    text = _from_narrow_index(rest) if query.is_narrow else rest.replace("r.digest BETWEEN", "+r.digest BETWEEN")
    return SqliteCommand(
        text.replace("{found}", SQL[f"found_{found.row}"]), kind=Kind.SCAN, named={**found.values, **further}
    )


def _from_narrow_index(text: str) -> str:
    """Without statistics SQLite would rather walk all records by time than sort the few that a narrow index gives.

    The sign makes an expression of the column, and so keeps it from the index by time.
    """
    columns, found, rest = text.partition("{found}")
    return f"{columns}{found}{rest.replace('r.created_us', '+r.created_us')}"


_WRITES: Final = {
    "renew": ("lease_us",),
    "fail": ("status", "retryable", "error_type", "error_message", "doubtful", "unstarted"),
    "checkpoint": ("position", "name", "outcome"),
}
"""The values of writes beside those of the lease, in the order in which the shared plan gives them."""
_COMPLETE: Final = SQL["complete"]
_SEEN: Final = SQL["seen"]
_LOOKED_AT: Final = SQL["look"]
_FOLLOW: Final = (SQL["count_step"],)
_FORGET: Final = (SQL["forget_steps"], SQL["drop_terms"])
_LETTER_DROPPED: Final = (SQL["complete_letter"],)
_LETTER_KEPT: Final = (SQL["keep_letter"], SQL["keep_as_long"])
_NOBODYS: Final = (b"", 0, "", None, None, None, None)


class SqliteDialect:
    """The statements of SQLite. Lists are sent one by one: there is no round trip to spare."""

    decides_inside = True

    def __init__(self) -> None:
        self.outbox = SqliteOutbox(_complete_with)
        self.batch = SqliteBatch()
        self.audit = SqliteAudit()

    def write(
        self, what: str, rows: Sequence[Values], *, transaction: str | None, letter: Letter | bytes | None = None
    ) -> SqliteCommand:
        """A write under a lease; one that changed nothing looks at the record in the same transaction."""
        del transaction  # it was demanded by its savepoint
        if what == "complete" and letter is not None:
            return _complete_with(rows[0], _LETTER_DROPPED, {"letter": letter})
        digest, nonce, fence, *rest = rows[0]
        named = {"digest": blob(digest), "nonce": blob(nonce), "fence": fence}
        if what == "complete":
            named["outcome"] = blob(rest[0])
            return SqliteCommand(_COMPLETE, named=named, otherwise=_LOOKED_AT, to_rows=_end_reply)
        named.update(zip(_WRITES[what], rest, strict=True))
        if what == "renew":
            return SqliteCommand(SQL["renew"], named=named, to_rows=_write_reply)
        if what == "fail":
            text = SQL["doubt" if named["status"] == Status.IN_DOUBT.value else what]
            if not isinstance(letter, Letter):
                return SqliteCommand(text, named=named, otherwise=_LOOKED_AT, to_rows=_end_reply)
            named.update(letter_values(letter))
            return SqliteCommand(text, named=named, follow=_LETTER_KEPT, otherwise=_LOOKED_AT, to_rows=_end_reply)
        return SqliteCommand(SQL[what], named=named, follow=_FOLLOW, otherwise=_LOOKED_AT, to_rows=_write_reply)

    def enter(self, lease: Values, *, turn: int) -> SqliteCommand:
        """The first touch of a step in the caller's transaction: one try tells."""
        del turn
        digest, nonce, fence = lease
        named = {"digest": blob(digest), "nonce": blob(nonce), "fence": fence}
        return SqliteCommand(SQL["enter"], kind=Kind.ENTER, named=named, otherwise=_LOOKED_AT, to_rows=_join_reply)

    def complete_short(self, row: Values, transaction: str) -> SqliteCommand | None:
        """There is no shorter word than `write`."""
        del row, transaction
        return None

    def set_savepoint(self, name: str) -> SqliteCommand:
        """Mark the caller's transaction, so that its end can be noticed."""
        return SqliteCommand(f'SAVEPOINT "{name}"', kind=Kind.SAVEPOINT, named={"mark": name})

    def assert_savepoint(self, name: str) -> SqliteCommand:
        """Demand the mark; it is gone if the transaction ended in between."""
        return SqliteCommand(f'RELEASE "{name}"', kind=Kind.RELEASE, named={"mark": name})

    def request_notification(self, digests: Sequence[bytes]) -> SqliteCommand | None:
        """SQLite has no notifications: waiters poll."""
        del digests
        return None

    def read(self, digests: Sequence[bytes], *, joined: bool) -> SqliteCommand:
        """Look records up."""
        if joined:
            named = {"digest": digests[0]}
            return SqliteCommand(SQL["seen_joined"], kind=Kind.READ, named=named, to_rows=_joined_record)
        if len(digests) == 1:
            return SqliteCommand(_SEEN, kind=Kind.READ, named={"digest": blob(digests[0])}, to_rows=_one_record)
        look = read_many_command(digests)
        return SqliteCommand(look.text, kind=Kind.READ, named=look.named, to_rows=partial(_in_order, digests))

    def steps(self, digest: bytes, life: int, *, joined: bool) -> SqliteCommand:
        """The finished steps of a record; those of an earlier life are gone."""
        del life
        text = SQL["steps_joined" if joined else "steps"]
        return SqliteCommand(text, kind=Kind.READ, named={"digest": digest}, to_rows=_decode_steps if joined else None)

    def scan(self, operation: Scan) -> SqliteCommand | None:
        """One page."""
        return select_command("scan", operation.query, operation.cursor, limit=operation.limit + 1)

    def count_records(self, operation: CountRecords) -> SqliteCommand | None:
        """How many there are."""
        return select_command("count_records", operation.query)

    def skip_records(self, operation: SkipRecords) -> SqliteCommand:
        """How far so many records reach. No index begins with an operation or a status."""
        found = select_skipped(operation.query, _WORDING)
        text = SQL[f"skip_{found.row}"].replace("{restrictions}", found.text).replace("{order}", found.order_by_time)
        return SqliteCommand(text, kind=Kind.SCAN, named={**found.values, "number": operation.number})

    def resolve(self, operation: Resolve) -> SqliteCommand:
        """A decision."""
        # Where it may run now, nobody but its letter may have the event.
        may_run = operation.status is Status.FAILED and operation.error is None
        closing = () if may_run else (SQL["close_letters"],)
        return SqliteCommand(SQL["resolve"], named=resolve_values(operation), follow=(*closing, SQL["seen"]))

    def reopen(self, operation: Reopen) -> SqliteCommand:
        """Let a key be claimed again."""
        return SqliteCommand(SQL["reopen"], named=reopen_values(operation), follow=(SQL["seen"],))

    def count_first(self, operation: CountFailure, *, fence: int) -> SqliteCommand:
        """The first failure of a key."""
        terms = {f"term{place}": number for place, number in enumerate(term_numbers(operation.about))}
        keeping = (SQL["keep_term"].replace(":term", f":{name}") for name in terms)
        named = {**count_values(operation, fence), **terms}
        follow = (*keeping, SQL["note_first_failure"])
        return _keeping_letter(SqliteCommand(SQL["count_first"], named=named, follow=follow), operation)

    def count_again(self, operation: CountFailure) -> SqliteCommand:
        """A further failure."""
        return _keeping_letter(SqliteCommand(SQL["count_again"], named=count_values(operation, 0)), operation)

    def forget_expired(self, digest: bytes) -> SqliteCommand:
        """Delete a record that is expired, its finished steps, and what it is searched by."""
        return SqliteCommand(SQL["forget_expired"], named={"digest": digest}, follow=_FORGET)

    def erase(self, operation: Erase) -> SqliteCommand:
        """Leave of a record what keeps its key shut."""
        named = {
            "digest": operation.digest,
            "note": storable(operation.note),
            "tombstone": ERASED_OUTCOME,
            "error_type": ERASED_FAILURE.type,
            "error_message": ERASED_FAILURE.message,
        }
        noted = (SQL["note_invalidation"],) if operation.invalidates else ()
        history = (SQL["erase_letters"], SQL["erase_history"], SQL["note_erasure"])
        return SqliteCommand(SQL["erase"], named=named, follow=(*_FORGET, *noted, *history, SQL["seen"]))

    def pending(self, operation: Pending) -> SqliteCommand:
        """Invalidations that are not confirmed."""
        return SqliteCommand(SQL["invalidations"], kind=Kind.SCAN, named={"limit": max(operation.limit, 0)})

    def confirm(self, operation: Confirm) -> SqliteCommand:
        """Every copy is gone: remove the note."""
        named = {"digest": operation.digest, "before_us": operation.before_us}
        return SqliteCommand(SQL["confirm"], named=named, to_rows=lambda _rows, _changed, now: [(now,)])

    def purge(self, operation: Purge) -> Sweep:
        """Delete what is expired, its finished steps, and what it is searched by."""
        gone = yield SqliteCommand(SQL["purge"], named={"limit": max(operation.limit, 0)})
        for digest, steps, has_about in gone:
            if steps:
                yield SqliteCommand(SQL["forget_steps"], named={"digest": digest})
            if has_about:
                yield SqliteCommand(SQL["drop_terms"], named={"digest": digest})
        return len(gone)

    def lapse(self, operation: MarkLapsed) -> Lapse:
        """Mark what has lapsed."""
        failure = {"error_type": LEASE_ENDED.type, "error_message": LEASE_ENDED.message}
        marked = yield SqliteCommand(SQL["lapse"], named={"limit": max(operation.limit, 0), **failure})
        return [(digest, operation.decode(), age_us) for digest, operation, age_us in marked]

    def history(self, digest: bytes, life: int) -> SqliteCommand:
        """What happened to a record."""
        return SqliteCommand(SQL["history"], kind=Kind.READ, named={"digest": digest, "life": life})

    def worker(self, process: bytes) -> SqliteCommand:
        """A process, by what its nonces begin with."""
        return SqliteCommand(SQL["worker"], kind=Kind.READ, named={"process": process})

    def register(self, worker: Worker) -> SqliteCommand:
        """Note a worker."""
        named = dict(zip(("process", "host", "pid", "version"), worker_row(worker), strict=True))
        return SqliteCommand(SQL["register"], named=named, to_rows=lambda _rows, _changed, now: [(now,)])

    def purge_workers(self, operation: PurgeWorkers) -> Sweep:
        """Forget workers that have given no sign for long."""
        named = {"keep_us": operation.keep_us}
        text = SQL["purge_workers"]
        ((gone,),) = yield SqliteCommand(text, named=named, to_rows=lambda _rows, changed, _now: [(changed,)])
        return int(gone)

    def tally(self, operations: Sequence[AddReplays]) -> SqliteCommand:
        """Add replays."""
        (operation,) = operations
        named = {"digest": operation.digest, "replays": operation.replays}
        return SqliteCommand(SQL["tally"], named=named, to_rows=lambda _rows, _changed, now: [(None, now)])

    def put_letter(self, letter: Letter) -> SqliteCommand:
        """Keep a letter."""
        return SqliteCommand(SQL["put_letter"], named=letter_values(letter))

    def touch_letter(self, operation: TouchLetter) -> SqliteCommand:
        """The event of a record was delivered again."""
        named = {"consumer": operation.consumer, "record": operation.record}
        return SqliteCommand(SQL["touch_letter"], named=named)

    def drop_letter(self, operation: DropLetter) -> SqliteCommand:
        """Delete a letter."""
        return SqliteCommand(SQL["drop_letter"], named={"consumer": operation.consumer, "id": operation.id})

    def scan_letters(self, operation: ScanLetters) -> SqliteCommand:
        """One page of letters."""
        found = select_letters(operation, _WORDING)
        named = {**found.values, "limit": operation.limit + 1}
        text = SQL["scan_letters"].replace("{restrictions}", found.text)
        return SqliteCommand(text, kind=Kind.SCAN, named=named)

    def purge_letters(self, operation: PurgeLetters) -> Sweep:
        """Delete letters that are expired."""
        named, text = {"limit": max(operation.limit, 0)}, SQL["purge_letters"]
        ((gone,),) = yield SqliteCommand(text, named=named, to_rows=lambda _rows, changed, _now: [(changed,)])
        return int(gone)


def _keeping_letter(command: SqliteCommand, operation: CountFailure) -> SqliteCommand:
    """What counts a failure, with the letter that it leaves if it is final, and the record as it is then."""
    if operation.letter is None:
        return replace(command, follow=(*command.follow, _SEEN))
    named = {**command.named, **letter_values(operation.letter)}
    return replace(command, named=named, follow=(*command.follow, *_LETTER_KEPT, _SEEN))


def _complete_with(row: Values, follow: tuple[str, ...] = (), values: dict[str, Any] | None = None) -> SqliteCommand:
    """A completion, and what follows it in the same transaction."""
    digest, nonce, fence, outcome = row
    named = {"digest": blob(digest), "nonce": blob(nonce), "fence": fence, "outcome": blob(outcome)}
    if values:
        named.update(values)
    return SqliteCommand(_COMPLETE, named=named, follow=follow, otherwise=_LOOKED_AT, to_rows=_end_reply)


def _write_reply(rows: list[Row], changed: int, now: int) -> list[Row]:
    """What a write did; where it changed nothing, the record that it met."""
    if changed > 0:
        return [(None, True, now)]
    if not rows:
        return [(None, False, now, *_NOBODYS)]
    held, nonce, fence, status, completed_us, updated_us, error_type, error_message = rows[0]
    # Still held, and yet nothing was changed: the same step again.
    words = (_decode(status), completed_us, updated_us, _decode(error_type), _decode(error_message))
    return [(None, held, now, nonce, fence, *words)]


def _end_reply(rows: list[Row], changed: int, now: int) -> list[Row]:
    """What a completion or a failure did. Still held, and yet nothing was changed: it is not recorded."""
    if changed > 0:
        return [(None, True, now)]
    (line,) = _write_reply(rows, changed, now)
    return [(None, False, now, *_NOBODYS)] if line[1] else [line]


def _join_reply(rows: list[Row], changed: int, now: int) -> list[Row]:
    """Still held, and yet nothing was changed: all but the install_id was right, so it is another database."""
    if changed <= 0 and rows and rows[0][0]:
        return []
    return [(*_write_reply(rows, changed, now)[0], None)]


def _in_order(digests: Sequence[bytes], rows: list[Row], _changed: int, now: int) -> list[Row]:
    by_digest = {row[0]: (*row, now) for row in rows}
    return [by_digest.get(digest, (None, now)) for digest in digests]


def _one_record(rows: list[Row], _changed: int, now: int) -> list[Row]:
    return [(*rows[0], now)] if rows else [(None, now)]


def _joined_record(rows: list[Row], _changed: int, now: int) -> list[Row]:
    return [(*decode_texts(rows[0]), now)] if rows else [(None, now)]


def _decode_steps(rows: list[Row], _changed: int, _now: int) -> list[Row]:
    return [(position, name.decode(), outcome) for position, name, outcome in rows]


def _decode(text: bytes | None) -> str | None:
    return None if text is None else text.decode()


DIALECT: Final = SqliteDialect()
