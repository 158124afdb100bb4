"""The statements of MySQL and MariaDB for the shared plan, from `statements.sql`.

- A list travels as the rows of one derived table, always in the order of digests.
- The result of a write is read back from the rows; where others could change them in between, both are one transaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

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
from semel.core.record import LEASE_ENDED, MOST_ENTRIES, Status, StoredRecord, Worker
from semel.stores.letters import LETTER_COLUMNS, letter_values, select_letters
from semel.stores.mysql.batch.dialect import MysqlBatch
from semel.stores.mysql.operators.dialect import MysqlAudit
from semel.stores.mysql.outbox import MysqlOutbox
from semel.stores.mysql.settings import lock_timeout_seconds
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
    stored_failure,
    usual_terms,
    worker_row,
)
from semel.stores.search import Wording, select_records, select_skipped, term_numbers
from semel.stores.sql import context
from semel.stores.sql.dialect import NOW, Asking, Command, Keeping, Known, Lapse, Row, ServerSweeps, Sweep, Values, Won
from semel.stores.sql.settings import Settings

_LEASE: Final = ("digest", "nonce", "fence")
_CLAIM: Final = (
    *("digest", "scope", "operation", "value", "fingerprint", "nonce", "lease_us", "keep_us"),
    *("in_doubt_policy", "reconcile_after_us"),
    *("subject", "business_key", "process_instance", "requester", "tags"),
)
_FAIL: Final = (*_LEASE, "status", "retryable", "error_type", "error_message", "doubtful", "unstarted")
_LETTER: Final = tuple(f"letter_{name}" for name in LETTER_COLUMNS[: LETTER_COLUMNS.index("first_us")])
_INPUTS: Final[dict[str, tuple[str, ...]]] = {
    "claim": _CLAIM,
    "claim_first": _CLAIM,
    "renew": (*_LEASE, "lease_us"),
    "renewed": (*_LEASE, "lease_us"),
    "complete": (*_LEASE, "outcome"),
    "fail": _FAIL,
    "checkpoint": (*_LEASE, "position", "name", "outcome", "identity", "place"),
    "checkpointed": _LEASE,
    "read": ("digest", "place"),
    "resolve": (
        *("digest", "nonce", "status", "outcome", "note", "corrects"),
        *("error_type", "error_message", "forced", "fence"),
    ),
    "note_failures": _FAIL,
    "note_undecided": (
        *("digest", "nonce", "status", "outcome", "note", "corrects"),
        *("error_type", "error_message", "forced", "fence"),
    ),
    "note_reopening": ("digest", "nonce", "seen", "note", "error_type", "error_message"),
    "reopen": ("digest", "nonce", "seen", "note", "error_type", "error_message"),
    "count_first": (
        *("digest", "scope", "operation", "value", "fingerprint", "nonce", "keep_us"),
        *("in_doubt_policy", "reconcile_after_us", "error_type", "error_message", "most", "fence"),
        *("subject", "business_key", "process_instance", "requester", "tags"),
    ),
    "keep_terms": ("digest", "nonce", "term", "status"),
    "keep_letter": ("digest", "nonce", "error_type", "error_message", *_LETTER),
    "put_letter": _LETTER,
    "tally": ("digest", "replays"),
    "tallied": ("digest", "place"),
}
# The start of the statement, in UTC whatever the time zone of the session is.
_CLOCK: Final = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
_LATER: Final = (
    *("input", "unless", "digests", "lock", "share", "restrictions", "held"),
    *("found", "order", "index", "terms", "nonces", "rows", "sign"),
)
_GATES: Final = 4  # that a key needs at a time
_STRIPE: Final = 2  # bytes of a digest that name a gate
_TURNS: Final = 4  # so that every byte of a digest takes part
_SHARED: Final = "LOCK IN SHARE MODE"


def table_names(settings: Settings) -> dict[str, str]:
    """The names of the tables, quoted, as parts of statements."""
    within = f"`{settings.schema}`." if settings.schema else ""
    prefix = settings.prefix
    tables = {
        **{
            f"{name}_table": name
            for name in (
                *("record", "step", "invalidation", "search", "history", "worker", "letter", "schema"),
                *("outbox", "cursor", "parked", "batch", "item", "page"),
                *("audit", "audit_head", "audit_seal", "token"),
            )
        },
        "meta": "meta",
        "gate": "gate",
    }
    return {"prefix": prefix, **{name: f"{within}`{prefix}{table}`" for name, table in tables.items()}}


def _column(name: str) -> str:
    """A column of the record `r`, as it is read."""
    return f"{usual_terms('r.')[name]} AS {name}" if name in USUAL_TERMS else f"r.{name}"


def clock_text(settings: Settings) -> str:
    """The store's clock in microseconds, as part of a statement."""
    return _CLOCK if settings.clock is None else f"CAST({NOW} AS SIGNED)"


