"""Models of outboxes: the statements of PostgreSQL and MySQL, each carried out by a few lines, and the memory store's.

Invariant: positions are given away when events are added, and rows are seen when their transaction has
committed. A snapshot is as PostgreSQL takes it: its upper end is one above the highest number that has *ended*, so that
a transaction which runs may be above it, and is not named.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cache
from typing import Any, Final, Protocol, cast

from semel.core.events.outbox import AboutOutbox, OutboxAnswer, OutboxEvent, StreamPart
from semel.stores.events.outbox import EVENT_COLUMNS, MemoryOutbox, event_row
from semel.stores.mysql.outbox import MysqlOutbox
from semel.stores.postgresql.outbox import PostgresOutbox
from semel.stores.sql.dialect import Command, Row
from semel.stores.sql.events.outbox import OUTBOX_PLANS
from semel_lab.simulate.relays.world import OutboxKind

Steps = Generator[None, None, OutboxAnswer]
_NAMES: Final = {
    name: name
    for name in ("prefix", "outbox_table", "outbox_sequence", "cursor_table", "parked_table", "rebase_function", "meta")
}
_ERROR: Final = -4
_SHARD: Final = 2
_KEY: Final = 1 + EVENT_COLUMNS.index("ordering_key")
"""Columns of a parked row: its position, the columns of the event, the error, its message, attempts, the instant."""
_SERVER: Final = 1
"""There is one server, which is never another one: what is told of it is not compared."""


class Transaction:
    """A transaction of a caller."""

    def __init__(self) -> None:
        self.number = 0
        self.positions: list[int] = []
        self.events: list[OutboxEvent] = []


class OutboxModel(Protocol):
    """The outbox of a simulated store."""

    now_us: int

    def begin(self) -> Transaction:
        """Begin a transaction, which has its number from then on."""

    def add(self, transaction: Transaction, events: Sequence[OutboxEvent]) -> None:
        """Add events, which have their positions from then on."""

    def commit(self, transaction: Transaction) -> None:
        """Let everybody see what it added."""

    def roll_back(self, transaction: Transaction) -> None:
        """Let nobody ever see it."""

    def carry_out(self, operation: AboutOutbox) -> Steps:
        """Carry an operation out; others may go on wherever this stops."""

    def owner(self, part: StreamPart) -> tuple[int, bytes]:
        """How often the cursor of a part was written, and who did it last."""

    def parked_rows(self) -> list[tuple[int, str | None]]:
        """The positions of what is parked, and their errors."""

    def names(self, transaction: Transaction) -> bool:
        """Whether a snapshot that is taken now would say of a running transaction that it runs."""

    def restore(self, *, is_lower: bool) -> None:
        """Go on as a dump that was restored in another cluster, whose numbers of transactions are lower, or higher."""


class _Server:
    """What the SQL servers have in common: rows that are there before they are seen, and what is parked."""

    is_postgresql = False

    def __init__(self, outbox: Any) -> None:
        self.now_us = 0
        self.outbox = outbox
        self.last = 0
        self.rows: dict[int, tuple[Transaction, Row]] = {}
        self.running: list[Transaction] = []
        self.parked: dict[int, list[Any]] = {}

    def begin(self) -> Transaction:
        transaction = Transaction()
        self.running.append(transaction)
        return transaction

    def add(self, transaction: Transaction, events: Sequence[OutboxEvent]) -> None:
        for event in events:
            self.last += 1
            self.rows[self.last] = transaction, event_row(event)
            transaction.positions.append(self.last)

    def commit(self, transaction: Transaction) -> None:
        self.running.remove(transaction)

    def roll_back(self, transaction: Transaction) -> None:
        self.running.remove(transaction)
        for position in transaction.positions:
            del self.rows[position]

    def parked_rows(self) -> list[tuple[int, str | None]]:
        return [(position, row[_ERROR]) for position, row in sorted(self.parked.items())]

    def names(self, transaction: Transaction) -> bool:
        del transaction
        return True

    def restore(self, *, is_lower: bool) -> None:
        """Numbers of transactions mean nothing here."""

    def carry_out(self, operation: AboutOutbox) -> Steps:
        plan = OUTBOX_PLANS[type(operation)](cast("Any", self), [operation], joined=False)
        reply: Any = None
        while True:
            try:
                command = plan.send(reply)
            except StopIteration as end:
                return cast("OutboxAnswer", end.value[0])
            if reply is not None:
                yield
            reply = self.execute(command)

    def execute(self, command: Command) -> list[Row]:
        """Carry one command out, with what follows it."""
        rows: list[Row] = []
        following: Command | None = command
        while following is not None:
            told = getattr(self, f"_{_name_of(self.is_postgresql, following.text)}")(*following.values)
            rows, following = rows if told is None else told, following.then
        return rows

    def _seen(self) -> list[tuple[int, Transaction, Row]]:
        """The rows that are committed, by position."""
        return [
            (position, transaction, row)
            for position, (transaction, row) in sorted(self.rows.items())
            if transaction not in self.running
        ]

    def _of(self, stream: str, parts: int, number: int) -> list[list[Any]]:
        return [row for _, row in sorted(self.parked.items()) if row[1] == stream and row[_SHARD] % parts == number]

    def _park_row(self, row: Sequence[Any]) -> None:
        self.parked.setdefault(row[0], [*row, self.now_us])

    def _held(self, stream: str, parts: int, number: int) -> list[Row]:
        return [(key,) for key in {row[_KEY] for row in self._of(stream, parts, number)}]

    def _released(self, stream: str, parts: int, number: int, limit: int) -> list[Row]:
        mine = self._of(stream, parts, number)
        stuck = {row[_KEY] for row in mine if row[_ERROR] is not None} - {None}
        return [tuple(row) for row in mine if row[_ERROR] is None and row[_KEY] not in stuck][:limit]

    def _keep_failed(self, kind: str, message: str, attempts: int, _stream: str, position: int) -> list[Row]:
        if position in self.parked:
            self.parked[position][_ERROR:] = [kind, message, attempts, self.now_us]
        return []

    def _drop(self, positions: Sequence[int]) -> None:
        for position in positions:
            self.parked.pop(position, None)

    def _release_all(self) -> int:
        failed = [row for row in self.parked.values() if row[_ERROR] is not None]
        for row in failed:
            row[_ERROR:-2] = [None, None]
        return len(failed)


class SnapshotServer(_Server):
    """PostgreSQL: append-only, a log of cursors."""

    is_postgresql = True

    def __init__(self) -> None:
        super().__init__(_postgresql())
        self._cluster = 7
        self._next_number = 10
        self._highest_ended = 9
        self._cursors: dict[tuple[int, int], dict[int, tuple[Any, ...]]] = {}

    def begin(self) -> Transaction:
        transaction = super().begin()
        transaction.number = self._next_number
        self._next_number += 1
        return transaction

    def commit(self, transaction: Transaction) -> None:
        super().commit(transaction)
        self._end(transaction.number)

    def roll_back(self, transaction: Transaction) -> None:
        super().roll_back(transaction)
        self._end(transaction.number)

    def _end(self, number: int) -> None:
        self._highest_ended = max(self._highest_ended, number)

    def _write(self) -> None:
        """A write of the relay's own: a transaction that begins and ends."""
        self._end(self._next_number)
        self._next_number += 1

    def names(self, transaction: Transaction) -> bool:
        return transaction.number <= self._highest_ended

    def restore(self, *, is_lower: bool) -> None:
        self._cluster += 1
        self._highest_ended = 2 if is_lower else self._highest_ended + 100
        self._next_number = self._highest_ended + 1

    def owner(self, part: StreamPart) -> tuple[int, bytes]:
        log = self._cursors.get((part.parts, part.number))
        if not log:
            return 0, b""
        newest = max(log)
        return newest, log[newest][4]

    def _snapshot(self) -> str:
        highest = self._highest_ended + 1
        running = sorted(one.number for one in self.running if one.number < highest)
        return f"{running[0] if running else highest}:{highest}:{','.join(map(str, running))}"

    def _cursors_(self, _stream: str) -> list[Row]:
        head = (False, self._cluster, self._highest_ended + 1, self.last)
        newest = [(place, max(log), log[max(log)]) for place, log in sorted(self._cursors.items())]
        rows: list[Row] = [
            (*head, part, parts, number, seen, floor, until, at, cluster, _SERVER)
            for (parts, part), number, (seen, floor, until, at, _token, cluster) in newest
        ]
        return rows or [(*head, *[None] * 8, _SERVER)]

    def _has_foreign(self, _stream: str) -> list[Row]:
        return [(any(transaction.number > self._highest_ended for _, transaction, _ in self._seen()),)]

    def _rebase(self, _stream: str, part: int, parts: int, known: str, above: int) -> list[Row]:
        before = self._snapshot()
        renumbered, published = self._number_again()
        for position, transaction, row in self._seen():
            if row[1] % parts != part:
                continue
            if position > above or not sees(known, transaction.number):
                self.rows[position] = renumbered, row
            elif transaction.number > renumbered.number:
                self.rows[position] = published, row
        self._end(renumbered.number)
        return [(before,)]

    def _number_again(self) -> tuple[Transaction, Transaction]:
        """Where rows go that are numbered again, published ones apart; somebody else's transaction ends meanwhile."""
        renumbered, published = Transaction(), Transaction()
        renumbered.number = self._next_number
        self._next_number += 1
        self._write()
        return renumbered, published

    def _save(self, _stream: str, part: int, parts: int, number: int, *values: Any) -> list[Row]:
        log = self._cursors.setdefault((parts, part), {})
        if log and number <= max(log):
            return []
        log[number] = values[:6]
        self._write()
        return [(self.now_us,)]

    def _save_and_park(self, *values: Any) -> list[Row]:
        rows = self._save(*values[:11])
        if rows:
            for row in zip(*values[12:], strict=True):
                self._park_row(row)
        return rows

    def _saved(self, _stream: str, part: int, parts: int, number: int) -> list[Row]:
        row = self._cursors[parts, part].get(number)
        return [] if row is None else [(row[4],)]

    def _forget_cursors(self, _stream: str, part: int, parts: int, oldest: int, _server: int) -> list[Row]:
        log = self._cursors[parts, part]
        for number in [number for number in log if number < oldest]:
            del log[number]
        self._write()
        return []

    def _batch(self, *values: Any) -> list[Row]:
        seen, until, floor, at = values[:4]
        token, stream, number, parts = values[4:8]
        limit = values[-1]
        until = until or self._snapshot()
        is_mine = self.owner(StreamPart(stream, number, parts))[1] == token
        late = late_ones(seen)
        found = [
            (until, self.last, is_mine, position, *row, True)
            for position, transaction, row in self._seen()
            if row[0] == stream
            and row[1] % parts == number
            and position > at
            and sees(until, transaction.number)
            and (
                not sees(seen, transaction.number)
                if position > max(floor, at)
                else position <= floor and transaction.number in late
            )
        ]
        nothing = (until, self.last, is_mine, *[None] * (1 + len(EVENT_COLUMNS)), True)
        return (found[:limit] if is_mine else []) or [nothing]

    def _purge(self, *values: Any) -> list[Row]:
        after, _keep, floor, _stream, parts, number, seen, _server, limit = values
        old = [
            position
            for position, transaction, row in self._seen()
            if after < position <= floor and row[1] % parts == number and sees(seen, transaction.number)
        ][:limit]
        for position in old:
            del self.rows[position]
        self._write()
        return [(len(old), old[-1] if old else None)]

    def _drop_released(self, _stream: str, positions: list[int]) -> list[Row]:
        self._drop(positions)
        return []

    def _release(self, _stream: str, _position: None) -> list[Row]:
        return [(self._release_all(),)]


