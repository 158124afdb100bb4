"""The statements of PostgreSQL for the shared plan, from `statements.sql`.

A list travels as arrays, one per column, so that one prepared text serves every length; a list of one travels as plain
values, which the server plans better and reads faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from semel.core.events.letters import DropLetter, Letter, ScanLetters, TouchLetter
from semel.core.events.outbox import OutboxEvent
from semel.core.operations import (
    AddReplays,
    Claim,
    Confirm,
    CountFailure,
    CountRecords,
    Erase,
    Pending,
    PurgeLetters,
    PurgeWorkers,
    Query,
    Reopen,
    Resolve,
    Scan,
    SkipRecords,
)
from semel.core.record import LEASE_ENDED, NOTHING, Status, StoredRecord, Worker
from semel.stores.letters import LETTER_COLUMNS, letter_values, select_letters
from semel.stores.postgresql.batch.dialect import PostgresBatch
from semel.stores.postgresql.json_rows import row_of
from semel.stores.postgresql.operators.dialect import PostgresAudit
from semel.stores.postgresql.outbox import PostgresOutbox, arrays_of
from semel.stores.rows import (
    RECORD_COLUMNS,
    USUAL_TERMS,
    claim_row,
    count_values,
    erase_row,
    load_rules,
    load_statements,
    reopen_values,
    resolve_values,
    usual_terms,
    worker_row,
)
from semel.stores.search import Wording, select_records, select_skipped, term_numbers
from semel.stores.sql.dialect import NOW, Asking, Command, Keeping, Known, Lapse, Row, ServerSweeps, Sweep, Values, Won
from semel.stores.sql.settings import Settings

# Literally the WHERE of the partial index, without which the planner cannot know that it holds all that is asked for.
_IN_DOUBT: Final = "r.doubt_us IS NOT NULL"
_KINDS: Final = {"text": "text", "number": "bigint", "digest": "bytea"}
_LEASE: Final = {"digest": "bytea", "nonce": "bytea", "fence": "bigint"}
_CLAIM: Final = {
    "digest": "bytea",
    "scope": "text",
    "operation": "text",
    "value": "text",
    "fingerprint": "bytea",
    "nonce": "bytea",
    "lease_us": "bigint",
    "keep_us": "bigint",
    "in_doubt_policy": "text",
    "reconcile_after_us": "bigint",
    "lock": "bigint",
    "subject": "text",
    "business_key": "text",
    "process_instance": "text",
    "requester": "text",
    "tags": "text",
}
_COUNT: Final = {
    "digest": "bytea",
    "scope": "text",
    "operation": "text",
    "value": "text",
    "fingerprint": "bytea",
    "nonce": "bytea",
    "keep_us": "bigint",
    "in_doubt_policy": "text",
    "reconcile_after_us": "bigint",
    "error_type": "text",
    "error_message": "text",
    "most": "bigint",
    "fence": "bigint",
    "subject": "text",
    "business_key": "text",
    "process_instance": "text",
    "requester": "text",
    "tags": "text",
    "lock": "bigint",
}
_COMPLETE: Final = {**_LEASE, "outcome": "bytea"}
_FAIL: Final = {
    **_LEASE,
    "status": "text",
    "retryable": "boolean",
    "error_type": "text",
    "error_message": "text",
    "doubtful": "boolean",
    "unstarted": "integer",
}
_LETTER: Final = {
    "letter_id": "bytea",
    "letter_consumer": "text",
    "letter_scope": "text",
    "letter_record": "bytea",
    "letter_reason": "text",
    "letter_type": "text",
    "letter_subject": "text",
    "letter_content": "bytea",
    "letter_readable": "boolean",
    "letter_attempts": "integer",
    "letter_error_type": "text",
    "letter_error_message": "text",
    "letter_keep_us": "bigint",
}
_INPUTS: Final[dict[str, dict[str, str]]] = {
    "claim": _CLAIM,
    "claim_first": _CLAIM,
    "claim_here": _CLAIM,
    "renew": {**_LEASE, "lease_us": "bigint"},
    "complete": _COMPLETE,
    "complete_letter": {**_COMPLETE, "letter": "bytea"},
    "fail": _FAIL,
    "fail_letter": {**_FAIL, **_LETTER},
    "checkpoint": {**_LEASE, "position": "integer", "name": "text", "outcome": "bytea"},
    "enter": {**_LEASE, "lock": "bigint"},
    "read": {"digest": "bytea"},
    "resolve": {
        "digest": "bytea",
        "nonce": "bytea",
        "status": "text",
        "outcome": "bytea",
        "note": "text",
        "corrects": "bytea",
        "error_type": "text",
        "error_message": "text",
        "forced": "boolean",
        "fence": "bigint",
    },
    "reopen": {
        "digest": "bytea",
        "nonce": "bytea",
        "seen": "bytea",
        "note": "text",
        "error_type": "text",
        "error_message": "text",
    },
    "count_first": _COUNT,
    "count_again": _COUNT,
    "count_first_letter": {**_COUNT, **_LETTER},
    "count_again_letter": {**_COUNT, **_LETTER},
    "erase": {
        "digest": "bytea",
        "note": "text",
        "invalidates": "boolean",
        "tombstone": "bytea",
        "error_type": "text",
        "error_message": "text",
    },
    "confirm": {"digest": "bytea", "before_us": "bigint"},
    "purge": {"most": "bigint", "keep": "bigint"},
    "lapse": {"digests": "bytea[]", "error_type": "text", "error_message": "text"},
    "tally": {"digest": "bytea", "replays": "integer"},
    "register": {"process": "bytea", "host": "text", "pid": "bigint", "version": "text"},
    "purge_workers": {"keep_us": "bigint"},
    "put_letter": _LETTER,
    "touch_letter": {"consumer": "text", "record": "bytea"},
    "purge_letters": {"most": "bigint"},
}
_LATER: Final = (
    *("input", "in_order", "e_in_order", "transaction", "found", "restrictions", "order"),
    *("kept_terms", "dropped_terms", "terms", "unless_said", "sign", "riding"),
)
_HELD: Final = (None,) * (len(RECORD_COLUMNS) - 1)
_TERMS_OF_ONE: Final = "SELECT e.digest, t.term FROM e CROSS JOIN unnest(?::bigint[]) AS t(term)"
_TERMS_OF_MANY: Final = "SELECT t.digest, t.term FROM unnest(?::bytea[], ?::bigint[]) AS t(digest, term)"
_CLOCK: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_SAME_DATABASE: Final = "EXISTS (SELECT 1 FROM {meta} AS m WHERE m.name = 'install_id' AND m.value = ?::bytea)"
_SAME_TRANSACTION: Final = "pg_current_xact_id()::text = ?"


def _many(columns: dict[str, str], clock: str) -> str:
    arrays = ", ".join(f"?::{kind}[]" for kind in columns.values())
    return f"SELECT i.*, {clock} AS now FROM unnest({arrays}) AS i({', '.join(columns)})"  # noqa: S608 - names of ours


def _one(columns: dict[str, str], clock: str, condition: str = "") -> str:
    plain = ", ".join(f"?::{kind} AS {name}" for name, kind in columns.items())
    return f"SELECT {plain}, {clock} AS now" + (f" WHERE {condition}" if condition else "")


# Claims of one operation travel in three arrays: a client library looks at each element of an array by itself, and
# sixteen arrays cost it more than all the rest of a claim. What is equal for all goes out once.
_ALIKE: Final = """
SELECT substr(u.packed, 1, 32) AS digest, u.scope, ?::text AS operation, u.value, substr(u.packed, 49) AS fingerprint,
    substr(u.packed, 33, 16) AS nonce, ?::bigint AS lease_us, ?::bigint AS keep_us, ?::text AS in_doubt_policy,
    ?::bigint AS reconcile_after_us, ('x' || encode(substr(u.packed, 1, 8), 'hex'))::bit(64)::bigint AS lock,
    NULL::text AS subject, NULL::text AS business_key, NULL::text AS process_instance, NULL::text AS requester,
    NULL::text AS tags, {clock} AS now