class MysqlDialect(ServerSweeps):
    """The statements for one place."""

    decides_inside = False

    def __init__(self, settings: Settings) -> None:
        self._clock = clock_text(settings)
        self._names = table_names(settings)
        self._lock_timeout = lock_timeout_seconds(settings)
        self._sql = self._loaded()
        self._wording = Wording(lambda _name, _kind: "?", self._clock, "INSTR")
        self.outbox = CompletingOutbox(self._names, self._clock, self)
        self.batch = MysqlBatch(self._names, self._clock)
        self.audit = MysqlAudit(self._names, self._clock)

    def _loaded(self) -> dict[str, str]:
        target = self._names["record_table"]
        rules = {name: load_rules(row) for name, row in (("", "r"), ("t_", target))}
        return load_statements(
            "semel.stores.mysql",
            "statements.sql",
            {
                **self._names,
                **{f"{name}{part}": text for name, parts in rules.items() for part, text in parts.items()},
                **{name: f"{{{name}}}" for name in _LATER},
                "t": target,
                "clock": self._clock,
                "lock_timeout": str(self._lock_timeout),
                "usual_policy": USUAL_TERMS["in_doubt_policy"],
                "usual_quiet": USUAL_TERMS["reconcile_after_us"],
                "r_record": ", ".join(map(_column, RECORD_COLUMNS)),
                "m_record": "m.digest, " + ", ".join(map(_column, RECORD_COLUMNS[1:])),
                "letter": ", ".join(f"l.{column}" for column in LETTER_COLUMNS),
            },
        )

    def _row(self, names: Sequence[str]) -> str:
        return f"SELECT {', '.join(f'? AS {name}' for name in names)}, {self._clock} AS now"

    def _list(self, name: str, rows: Sequence[Values], then: Command | None = None, **parts: str) -> Command:
        columns = _INPUTS[name]
        further = f" UNION ALL SELECT {'?, ' * len(columns)}{self._clock}"
        text = _filled(self._sql[name], input=self._row(columns) + further * (len(rows) - 1), **parts)
        return Command(text, tuple(value for row in rows for value in row), then)

    def _claim_here(self, claim: Claim, turn: int) -> Command:
        """A claim in the caller's transaction, through the gates of this turn."""
        row = claim_row(claim, lease_us=0)  # inside a transaction there is no lease
        digest = row[0]
        gates = gates_of(digest, turn)
        input_ = f"{self._row(_CLAIM)} {self._sql['through_gates' if gates else 'through_no_gate']}"
        text = f"{self._sql['within_lock_timeout']} {_filled(self._sql['claim'], input=input_, unless='')}"
        back = Command(self._held("claimed_here", gates), (digest, Known.INSTALL, *gates, digest))
        around = (self._sql["limit_lock_wait"], self._sql["restore_lock_wait"])
        return Command(text, (*row, *gates, Known.INSTALL), back, around=around)

    def _held(self, name: str, gates: Sequence[int]) -> str:
        return _filled(self._sql[name], held=self._sql["held_by_gates" if gates else "held_by_no_gate"])

    def _among(self, name: str, digests: Sequence[bytes], then: Command | None = None, **parts: str) -> Command:
        marks_ = ", ".join("?" * len(digests))
        return Command(_filled(self._sql[name], digests=marks_, **parts), tuple(digests), then)

    def claim(self, claims: Sequence[Claim], *, joined: bool, turn: int) -> Command:
        """Claims on the store's own connection, or one in the caller's transaction."""
        if joined:
            return self._claim_here(claims[0], turn)
        rows = sorted(claim_row(claim, lease_us=claim.terms.lease_us) for claim in claims)
        name, unless = ("claim", "unless") if turn else ("claim_first", "unless_there")
        digests = [row[0] for row in rows]
        back = self._among("claimed", digests)
        keeping = self._keeping(claims, back)
        then = self._entering(digests, self._dropping(claims, keeping)) if turn else keeping
        # One transaction where something is kept or entered.
        return _atomic(self._list(name, rows, then, unless=self._sql[unless]), own=then is not back)

    def _entering(self, digests: Sequence[bytes], then: Command) -> Command:
        """What enters the attempts that were taken over, and forgets the history of lives that are over."""
        return self._among("note_taken_over", digests, self._among("forget_past", digests, then))

    def _dropping(self, claims: Sequence[Claim], then: Command) -> Command:
        """What drops what records were searched by before these claims won them."""
        nonces = [claim.nonce for claim in claims]
        marks = ", ".join("?" * len(nonces))
        drop = self._among("drop_terms", sorted(claim.key.digest for claim in claims), then, nonces=marks)
        return Command(drop.text, (*drop.values, *nonces), then)

    def _keeping(self, operations: Sequence[Claim | CountFailure], then: Command) -> Command:
        rows = [
            (operation.key.digest, operation.nonce, number, status.value)
            for operation in operations
            for status in (Status.RUNNING if isinstance(operation, Claim) else Status.FAILED,)
            for number in term_numbers(operation.about)
        ]
        return self._list("keep_terms", sorted(rows), then) if rows else then

    def claim_short(self, claim: Claim) -> Asking[Won | Row | None]:
        """No such word: the gates of the key are asked by `claim`."""
        del claim
        return None
        yield

    def keep_terms(self, claim: Claim, record: StoredRecord) -> Keeping:
        """Keep them once it is known that the key is not another transaction's: looking at it would wait for that."""
        digest, numbers = record.key.digest, term_numbers(claim.about)
        if record.fence > 1:
            found = {term for (term,) in (yield Command(self._sql["kept_terms"], (digest,)))}
            old = sorted(found.difference(numbers))
            if old:
                text = _filled(self._sql["drop_terms_here"], terms=", ".join("?" * len(old)))
                yield Command(text, (digest, *old))
        if numbers:
            place = (record.created_us, record.key.scope)
            values = tuple(value for number in numbers for value in (digest, number, *place))
            text = _filled(self._sql["keep_terms_here"], rows=", ".join(["(?, ?, ?, ?)"] * len(numbers)))
            yield Command(text, (*values, *place))

    def note_taken_over(self, digest: bytes) -> Command | None:
        """The entry of what a claim has taken over in the caller's transaction."""
        return self._among("note_taken_over", [digest])

    def write(
        self, what: str, rows: Sequence[Values], *, transaction: str | None, letter: Letter | bytes | None = None
    ) -> Command:
        """A write under a lease."""
        rows = sorted(dict.fromkeys(rows), key=lambda row: row[:3])
        lock = "" if transaction is None else "FOR UPDATE"  # only a locking read sees what is newest there
        digests = sorted({row[0] for row in rows})
        own = transaction is None
        match what:
            case "renew":
                return self._written(what, rows, self._list("renewed", rows, lock=lock))
            case "checkpoint":
                return self._checkpoint(rows, lock, own=own)
            case "fail":
                # One transaction: a key that may be claimed again is claimed by others before it could be read back.
                back = self._among("told", digests, lock=lock)
                if isinstance(letter, Letter):
                    digest, nonce, _, _, _, *error = rows[0][:7]
                    back = self._keep_letter((digest, nonce, *error), letter, back)
                return _atomic(self._note_failures(rows, back, own=own), own=own)
        back = self._among("told", digests, lock=lock)
        if letter is None:
            return self._written(what, rows, back)
        dropped = Command(self._sql["complete_letter"], (letter, *rows[0][:3]), back)
        return _atomic(self._written(what, rows, dropped), own=own)

    def _keep_letter(self, ended: Values, letter: Letter, then: Command) -> Command:
        """Keep a letter where the record says that it ended so: digest, nonce and error."""
        lifted = Command(self._sql["keep_as_long"], (letter.keep_us, *ended), then)
        return self._list("keep_letter", [(*ended, *letter_values(letter).values())], lifted)

    def _written(self, what: str, rows: Sequence[Values], then: Command) -> Command:
        if len(rows) == 1:
            return Command(self._sql[f"{what}_one"], _alone(what, rows[0]), then)
        return self._list(what, rows, then)

    def _note_failures(self, rows: Sequence[Values], back: Command, *, own: bool) -> Command:
        """The entries of attempts whose handlers were called, and then their ends."""
        for row in rows if own else ():
            if row[2] * 3 > MOST_ENTRIES:  # at most three entries have the same fence
                back = self._cut(row[0], back)
        ends = self._written("fail", rows, back)
        return ends if all(row[-1] for row in rows) else self._list("note_failures", rows, ends)

    def _checkpoint(self, rows: Sequence[Values], lock: str, *, own: bool) -> Command:
        named = [(*row, _identity(row[4], row[5]), place) for place, row in enumerate(rows)]
        back = self._list("checkpointed", [row[:3] for row in named], lock=lock)
        count = self._among("count_steps", sorted({row[0] for row in rows}), back)
        return _atomic(self._list("checkpoint", named, count), own=own)

    def enter(self, lease: Values, *, turn: int) -> Command:
        """The first touch of a step in the caller's transaction, through the gates of this turn."""
        gates = gates_of(lease[0], turn)
        return Command(self._held("enter", gates), (*lease, Known.INSTALL, *gates, lease[0]))

    def complete_short(self, row: Values, transaction: str) -> Command | None:
        """There is no shorter word for it."""
        del row, transaction
        return None

    def set_savepoint(self, name: str) -> Command | None:
        """A savepoint: transactions have no name that the server would tell."""
        return context.set_savepoint(name)

    def assert_savepoint(self, name: str) -> Command | None:
        """Refused where the savepoint is gone with its transaction."""
        return context.assert_savepoint(name)

    def read(self, digests: Sequence[bytes], *, joined: bool) -> Command:
        """Look records up."""
        del joined
        return self._list("read", [(digest, place) for place, digest in enumerate(digests)])

    def request_notification(self, digests: Sequence[bytes]) -> Command | None:
        """Nobody can be told by the server: waiters look again."""
        del digests
        return None

    def steps(self, digest: bytes, life: int, *, joined: bool) -> Command:
        """The finished steps of a record."""
        return Command(_filled(self._sql["steps"], share=_SHARED if joined else ""), (digest, life))

    def scan(self, operation: Scan) -> Command | None:
        """One page."""
        return self._select("scan", operation.query, operation.cursor, operation.limit + 1)

    def count_records(self, operation: CountRecords) -> Command | None:
        """How many there are."""
        return self._select("count_records", operation.query, None)

    def skip_records(self, operation: SkipRecords) -> Command:
        """How far so many records reach."""
        found = select_skipped(operation.query, self._wording, ("status", "operation"))
        text = _filled(self._sql[f"skip_{found.row}"], restrictions=found.text, order=found.order_by_time)
        return Command(text, (*found.values.values(), operation.number))

    def _select(self, name: str, query: Query, cursor: tuple[int, bytes] | None, *further: int) -> Command | None:
        found = select_records(query, cursor, self._wording)
        if found is None:
            return None
        if query.status is Status.IN_DOUBT:
            found.terms.append("r.doubt_us IS NOT NULL")  # by which they are found
        index = f"`{self._names['prefix']}term_{'everywhere' if query.scope is None else 'in_scope'}`"
        place = _filled(self._sql[f"found_{found.row}"], index=index)
        text = _filled(self._sql[name], found=place, restrictions=found.text, order=found.order)
        return Command(text, (*found.values.values(), *further))

    def resolve(self, operation: Resolve) -> Command:
        """A decision."""
        values = tuple(resolve_values(operation).values())
        named = (operation.digest, operation.nonce)
        entered = Command(self._sql["note_decision"], named, self._cut(operation.digest, self._changed(*named)))
        closed = Command(self._sql["close_letters"], (operation.digest, *named), entered)
        decided = self._list("resolve", [values], closed)
        return _patient(_atomic(self._list("note_undecided", [values], decided), own=True))

    def _changed(self, digest: bytes, nonce: bytes) -> Command:
        """The record, where it is the one that was written under this nonce."""
        return Command(self._sql["resolved"], (digest, nonce))

    def reopen(self, operation: Reopen) -> Command:
        """Let a key be claimed again."""
        values = tuple(reopen_values(operation).values())
        reopened = self._list("reopen", [values], self._changed(operation.digest, operation.nonce))
        return _patient(_atomic(self._list("note_reopening", [values], reopened), own=True))

    def count_first(self, operation: CountFailure, *, fence: int) -> Command:
        """The first failure of a key."""
        values = tuple(count_values(operation, fence).values())
        back = self._counted(operation)
        then = self._keeping([operation], back)
        command = self._list("count_first", [values], then, unless=self._sql["unless_there"])
        return _atomic(command, own=True)

    def count_again(self, operation: CountFailure) -> Command:
        """A further failure."""
        named = count_values(operation, 0)
        order = ("most", "most", "nonce", "error_type", "error_message", "digest", "nonce", "fingerprint")
        back = self._counted(operation)
        return Command(self._sql["count_again"], tuple(named[name] for name in order), back, atomic=True)

    def _counted(self, operation: CountFailure) -> Command:
        """The record, where its last write was a failure under this nonce, and the entry of that."""
        named = (operation.key.digest, operation.nonce)
        back = self._cut(operation.key.digest, Command(self._sql["counted"], named))
        if operation.letter is not None:
            error = stored_failure(operation.error)
            back = self._keep_letter((*named, error.type, error.message), operation.letter, back)
        return Command(self._sql["note_failure"], named, back)

    def _cut(self, digest: bytes, then: Command) -> Command:
        """Leave the newest entries of a record."""
        return Command(self._sql["cut_history"], (digest, digest), then)

    def forget_expired(self, digest: bytes) -> Command:
        """Delete a record that is expired, its finished steps, its history, and what it is searched by."""
        record = Command(self._sql["forget_expired"], (digest,))
        history = Command(self._sql["forget_expired_history"], (digest, digest), record)
        terms = Command(self._sql["forget_expired_terms"], (digest, digest), history)
        return Command(self._sql["forget_expired_steps"], (digest, digest), terms, atomic=True)

    def erase(self, operation: Erase) -> Command:
        """Leave of a record what keeps its key shut. One transaction: nobody sees a part of it."""
        digest, note, invalidates, tombstone, error_type, error_message = erase_row(operation)
        back = Command(self._sql["erased"], (digest,))
        if invalidates:
            back = Command(self._sql["note_invalidation"], (digest,), back)
        noted = Command(self._sql["note_erasure"], (digest,), back)
        history = Command(self._sql["erase_history"], (error_message, error_type, digest, digest), noted)
        letters = Command(self._sql["erase_letters"], (digest, digest), history)
        terms = Command(self._sql["erase_terms"], (digest, digest), letters)
        steps = Command(self._sql["erase_steps"], (digest, digest), terms)
        values = (tombstone, error_type, error_message, note, digest)
        return _patient(Command(self._sql["erase"], values, steps, atomic=True))

    def pending(self, operation: Pending) -> Command:
        """Invalidations that are not confirmed."""
        return Command(self._sql["pending"], (max(operation.limit, 0),))

    def confirm(self, operation: Confirm) -> Command:
        """Every copy is gone: remove the note."""
        return Command(self._sql["confirm"], (operation.digest, operation.before_us), Command(self._sql["instant"]))

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
        text = _filled(self._sql["expired_ones"], sign="=" if equal else ">")
        found = yield Command(text, (keep_us, limit))
        if not found:
            return 0
        return len((yield from self._swept("hold_expired", [digest for (digest,) in found], self._forgetting)))

    def sweep_state(self) -> Command:
        """What the last sweep noted."""
        return Command(self._sql["sweep_state"])

    def save_sweep_state(self, state: bytes, seen: bytes | None) -> Command:
        """Note it for the next sweep."""
        return Command(self._sql["save_sweep_state"], (state, seen, state))

    def running_kept(self, keep_us: int, since_us: int, limit: int, *, equal: bool) -> Command:
        """What was claimed since an instant and still runs."""
        if equal:
            return Command(self._sql["running_keep"], (keep_us, since_us + keep_us, limit))
        return Command(self._sql["running_rest"], (keep_us, since_us, limit))

    def running_among(self, digests: Sequence[bytes]) -> Command:
        """Which of these still run."""
        return self._among("running_among", digests)

    def mark_lapsed(self, digests: Sequence[bytes]) -> Lapse:
        """Mark those of them whose lease is over."""
        return (yield from self._swept("hold_lapsed", digests, self._lapsing))

    def _swept(self, hold: str, digests: Sequence[bytes], change: Any) -> Lapse:
        """Change those that are as they should be once they are locked; answers with them."""
        try:
            held = yield Command("BEGIN", (), self._among(hold, digests))
            if held:
                yield change([digest for digest, *_ in held])
            yield Command("COMMIT")
        except Exception:
            yield Command("ROLLBACK")
            raise
        return held

    def _forgetting(self, digests: Sequence[bytes]) -> Command:
        history = self._among("forget_history", digests, self._among("forget", digests))
        terms = self._among("forget_terms", digests, history)
        return self._among("forget_steps", digests, terms)

    def _lapsing(self, digests: Sequence[bytes]) -> Command:
        command = self._among("lapse", digests)
        entered = self._among("note_lapses", digests)
        return Command(command.text, (LEASE_ENDED.type, LEASE_ENDED.message, *command.values), entered)

    def history(self, digest: bytes, life: int) -> Command:
        """What happened to a record."""
        return Command(self._sql["history"], (digest, life))

    def worker(self, process: bytes) -> Command:
        """A process, by what its nonces begin with."""
        return Command(self._sql["worker"], (process,))

    def register(self, worker: Worker) -> Command:
        """Note a worker."""
        process, host, pid, version = worker_row(worker)
        values = (process, host, pid, version, host, version, pid)
        return Command(self._sql["register"], values, Command(self._sql["instant"]))

    def purge_workers(self, operation: PurgeWorkers) -> Sweep:
        """Forget workers that have given no sign for long."""
        ((count,),) = yield Command(self._sql["old_workers"], (operation.keep_us,))
        if count:
            yield Command(self._sql["purge_workers"], (operation.keep_us,))
        return int(count)

    def tally(self, operations: Sequence[AddReplays]) -> Command:
        """Add replays."""
        added: dict[bytes, int] = {}
        for operation in operations:
            added[operation.digest] = added.get(operation.digest, 0) + operation.replays
        back = self._list("tallied", [(operation.digest, place) for place, operation in enumerate(operations)])
        return self._list("tally", sorted(added.items()), back)

    def put_letter(self, letter: Letter) -> Command:
        """Keep a letter."""
        values = tuple(letter_values(letter).values())
        return _atomic(self._list("put_letter", [values], Command(self._sql["letter"], (letter.id,))), own=True)

    def touch_letter(self, operation: TouchLetter) -> Command:
        """The event of a record was delivered again."""
        values = (operation.record, operation.consumer)
        return Command(self._sql["touch_letter"], values, Command(self._sql["touched_letter"], values), atomic=True)

    def drop_letter(self, operation: DropLetter) -> Command:
        """Delete a letter."""
        values = (operation.id, operation.consumer)
        return Command(self._sql["hold_letter"], values, Command(self._sql["drop_letter"], values), atomic=True)

    def scan_letters(self, operation: ScanLetters) -> Command:
        """One page of letters."""
        found = select_letters(operation, self._wording)
        text = _filled(self._sql["scan_letters"], restrictions=found.text)
        return Command(text, (*found.values.values(), operation.limit + 1))

    def purge_letters(self, operation: PurgeLetters) -> Sweep:
        """Delete letters that are expired."""
        found = yield Command(self._sql["expired_letters"], (max(operation.limit, 0),))
        if found:
            yield self._among("purge_letters", [id_ for (id_,) in found])
        return len(found)

    def ready(self) -> Command:
        """What a new connection is asked first."""
        return Command(self._sql["ready"])


