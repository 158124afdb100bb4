"""The port between the shared plan and a SQL server: commands, and how a server phrases each operation.

- The rows of a command have the shape named here on every server, so one plan reads them all.
- Values are bound by position, at each `?` of the text; nothing that a caller gave is ever written into a text. `NOW`
  stands where tests read a virtual clock; texts for real servers do not have it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from semel.core.batch.operations import AddItems, ReopenItems
from semel.core.batch.values import State
from semel.core.events.letters import DropLetter, Letter, ScanLetters, TouchLetter
from semel.core.events.outbox import (
    Cursor,
    CursorLost,
    CursorSaved,
    EraseEvents,
    EventBatch,
    EventsErased,
    EventsPurged,
    LagMeasured,
    MeasureLag,
    OpenCursor,
    OutboxEvent,
    PeekEvents,
    PurgeEvents,
    ReleaseParked,
    SaveCursor,
    ScanParked,
    SettleReleased,
    StreamPart,
)
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
    Reopen,
    Resolve,
    Scan,
    SkipRecords,
)
from semel.core.operators.chain import ChainHead, Seal
from semel.core.record import StoredRecord, Worker

Row = tuple[Any, ...]

NOW: Final = "/*now*/"


class Known(Enum):
    """A value that only the place of execution knows."""

    INSTALL = "the install_id of the store's own database"


class Copy(msgspec.Struct, frozen=True):
    """Rows that go into a table by COPY.

    Attributes:
        schema: of the table; None: the one that names are looked up in.
        table: its name.
        columns: which of its columns the rows have.
        types: of these columns, as the server calls them.
        rows: all of them.
    """

    schema: str | None
    table: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: Sequence[Row]


class Command(msgspec.Struct, frozen=True):
    """One statement, and where a server cannot give rows back from a write, the reading that follows it.

    `then` goes out together with the statement where the client library can do that. The rows of the last one that has
    rows are the reply. `atomic`: all of them are one transaction, or nothing; only ever on the store's own connection.
    `patient`: waits for locked rows up to `lock_timeout` on such a connection, where others wait as little as they can.
    `around`: what limits its wait for locked rows in the caller's transaction, and what ends that limit, as statements
    of their own; only for a server that cannot limit a single statement.
    `copy`: follows in the same transaction where the statement gave a row; only on the store's own connection, and only
    where the client library can do that.
    """

    text: str
    values: tuple[Any, ...] = ()
    then: Command | None = None
    atomic: bool = False
    patient: bool = False
    around: tuple[str, str] | None = None
    copy: Copy | None = None


Values = tuple[Any, ...]
Sweep = Generator[Command, list[Row], int]
Keeping = Generator[Command, list[Row], None]
Lapse = Generator[Command, list[Row], list[Row]]
T = TypeVar("T")
Asking = Generator[Command, list[Row], T]
"""Commands, and what came of them."""


class OutboxDialect(Protocol):
    """The statements of one kind of database for its outbox."""

    def add(self, events: Sequence[OutboxEvent], *, joined: bool) -> Command:
        """A row of now; none where it is not the store's database."""

    def complete(self, row: Values, transaction: str | None, events: Sequence[OutboxEvent]) -> Asking[list[Row]]:
        """A completion together with events; rows as of `Dialect.write`."""

    def open(self, operation: OpenCursor) -> Asking[Cursor]:
        """Take a part over."""

    def read(self, cursor: Cursor, limit: int) -> Asking[EventBatch]:
        """The next events."""

    def save(self, operation: SaveCursor) -> Asking[CursorSaved | CursorLost]:
        """Move a cursor, and park what could not be published."""

    def purge(self, operation: PurgeEvents) -> Asking[EventsPurged]:
        """Delete what is published and old enough."""

    def erase(self, operation: EraseEvents) -> Asking[EventsErased]:
        """Delete what is of a scope or a subject."""

    def held(self, part: StreamPart) -> Command:
        """Rows of ordering keys, or None, of what is parked."""

    def released(self, part: StreamPart, limit: int) -> Command:
        """Rows of position, event, error, attempts and instant of what may be published again."""

    def settle(self, operation: SettleReleased) -> Asking[None]:
        """Delete what was published, keep why the rest was not."""

    def parked(self, operation: ScanParked) -> Command:
        """Rows as of `released`, one more than the page holds."""

    def release(self, operation: ReleaseParked) -> Command:
        """A row of how many were changed."""

    def measure(self, operation: MeasureLag) -> Asking[LagMeasured]:
        """How much waits, without taking anything over."""

    def peek(self, operation: PeekEvents) -> Asking[list[Row]]:
        """Rows of position and event of what waits."""