FROM unnest(?::bytea[], ?::text[], ?::text[]) AS u(packed, scope, value)"""


def _are_alike(claims: Sequence[Claim]) -> bool:
    first = claims[0]
    operation, terms = first.key.operation, first.terms
    return all(
        claim.key.operation == operation and claim.about is NOTHING and (claim.terms is terms or claim.terms == terms)
        for claim in claims
    )


def _column(name: str, row: str = "") -> str:
    """A column of a record. What follows from the others is not stored: it would cost bytes in every row."""
    match name:
        case "in_doubt_policy" | "reconcile_after_us":
            return f"{usual_terms(row)[name]} AS {name}"
        case "completed_us":  # nothing changes a settled record but a new claim
            return f"CASE WHEN {row}status NOT IN ('running', 'in_doubt') THEN {row}updated_us END AS completed_us"
        case "started_us":
            return f"coalesce({row}started_us, {row}created_us) AS started_us"
        case "replays":
            return f"coalesce({row}replays, 0) AS replays"
        case "steps":
            return f"coalesce({row}steps, 0) AS steps"
    return f"{row}{name}"


def clock_text(settings: Settings) -> str:
    """The clock that decides: the server's, or a virtual one in tests."""
    return _CLOCK if settings.clock is None else f"({NOW})::bigint"