def _alone(what: str, row: Values) -> Values:
    """The values of a write that is said alone: those of its SET first, then the lease."""
    lease, given = row[:3], row[3:]
    if what != "fail":
        return (*given, *lease)
    status, *rest = given
    return (*rest, status, status, status, status, *lease)


class CompletingOutbox(MysqlOutbox):
    """The outbox, with completions that events ride on."""

    def __init__(self, names: dict[str, str], clock: str, dialect: MysqlDialect) -> None:
        super().__init__(names, clock)
        self._dialect = dialect

    def complete(self, row: Values, transaction: str | None, events: Sequence[OutboxEvent]) -> Asking[list[Row]]:
        """One transaction, which adds them only where it completes the record."""
        plain = self._dialect.write("complete", (row,), transaction=transaction)
        riding = self.ride(events, plain.then)
        return (yield Command(plain.text, plain.values, riding, atomic=transaction is None))


def _filled(text: str, **parts: str) -> str:
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    return text


def _atomic(command: Command, *, own: bool) -> Command:
    return Command(command.text, command.values, command.then, atomic=own)


def _patient(command: Command) -> Command:
    """A decision of a person: it waits for a record that is held, for as long as lock_timeout says."""
    return replace(command, patient=True)


def gates_of(digest: bytes, turn: int) -> tuple[int, ...]:
    """The gates that a key needs all of at this turn; none where every turn that has some is over.

    Whoever writes a key in a transaction holds all gates of some turn, and at least one of each turn before it. So a
    rival never gets all of a turn that the writer has been to, and where it gets none, the key is taken. Where it gets
    some, the others may be held for another key, or by a writer who met one there: the next turn tells.
    """
    if turn >= _TURNS:
        return ()
    first = turn * _GATES * _STRIPE
    ends = range(first + _STRIPE, first + _GATES * _STRIPE + 1, _STRIPE)
    return tuple(int.from_bytes(digest[end - _STRIPE : end], "big") for end in ends)


def _identity(name: str, outcome: bytes) -> bytes:
    """What tells two steps at one place apart."""
    return hashlib.sha256(b"%d:%b%b" % (len(name.encode()), name.encode(), outcome)).digest()