class BatchDialect(Protocol):
    """The statements of one kind of database for batches: those that all share, and those that change two tables."""

    def command(self, name: str, *values: Any) -> Command:
        """A statement that all databases understand, by its name."""

    def command_among(self, name: str, kind: str, among: Sequence[Any], *values: Any) -> Command:
        """The same with a list of values of one kind (`text`, `bigint` or `bytea`), which come last."""

    def add(self, operation: AddItems) -> Asking[bool]:
        """Add items and move on; False: it is another loader's turn, or they are there.

        Raises:
            RowError: an item of that id is there.
        """

    def take(self, number: int) -> Asking[tuple[int | None, State]]:
        """The next page, and the state of the batch."""

    def settle(
        self, number: int, page: int, rows: Sequence[tuple[int, int, bytes | None]], *, joined: bool
    ) -> Asking[None]:
        """Note position, status and outcome of items, and count them."""

    def reopen(self, operation: ReopenItems) -> Asking[None]:
        """Have items pending again."""

    def reserve(self, number: int, amount_us: int) -> Asking[tuple[int, int]]:
        """Reserve time; up to when all is reserved, and now."""


class AuditDialect(Protocol):
    """The statements of one kind of database for the audit chain and tokens."""

    def command(self, name: str, *values: Any) -> Command:
        """A statement that all databases understand, by its name."""

    def command_among(self, name: str, among: Sequence[bytes], *values: Any) -> Command:
        """The same with a list of values, which come last."""

    def command_where(self, name: str, condition: str, *values: Any) -> Command:
        """The same with a condition, whose values come first."""

    def append(self, seen: ChainHead, moved: ChainHead, rows: Sequence[Row]) -> Asking[bool]:
        """Move a head that is still as it was seen, and add entries; False: it is not, and nothing was changed.

        Raises:
            RowError: an entry of that number is there.
        """

    def seal(self, chain: bytes, seal: Seal) -> Asking[bool]:
        """Add a seal behind what is sealed; False: somebody else has, and nothing was changed."""