def table_names(settings: Settings) -> dict[str, str]:
    """The names of the tables, quoted, as parts of statements."""
    within = f'"{settings.schema}".' if settings.schema else ""
    prefix = settings.prefix
    return {
        "prefix": prefix,
        "record_table": f'{within}"{prefix}record"',
        "step_table": f'{within}"{prefix}step"',
        "invalidation_table": f'{within}"{prefix}invalidation"',
        "search_table": f'{within}"{prefix}search"',
        "history_table": f'{within}"{prefix}history"',
        "history_function": f'{within}"{prefix}write_history"',
        "worker_table": f'{within}"{prefix}worker"',
        "letter_table": f'{within}"{prefix}letter"',
        "outbox_table": f'{within}"{prefix}outbox"',
        "outbox_sequence": f'{within}"{prefix}outbox_position"',
        "cursor_table": f'{within}"{prefix}cursor"',
        "parked_table": f'{within}"{prefix}parked"',
        "batch_table": f'{within}"{prefix}batch"',
        "item_table": f'{within}"{prefix}item"',
        "page_table": f'{within}"{prefix}page"',
        "audit_table": f'{within}"{prefix}audit"',
        "audit_head_table": f'{within}"{prefix}audit_head"',
        "audit_seal_table": f'{within}"{prefix}audit_seal"',
        "audit_function": f'{within}"{prefix}guard_audit"',
        "token_table": f'{within}"{prefix}token"',
        "rebase_function": f'{within}"{prefix}rebase_outbox"',
        "meta": f'{within}"{prefix}meta"',
        "schema_table": f'{within}"{prefix}schema"',
    }


def channel(settings: Settings) -> str:
    """On which channel ends are told."""
    return f"{settings.schema or 'public'}.{settings.prefix}ended"