class DeletingServer(_Server):
    """MySQL: what is published is deleted, by whoever has the token of the part."""

    def __init__(self) -> None:
        super().__init__(_mysql())
        self._cursors: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._count = 0

    def owner(self, part: StreamPart) -> tuple[int, bytes]:
        return self._cursors.get((part.number, part.parts), (0, b""))

    def _open(self, _stream: str, part: int, parts: int, token: bytes, _again: bytes) -> None:
        number, _ = self._cursors.get((part, parts), (0, b""))
        self._cursors[part, parts] = number + 1, token

    def _opened(self, _stream: str, part: int, parts: int) -> list[Row]:
        return [self._cursors[part, parts]]

    def _save(self, _stream: str, part: int, parts: int, number: int, token: bytes) -> None:
        if self._cursors[part, parts] == (number, token):
            self._cursors[part, parts] = number + 1, token

    def _is_mine(self, _stream: str, part: int, parts: int, number: int, token: bytes) -> bool:
        return self._cursors[part, parts] == (number, token)

    def _delete(self, *values: Any) -> None:
        if self._is_mine(*values[:5]):
            for position in values[5:]:
                self.rows.pop(position, None)

    def _park(self, *values: Any) -> None:
        if self._is_mine(*values[-5:]):
            width = 4 + len(EVENT_COLUMNS)
            for first in range(0, len(values) - 5, width):
                self._park_row(values[first : first + width])

    def _batch(self, *values: Any) -> list[Row]:
        stream, at, end, parts, number, _, _, _, token, limit = values
        seen = self._seen()
        found = [
            (position, *row, seen[-1][0])
            for position, _, row in seen
            if at < position <= end and row[0] == stream and row[1] % parts == number
        ]
        return found[:limit] if self._cursors[number, parts][1] == token else []

    def _drop_released(self, _stream: str, *positions: int) -> list[Row]:
        self._drop(positions)
        return []

    def _release(self, _stream: str, _position: None) -> None:
        self._count = self._release_all()

    def _changed(self) -> list[Row]:
        return [(self._count,)]