class Dialect(Protocol):
    """The statements of one kind of database, for all but its claims."""

    @property
    def outbox(self) -> OutboxDialect:
        """Those of its outbox."""

    @property
    def batch(self) -> BatchDialect:
        """Those of its batches."""

    @property
    def audit(self) -> AuditDialect:
        """Those of its audit chain and of tokens."""

    @property
    def decides_inside(self) -> bool:
        """Whether resolving and sweeping may be part of the caller's transaction, because it shuts everybody out."""

    def write(
        self, what: str, rows: Sequence[Values], *, transaction: str | None, letter: Letter | bytes | None = None
    ) -> Command:
        """A write under a lease: `renew`, `complete`, `fail` or `checkpoint`.

        With `letter`, in the same statement or transaction: the letter that is kept of a failure, whose record is kept
        for at least as long; or the id of the one that goes with a completion. There is only one row then.

        Rows of digest, done, now, nonce, fence, status, completed_us, updated_us, error_type, error_message, of which
        only the first three count where it is done. No row: `transaction` is not the one that is open.
        """

    def enter(self, lease: Values, *, turn: int) -> Command:
        """The first touch of a step in the caller's transaction, at the `turn`th try, from 0.

        Rows as of `write`, and the name of the transaction or None; done is None where it has to be tried once more.
        """

    def complete_short(self, row: Values, transaction: str) -> Command | None:
        """A completion in the caller's transaction, in short, where the server has such a word.

        Rows of now; none where nothing was changed, and then `write` tells why.
        """

    def set_savepoint(self, name: str) -> Command | None:
        """Mark the caller's transaction, where it has no name that the server knows."""

    def assert_savepoint(self, name: str) -> Command | None:
        """Demand that mark; the server refuses where the transaction has ended."""

    def request_notification(self, digests: Sequence[bytes]) -> Command | None:
        """Request a notification at the end of these runs, where the server can."""

    def read(self, digests: Sequence[bytes], *, joined: bool) -> Command:
        """Rows of `RECORD_COLUMNS` and now, in the order asked for; a digest of None where there is no record."""

    def steps(self, digest: bytes, life: int, *, joined: bool) -> Command:
        """Rows of position, name and outcome."""

    def count_records(self, operation: CountRecords) -> Command | None:
        """Rows of operation, status and number; None where nothing can match."""

    def skip_records(self, operation: SkipRecords) -> Command:
        """The instant of one record, or no row."""

    def scan(self, operation: Scan) -> Command | None:
        """Rows of `RECORD_COLUMNS`, one more than the page holds; None where nothing can match."""

    def resolve(self, operation: Resolve) -> Command:
        """Rows of `RECORD_COLUMNS`: the record as it was changed, or nothing. The letters of its event go with it."""

    def reopen(self, operation: Reopen) -> Command:
        """Rows of `RECORD_COLUMNS`: the record as it was changed, or nothing."""

    def count_first(self, operation: CountFailure, *, fence: int) -> Command:
        """Rows of `RECORD_COLUMNS`: the record as it was inserted under this fence, or nothing where there is one.

        A letter, here and of `count_again`, is kept where the failure is final, as `write` does it.
        """

    def count_again(self, operation: CountFailure) -> Command:
        """Rows of `RECORD_COLUMNS`: the record as it was changed, or nothing."""

    def forget_expired(self, digest: bytes) -> Command:
        """Delete this record, if it is expired."""

    def erase(self, operation: Erase) -> Command:
        """Rows of `RECORD_COLUMNS`: the record as it was erased, or nothing where none is settled.

        All of its letters go with it.
        """

    def pending(self, operation: Pending) -> Command:
        """Rows of digest, operation and noted_us, oldest first."""

    def confirm(self, operation: Confirm) -> Command:
        """A row of now."""

    def purge(self, operation: Purge) -> Sweep:
        """The commands that delete; answers how many were deleted."""

    def lapse(self, operation: MarkLapsed) -> Lapse:
        """The commands that mark; answers with rows of digest, operation and age_us of what was marked."""

    def history(self, digest: bytes, life: int) -> Command:
        """Rows of fence, kind, number, started_us, ended_us, nonce, ending, error_type and error_message, in order."""

    def worker(self, process: bytes) -> Command:
        """A row of process, host, pid, version and started_us, if the process is known."""

    def register(self, worker: Worker) -> Command:
        """A row of now."""

    def purge_workers(self, operation: PurgeWorkers) -> Sweep:
        """The commands that delete workers; answers how many were deleted."""

    def tally(self, operations: Sequence[AddReplays]) -> Command:
        """Rows of digest and now."""

    def put_letter(self, letter: Letter) -> Command:
        """A row of `LETTER_COLUMNS`: the letter as it is kept."""

    def touch_letter(self, operation: TouchLetter) -> Command:
        """A row of `LETTER_COLUMNS`: the oldest letter of the record as it is now; nothing where there is none."""

    def drop_letter(self, operation: DropLetter) -> Command:
        """A row of `LETTER_COLUMNS`: the letter that was deleted, if there was one."""

    def scan_letters(self, operation: ScanLetters) -> Command:
        """Rows of `LETTER_COLUMNS`, one more than the page holds."""

    def purge_letters(self, operation: PurgeLetters) -> Sweep:
        """The commands that delete letters that are expired; answers how many were deleted."""