class PostgresDialect(ServerSweeps):
    """The statements for one place."""

    decides_inside = False

    def __init__(self, settings: Settings) -> None:
        self._clock = clock_text(settings)
        self._names = table_names(settings)
        self._sql = self._loaded(settings)
        self._texts: dict[tuple[str, str, bool], str] = {}
        self._wording = Wording(lambda _, kind: f"?::{_KINDS[kind]}", self._clock, "strpos")
        self.outbox = CompletingOutbox(self._names, self._clock, self)
        self.batch = PostgresBatch(self._names, self._clock, settings)
        self.audit = PostgresAudit(self._names, self._clock)

    def _loaded(self, settings: Settings) -> dict[str, str]:
        kept = {name: f"{{{name}}}" for name in _LATER}
        rules = load_rules("r")
        return load_statements(
            "semel.stores.postgresql",
            "statements.sql",
            {
                **self._names,
                **rules,
                **kept,
                "clock": self._clock,
                "channel": f"'{channel(settings)}'",
                "record": ", ".join(_column(name) for name in RECORD_COLUMNS),
                "r_record": ", ".join(_column(name, "r.") for name in RECORD_COLUMNS),
                "won_record": ", ".join(f"r.{name}" for name in RECORD_COLUMNS),
                "usual_policy": USUAL_TERMS["in_doubt_policy"],
                "usual_quiet": USUAL_TERMS["reconcile_after_us"],
                "letter": ", ".join(f"l.{name}" for name in LETTER_COLUMNS),
                "held_record": "w.digest, " + ", ".join("NULL" for _ in RECORD_COLUMNS[1:]),
            },
        )

    def text(self, name: str, form: str, *, about: bool = False, riding: str = "") -> str:
        """The text of a statement: for a list, for one, or for one in the caller's transaction.

        `about`: a claim that says what its record is searched by. `riding`: what else a completion does.
        """
        text = self._texts.get((name + riding, form, about))
        if text is None:
            transaction = "pg_current_xact_id()::text" if form == "here" else "NULL"
            text = self._sql[name].replace("{input}", self._input(name, form)).replace("{transaction}", transaction)
            is_list = form in ("alike", "many")
            text = text.replace("{in_order}", "ORDER BY w.digest" if is_list else "")
            text = text.replace("{e_in_order}", "(SELECT * FROM e ORDER BY digest)" if is_list else "e")
            terms = _TERMS_OF_MANY if form == "many" else _TERMS_OF_ONE
            keep = "keep_terms_here" if name == "claim_here" else "keep_terms"
            text = self._with_terms(text, terms, keep, about=about)
            text = text.replace("{riding}", riding)
            self._texts[name + riding, form, about] = text
        return text

    def _input(self, name: str, form: str) -> str:
        """The table of what is asked for."""
        columns = _INPUTS[name]
        if form == "alike":
            return _ALIKE.format(clock=self._clock)
        if form == "many":
            return _many(columns, self._clock)
        conditions = {"one": "", "here": _SAME_DATABASE.format(**self._names), "same": _SAME_TRANSACTION}
        return _one(columns, self._clock, conditions[form])

    def _with_terms(self, text: str, terms: str, keep: str, *, about: bool) -> str:
        """A claim that keeps what its record is searched by, and no longer what another one said before."""
        sql = self._sql
        kept = sql[keep].replace("{terms}", terms) if about else ""
        dropped = sql["drop_terms"].replace("{unless_said}", sql["unless_said"] if about else "")
        return text.replace("{kept_terms}", kept).replace("{dropped_terms}", dropped)

    def _asked(self, name: str, rows: Sequence[Values]) -> Command:
        if len(rows) == 1:
            return Command(self.text(name, "one"), tuple(rows[0]))
        return Command(self.text(name, "many"), tuple(list(column) for column in zip(*rows, strict=True)))

    def claim(self, claims: Sequence[Claim], *, joined: bool, turn: int) -> Command:
        """Claims on the store's own connection, or one in the caller's transaction, after `claim_short`."""
        if joined:
            return self._claim_here("claim", claims[0])
        name = "claim" if turn else "claim_first"
        about = any(claim.about is not NOTHING for claim in claims)
        if about:
            return self._claim_about(name, claims)
        if len(claims) > 1 and _are_alike(claims):
            return self._alike(name, claims)
        return self._asked(name, [_claim_row(claim, lease_us=claim.terms.lease_us) for claim in claims])

    def _claim_here(self, name: str, claim: Claim) -> Command:
        about = claim.about is not NOTHING
        values = _claim_row(claim, lease_us=0)  # inside a transaction there is no lease
        terms = (term_numbers(claim.about),) if about else ()
        return Command(self.text(name, "here", about=about), (*values, Known.INSTALL, *terms))

    def claim_short(self, claim: Claim) -> Asking[Won | Row | None]:
        """The first word of a claim in the caller's transaction."""
        rows = yield self._claim_here("claim_here", claim)
        if not rows:
            return None
        now, found, is_free, status, transaction = rows[0]
        if status == "running":
            return Won(now, transaction)
        if found is not None:
            return (*row_of(found), now, None)
        return None if is_free else (claim.key.digest, *_HELD, now, None)

    def _claim_about(self, name: str, claims: Sequence[Claim]) -> Command:
        rows = [_claim_row(claim, lease_us=claim.terms.lease_us) for claim in claims]
        if len(rows) == 1:
            return Command(self.text(name, "one", about=True), (*rows[0], term_numbers(claims[0].about)))
        terms = [(claim.key.digest, number) for claim in claims for number in term_numbers(claim.about)]
        columns = [list(column) for column in zip(*rows, strict=True)]
        numbers = [digest for digest, _ in terms], [number for _, number in terms]
        return Command(self.text(name, "many", about=True), (*columns, *numbers))

    def keep_terms(self, claim: Claim, record: StoredRecord) -> Keeping:
        """Nothing: the claim itself keeps them."""
        del claim, record
        return
        yield

    def _alike(self, name: str, claims: Sequence[Claim]) -> Command:
        operation, terms = claims[0].key.operation, claims[0].terms
        equal = (operation, terms.lease_us, terms.keep_us, terms.in_doubt, terms.reconcile_after_us)
        packed = [claim.key.digest + claim.nonce + claim.fingerprint for claim in claims]
        arrays = (packed, [claim.key.scope for claim in claims], [claim.key.value for claim in claims])
        return Command(self.text(name, "alike"), (*equal, *arrays))

    def note_taken_over(self, digest: bytes) -> Command | None:
        """Not needed: a trigger has entered it."""
        del digest
        return None

    def write(
        self, what: str, rows: Sequence[Values], *, transaction: str | None, letter: Letter | bytes | None = None
    ) -> Command:
        """A write under a lease."""
        if letter is not None:
            told = tuple(letter_values(letter).values()) if isinstance(letter, Letter) else (letter,)
            what, rows = f"{what}_letter", [(*rows[0], *told)]
        if transaction is not None:
            return Command(self.text(what, "same"), (*rows[0], transaction))
        return self._asked(what, rows)

    def enter(self, lease: Values, *, turn: int) -> Command:
        """The first touch of a step in the caller's transaction: one try tells."""
        del turn
        return Command(self.text("enter", "here"), (*lease, _lock(lease[0]), Known.INSTALL))

    def complete_short(self, row: Values, transaction: str) -> Command:
        """A completion in the caller's transaction, in short."""
        return Command(self._sql["complete_here"], (*row, transaction))

    def set_savepoint(self, name: str) -> Command | None:
        """Not needed: PostgreSQL's transactions have names."""
        del name
        return None

    def assert_savepoint(self, name: str) -> Command | None:
        """Not needed: every write demands the transaction by its name."""
        del name
        return None

    def request_notification(self, digests: Sequence[bytes]) -> Command | None:
        """Request a notification at the end of these runs."""
        return Command(self._sql["want"], (list(digests),)) if digests else None

    def read(self, digests: Sequence[bytes], *, joined: bool) -> Command:
        """Look records up."""
        del joined
        return self._asked("read", [(digest,) for digest in digests])

    def steps(self, digest: bytes, life: int, *, joined: bool) -> Command:
        """The finished steps of a record."""
        del joined
        return Command(self._sql["steps"], (digest, life))

    def scan(self, operation: Scan) -> Command | None:
        """One page."""
        return self._select("scan", operation.query, operation.cursor, operation.limit + 1)

    def count_records(self, operation: CountRecords) -> Command | None:
        """How many there are."""
        return self._select("count_records", operation.query, None)

    def skip_records(self, operation: SkipRecords) -> Command:
        """How far so many records reach."""
        found = select_skipped(operation.query, self._wording, ("status", "operation"))
        text = self._sql[f"skip_{found.row}"].replace("{restrictions}", found.text)
        return Command(text.replace("{order}", found.order_by_time), (*found.values.values(), operation.number))

    def _select(self, name: str, query: Query, cursor: tuple[int, bytes] | None, *further: int) -> Command | None:
        found = select_records(query, cursor, self._wording)
        if found is None:
            return None
        if query.status is Status.IN_DOUBT:
            found.terms.append(_IN_DOUBT)
        text = self._sql[name].replace("{found}", self._sql[f"found_{found.row}"])
        text = text.replace("{restrictions}", found.text).replace("{order}", found.order)
        return Command(text, (*found.values.values(), *further))

    def resolve(self, operation: Resolve) -> Command:
        """A decision."""
        return Command(self.text("resolve", "one"), tuple(resolve_values(operation).values()))

    def reopen(self, operation: Reopen) -> Command:
        """Let a key be claimed again."""
        return Command(self.text("reopen", "one"), tuple(reopen_values(operation).values()))

    def count_first(self, operation: CountFailure, *, fence: int) -> Command:
        """The first failure of a key."""
        return self._count("count_first", operation, fence)

    def count_again(self, operation: CountFailure) -> Command:
        """A further failure."""
        return self._count("count_again", operation, fence=0)

    def _count(self, name: str, operation: CountFailure, fence: int) -> Command:
        values = (*count_values(operation, fence).values(), _lock(operation.key.digest))
        terms = (term_numbers(operation.about),) if name == "count_first" else ()
        if operation.letter is None or (name == "count_first" and operation.max_attempts != 1):
            return Command(self.text(name, "one"), (*values, *terms))
        told = letter_values(operation.letter).values()
        return Command(self.text(f"{name}_letter", "one"), (*values, *told, *terms))

    def forget_expired(self, digest: bytes) -> Command:
        """Delete a record that is expired."""
        return Command(self._sql["forget_expired"], (digest, _lock(digest)))

    def erase(self, operation: Erase) -> Command:
        """Leave of a record what keeps its key shut."""
        return Command(self.text("erase", "one"), erase_row(operation))

    def pending(self, operation: Pending) -> Command:
        """Invalidations that are not confirmed."""
        return Command(self._sql["pending"], (max(operation.limit, 0),))

    def confirm(self, operation: Confirm) -> Command:
        """Every copy is gone: remove the note."""
        return Command(self.text("confirm", "one"), (operation.digest, operation.before_us))

    def next_keep(self, keep_us: int) -> Command:
        """The next value of keep_us."""
        return Command(self._sql["next_keep"], (keep_us,))

    def count_in_doubt(self, limit: int) -> Command:
        """How many are in doubt."""
        return Command(self._sql["count_in_doubt"], (limit,))

    def count_expired(self, keep_us: int, limit: int, *, equal: bool) -> Command:
        """How many are expired."""
        return Command(self._sql["count_expired"].replace("{sign}", "=" if equal else ">"), (keep_us, limit))

    def count_lapsed(self, keep_us: int, newest: int, *, equal: bool) -> Command:
        """How many of the newest run without a lease."""
        return Command(self._sql["count_lapsed"].replace("{sign}", "=" if equal else ">"), (keep_us, newest))

    def purge_kept(self, keep_us: int, limit: int, *, equal: bool) -> Sweep:
        """Delete what is expired."""
        text = self.text("purge", "one").replace("{sign}", "=" if equal else ">")
        rows = yield Command(text, (limit, keep_us))
        return cast("int", rows[0][0])

    def sweep_state(self) -> Command:
        """What the last sweep noted."""
        return Command(self._sql["sweep_state"])

    def save_sweep_state(self, state: bytes, seen: bytes | None) -> Command:
        """Note it for the next sweep."""
        return Command(self._sql["save_sweep_state"], (state, seen))

    def running_kept(self, keep_us: int, since_us: int, limit: int, *, equal: bool) -> Command:
        """What was claimed since an instant and still runs."""
        if equal:
            return Command(self._sql["running_keep"], (keep_us, since_us + keep_us, limit))
        return Command(self._sql["running_rest"], (keep_us, since_us, limit))

    def running_among(self, digests: Sequence[bytes]) -> Command:
        """Which of these still run."""
        return Command(self._sql["running_among"], (list(digests),))

    def mark_lapsed(self, digests: Sequence[bytes]) -> Lapse:
        """Mark those of them whose lease is over."""
        values = (list(digests), LEASE_ENDED.type, LEASE_ENDED.message)
        return [row[:3] for row in (yield Command(self.text("lapse", "one"), values))]

    def history(self, digest: bytes, life: int) -> Command:
        """What happened to a record."""
        return Command(self._sql["history"], (digest, life))

    def worker(self, process: bytes) -> Command:
        """A process, by what its nonces begin with."""
        return Command(self._sql["worker"], (process,))

    def register(self, worker: Worker) -> Command:
        """Note a worker."""
        return Command(self.text("register", "one"), worker_row(worker))

    def purge_workers(self, operation: PurgeWorkers) -> Sweep:
        """Forget workers that have given no sign for long."""
        rows = yield Command(self.text("purge_workers", "one"), (operation.keep_us,))
        return cast("int", rows[0][0])

    def tally(self, operations: Sequence[AddReplays]) -> Command:
        """Add replays."""
        return self._asked("tally", [(operation.digest, operation.replays) for operation in operations])

    def put_letter(self, letter: Letter) -> Command:
        """Keep a letter."""
        return Command(self.text("put_letter", "one"), tuple(letter_values(letter).values()))

    def touch_letter(self, operation: TouchLetter) -> Command:
        """The event of a record was delivered again."""
        return Command(self.text("touch_letter", "one"), (operation.consumer, operation.record))

    def drop_letter(self, operation: DropLetter) -> Command:
        """Delete a letter."""
        return Command(self._sql["drop_letter"], (operation.id, operation.consumer))

    def scan_letters(self, operation: ScanLetters) -> Command:
        """One page of letters."""
        found = select_letters(operation, self._wording)
        text = self._sql["scan_letters"].replace("{restrictions}", found.text)
        return Command(text, (*found.values.values(), operation.limit + 1))

    def purge_letters(self, operation: PurgeLetters) -> Sweep:
        """Delete letters that are expired."""
        rows = yield Command(self.text("purge_letters", "one"), (operation.limit,))
        return cast("int", rows[0][0])

    def ready(self) -> Command:
        """What a new connection is asked first."""
        return Command(self._sql["ready"])


