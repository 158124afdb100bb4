"""The port between the shared plan and a SQL server: commands, and how a server phrases each operation.

- The rows of a command have the shape named here on every server, so one plan reads them all.
- Values are bound by position, at each `?` of the text; nothing that a caller gave is ever written into a text. `NOW`
  stands where tests read a virtual clock; texts for real servers do not have it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from enum import Enum
from typing import Any, Final, Protocol

import msgspec

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
    PurgeWorkers,
    Reopen,
    Resolve,
    Scan,
)
from semel.core.record import StoredRecord, Worker

Row = tuple[Any, ...]

NOW: Final = "/*now*/"


class Known(Enum):
    """A value that only the place of execution knows."""

    INSTALL = "the install_id of the store's own database"


class Command(msgspec.Struct, frozen=True):
    """One statement, and where a server cannot give rows back from a write, the reading that follows it.

    `then` goes out together with the statement where the client library can do that. The rows of the last one that has
    rows are the reply. `atomic`: all of them are one transaction, or nothing; only ever on the store's own connection.
    `patient`: waits for locked rows up to `lock_timeout` on such a connection, where others wait as little as they can.
    """

    text: str
    values: tuple[Any, ...] = ()
    then: Command | None = None
    atomic: bool = False
    patient: bool = False


Values = tuple[Any, ...]
Sweep = Generator[Command, list[Row], int]
Keeping = Generator[Command, list[Row], None]


class Dialect(Protocol):
    """The statements of one kind of database, for all but its claims."""

    @property
    def decides_inside(self) -> bool:
        """Whether resolving and sweeping may be part of the caller's transaction, because it shuts everybody out."""

    def write(self, what: str, rows: Sequence[Values], *, transaction: str | None) -> Command:
        """A write under a lease: `renew`, `complete`, `fail` or `checkpoint`.

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

    def scan(self, operation: Scan) -> Command | None:
        """Rows of `RECORD_COLUMNS`, one more than the page holds; None where nothing can match."""

    def resolve(self, operation: Resolve) -> Command:
        """Rows of `RECORD_COLUMNS`: the record as it was changed, or nothing."""

    def reopen(self, operation: Reopen) -> Command:
        """Rows of `RECORD_COLUMNS`: the record as it was changed, or nothing."""

    def count_first(self, operation: CountFailure, *, fence: int) -> Command:
        """Rows of `RECORD_COLUMNS`: the record as it was inserted under this fence, or nothing where there is one."""

    def count_again(self, operation: CountFailure) -> Command:
        """Rows of `RECORD_COLUMNS`: the record as it was changed, or nothing."""

    def forget_expired(self, digest: bytes) -> Command:
        """Delete this record, if it is expired."""

    def erase(self, operation: Erase) -> Command:
        """Rows of `RECORD_COLUMNS`: the record as it was erased, or nothing where none is settled."""

    def pending(self, operation: Pending) -> Command:
        """Rows of digest, operation and noted_us, oldest first."""

    def confirm(self, operation: Confirm) -> Command:
        """A row of now."""

    def purge(self, operation: Purge) -> Sweep:
        """The commands that delete; answers how many were deleted."""

    def lapse(self, operation: MarkLapsed) -> Sweep:
        """The commands that mark; answers how many were marked."""

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


class ServerDialect(Dialect, Protocol):
    """The statements of one kind of server."""

    def note_taken_over(self, digest: bytes) -> Command | None:
        """Enter what a claim has taken over in the caller's transaction, where its statement has not done so."""

    def claim(self, claims: Sequence[Claim], *, joined: bool, turn: int) -> Command:
        """Claims, at the `turn`th try, from 0. Rows of `RECORD_COLUMNS`, now, and the transaction's name or None.

        A row without a status: somebody's open transaction holds the key; or, where the last column is true, somebody
        holds what may be this key's, and it is asked again. The first word may leave out what it cannot decide; it is
        then asked again. Otherwise no row means that it is not the store's database. What the
        records are searched by is kept with them, in the same statement or transaction.
        """

    def keep_terms(self, claim: Claim, record: StoredRecord) -> Keeping:
        """Keep what a record is searched by that was granted in the caller's transaction, where `claim` has not."""