_MARGIN_US: Final = 60_000_000
"""How much later than its instant a claim may be committed and still be seen by the next sweep."""
_DAY_US: Final = 86_400_000_000
_MOST_KEEPS: Final = 64
_MOST_RUNNING: Final = 1_000


class SweepState(msgspec.Struct, frozen=True):
    """How far sweeps have looked for lapsed leases, noted in the meta table.

    Attributes:
        claimed_us: what was claimed before this instant was seen, and is not running any more, or is in `running`.
        running: what was claimed before and was still running: looked at again by every sweep.
        swept_us: the clock of the server at that sweep.
        complete_us: when a sweep last looked at all records, whenever they were claimed.
    """

    claimed_us: int
    running: tuple[bytes, ...]
    swept_us: int
    complete_us: int

    def is_due(self, now: int) -> bool:
        """Whether all records are to be looked at: once a day, and when the clock was set back."""
        return now < self.swept_us or now - self.complete_us >= _DAY_US


class _Window:
    """What one look for lapsed leases met: running records, and up to which claim it was complete."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.claimed: dict[bytes, int] = {}
        self.lapsed: list[bytes] = []
        self._until = now - _MARGIN_US

    def add(self, rows: Sequence[Row], limit: int | None = None) -> None:
        """Take note of rows of digest, instant of the claim, and lease_us; `limit` is how many were asked for."""
        for digest, claimed_us, lease_us in rows:
            if digest not in self.claimed and lease_us <= self.now:
                self.lapsed.append(digest)
            self.claimed[digest] = claimed_us
        if limit is not None and len(rows) == limit:
            self._until = min(self._until, rows[-1][1])

    def next_state(self, marked: Sequence[Row], complete_us: int) -> SweepState:
        """What the next sweep has to know: every running record is in its window, or named."""
        for digest, *_ in marked:
            self.claimed.pop(digest, None)
        older = sorted((claimed_us, digest) for digest, claimed_us in self.claimed.items() if claimed_us < self._until)
        until = self._until if len(older) <= _MOST_RUNNING else older[_MOST_RUNNING][0]
        running = tuple(digest for claimed_us, digest in older if claimed_us < until)
        return SweepState(until, running, self.now, complete_us)


class ServerSweeps:
    """How servers with an index on (keep_us, expires_us) sweep: without reading what is settled and not expired.

    - What has expired is at the beginning of each value of keep_us.
    - What has lapsed is among what was claimed since the last sweep, or was still running then. Every sweep leaves a
      note of both. It never passes a running record that it does not name, so an operation that renews its lease for
      days is looked at by each sweep. The window begins a minute before the last sweep, for claims that are committed
      late; once a day, and when the clock was set back, a sweep looks at all records, so nothing is missed for good.
    """

    def next_keep(self, keep_us: int) -> Command:
        """A row of the smallest keep_us that is larger, or of None."""
        raise NotImplementedError

    def purge_kept(self, keep_us: int, limit: int, *, equal: bool) -> Sweep:
        """Delete what is expired and has this keep_us, or a larger one; answers how many were deleted."""
        raise NotImplementedError

    def sweep_state(self) -> Command:
        """A row of the note of the last sweep, or None, and now."""
        raise NotImplementedError

    def save_sweep_state(self, state: bytes, seen: bytes | None) -> Command:
        """Leave a note, unless somebody else left one since `seen` was read."""
        raise NotImplementedError

    def running_kept(self, keep_us: int, since_us: int, limit: int, *, equal: bool) -> Command:
        """Rows of digest, instant of the claim and lease_us, oldest claim first.

        Of what runs, was claimed at `since_us` or later, and has this keep_us, or a larger one.
        """
        raise NotImplementedError

    def running_among(self, digests: Sequence[bytes]) -> Command:
        """The same of those of `digests` that run."""
        raise NotImplementedError

    def mark_lapsed(self, digests: Sequence[bytes]) -> Lapse:
        """Mark those whose lease is over, as it is now; answers as `lapse`."""
        raise NotImplementedError

    def count_in_doubt(self, limit: int) -> Command:
        """A row of how many are in doubt, `limit` at most."""
        raise NotImplementedError

    def count_expired(self, keep_us: int, limit: int, *, equal: bool) -> Command:
        """A row of how many are expired and have this keep_us, or a larger one, `limit` at most."""
        raise NotImplementedError

    def count_lapsed(self, keep_us: int, newest: int, *, equal: bool) -> Command:
        """A row of how many of the `newest` with this keep_us, or a larger one, there are, and run without a lease."""
        raise NotImplementedError

    def keeps(self) -> Generator[Command, list[Row], list[tuple[int, bool]]]:
        """The values of keep_us, each with whether it stands for itself alone or for all that are larger.

        Where nearly every record has one of its own, looking for each would take longer than reading the rest.
        """
        keeps: list[tuple[int, bool]] = []
        keep_us = 0
        while len(keeps) < _MOST_KEEPS:
            ((found,),) = yield self.next_keep(keep_us)
            if found is None:
                return keeps
            keep_us = found
            keeps.append((keep_us, True))
        return [*keeps, (keep_us, False)]

    def purge(self, operation: Purge) -> Sweep:
        """Delete what is expired."""
        deleted = 0
        if operation.limit < 1:
            return deleted
        for keep_us, equal in (yield from self.keeps()):
            deleted += yield from self.purge_kept(keep_us, operation.limit - deleted, equal=equal)
            if deleted >= operation.limit:
                break
        return deleted

    def lapse(self, operation: MarkLapsed) -> Lapse:
        """Mark what has lapsed since the last sweep, or was still running then."""
        if operation.limit < 1:
            return []
        ((value, now),) = yield self.sweep_state()
        seen = None if value is None else bytes(value)
        state = SweepState(0, (), 0, 0) if seen is None else msgspec.json.decode(seen, type=SweepState)
        window = _Window(now)
        since_us, complete_us = (0, now) if state.is_due(now) else (state.claimed_us, state.complete_us)
        most = operation.limit + _MOST_RUNNING
        for keep_us, equal in (yield from self.keeps()):
            window.add((yield self.running_kept(keep_us, since_us, most, equal=equal)), most)
        if state.running:
            window.add((yield self.running_among(state.running)))
        lapsed = sorted(window.lapsed[: operation.limit])
        marked = (yield from self.mark_lapsed(lapsed)) if lapsed else []
        # What was not marked is held by somebody, or was changed since: the next sweep looks at it again.
        left = msgspec.json.encode(window.next_state(marked, complete_us))
        yield self.save_sweep_state(left, seen)
        return marked


class Won(NamedTuple):
    """A claim in the caller's transaction that wrote its record.

    Attributes:
        now: when.
        transaction: the name of the caller's transaction.
    """

    now: int
    transaction: str


class ServerDialect(Dialect, Protocol):
    """The statements of one kind of server."""

    def note_taken_over(self, digest: bytes) -> Command | None:
        """Enter what a claim has taken over in the caller's transaction, where its statement has not done so."""

    def claim_short(self, claim: Claim) -> Asking[Won | Row | None]:
        """A claim in the caller's transaction, in short, where the server has such a word.

        What it won, or a row as `claim` tells it; None: `claim` decides.
        """

    def claim(self, claims: Sequence[Claim], *, joined: bool, turn: int) -> Command:
        """Claims, at the `turn`th try, from 0. Rows of `RECORD_COLUMNS`, now, and the transaction's name or None.

        A row without a status: somebody's open transaction holds the key; or, where the last column is true, somebody
        holds what may be this key's, and it is asked again. The first word may leave out what it cannot decide; it is
        then asked again. Otherwise no row means that it is not the store's database. What the
        records are searched by is kept with them, in the same statement or transaction.
        """

    def keep_terms(self, claim: Claim, record: StoredRecord) -> Keeping:
        """Keep what a record is searched by that was granted in the caller's transaction, where `claim` has not."""