class CompletingOutbox(PostgresOutbox):
    """The outbox, with completions that events ride on."""

    def __init__(self, names: dict[str, str], clock: str, dialect: PostgresDialect) -> None:
        super().__init__(names, clock, _SAME_DATABASE.format(**names))
        self._dialect = dialect

    def complete(self, row: Values, transaction: str | None, events: Sequence[OutboxEvent]) -> Asking[list[Row]]:
        """One statement, which adds them only where it completes the record."""
        arrays = arrays_of(events)
        if transaction is None:
            return (yield Command(self._dialect.text("complete", "one", riding=self.riding), (*row, *arrays)))
        short = self._dialect.complete_short(row, transaction)
        text = f"WITH d AS ({short.text}){self.riding_here} SELECT * FROM d"  # noqa: S608 - texts of ours
        finished = yield Command(text, (*short.values, *arrays))
        if finished:
            return [(row[0], True, finished[0][0])]
        return (yield Command(self._dialect.text("complete", "same", riding=self.riding), (*row, transaction, *arrays)))


def _claim_row(claim: Claim, *, lease_us: int) -> Values:
    *asked, subject, business_key, process_instance, requester, tags = claim_row(claim, lease_us=lease_us)
    return (*asked, _lock(claim.key.digest), subject, business_key, process_instance, requester, tags)


def _lock(digest: bytes) -> int:
    """The number of the advisory lock of a key."""
    return int.from_bytes(digest[:8], "big", signed=True)