class OneWriter:
    """SQLite: one transaction at a time, so that positions are in the order of commits."""

    def __init__(self) -> None:
        self.now_us = 0
        self._outbox = MemoryOutbox()

    def begin(self) -> Transaction:
        return Transaction()

    def add(self, transaction: Transaction, events: Sequence[OutboxEvent]) -> None:
        transaction.events += events

    def commit(self, transaction: Transaction) -> None:
        self._outbox.add(transaction.events, self.now_us)

    def roll_back(self, transaction: Transaction) -> None:
        """Nothing was written yet."""

    def carry_out(self, operation: AboutOutbox) -> Steps:
        return self._outbox.apply(operation, self.now_us)
        yield

    def owner(self, part: StreamPart) -> tuple[int, bytes]:
        cursor = self._outbox._cursors.get(part)
        return (0, b"") if cursor is None else (cursor.number, cursor.token)

    def parked_rows(self) -> list[tuple[int, str | None]]:
        return [
            (position, None if one.error is None else one.error.type)
            for position, one in sorted(self._outbox._parked.items())
        ]

    def names(self, transaction: Transaction) -> bool:
        del transaction
        return True

    def restore(self, *, is_lower: bool) -> None:
        """Positions are what they were."""


def make_outbox(kind: OutboxKind) -> OutboxModel:
    """The model of one kind of outbox, empty."""
    if kind == "positions":
        return OneWriter()
    return SnapshotServer() if kind == "snapshots" else DeletingServer()


def sees(snapshot: str, number: int) -> bool:
    """`pg_visible_in_snapshot`."""
    lowest, highest, _ = snapshot.split(":")
    return number < int(lowest) or (number < int(highest) and number not in _running(snapshot))


def late_ones(snapshot: str) -> set[int]:
    """Those whose events below the floor are looked for: whatever ran when the snapshot was taken."""
    return _running(snapshot)


def _running(snapshot: str) -> set[int]:
    """`pg_snapshot_xip`."""
    running = snapshot.split(":")[2]
    return set(map(int, running.split(","))) if running else set()


@cache
def _postgresql() -> PostgresOutbox:
    return PostgresOutbox(_NAMES, "now", "true")


@cache
def _mysql() -> MysqlOutbox:
    return MysqlOutbox(_NAMES, "now")


@cache
def _name_of(is_postgresql: bool, text: str) -> str:
    """Which of its statements a text is; where parts of it are filled in later, by what comes before them."""
    sql = _postgresql()._sql if is_postgresql else _mysql()._sql
    for name, template in sql.items():
        fixed, later, _ = template.partition("{")
        if text == template or (later and text.startswith(fixed) and name not in ("add", "added", "riding")):
            return "cursors_" if name == "cursors" else name
    raise NotImplementedError(text)
