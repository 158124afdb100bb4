"""One schedule of a world of the audit chain: who goes next, what goes wrong, and whether the chain is whole.

What writers do is semel's own: the plan of the SQL stores, statement by statement, on tables that carry out one
statement at a time. Invariants, looked at after every statement: the chain has no gap, no fork and no broken link (A1);
no entry is in it twice (A2); what a writer was told is in it is in it (A3); the look that operators have finds no
fault (A4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from semel.core.flow import run
from semel.core.operators.audit import AddSeal, AppendEntry, EntryAppended, head_at, seal_after
from semel.core.operators.chain import ChainHead, Seal, StoredEntry, hash_entry, hash_origin, name_chain, write_note
from semel.server.audit.flows import verify
from semel.stores.memory import Table
from semel.stores.operators.memory import MemoryAudit
from semel.stores.sql.dialect import Asking, Command, Row
from semel.stores.sql.operators.plan import ENTRY_COLUMNS, HEAD_COLUMNS, OPERATOR_PLANS
from semel_lab.simulate.audits.world import AuditWorld
from semel_lab.simulate.checks.violation import Violation
from semel_lab.simulate.events.database import START
from semel_lab.simulate.loop import Dice, Script

SCOPE: Final = "shop"
CHAIN: Final = name_chain(SCOPE)
_MOST_MOVES: Final = 400


class Statement(Command, frozen=True):
    """A statement, as what it does to the tables."""

    act: Callable[[], list[Row]] | None = None


class ModelAudit:
    """The statements of a database, each of which is carried out at once and alone."""

    def __init__(self, table: MemoryAudit, clock: Callable[[], int]) -> None:
        self.table = table
        self._clock = clock

    def command(self, name: str, *values: Any) -> Statement:
        """A statement that all databases understand."""
        acts: dict[str, Callable[..., list[Row]]] = {
            "head": self._read_head,
            "insert_head": self._insert_head,
            "entries": self._read_entries,
        }
        return Statement(name, act=lambda: acts[name](*values))

    def command_among(self, name: str, among: Sequence[bytes], *values: Any) -> Statement:
        """The entries with one of these ids."""
        del values
        return Statement(name, act=lambda: [_row(entry) for entry in self.rows() if entry.id in among])

    def command_where(self, name: str, condition: str, *values: Any) -> Statement:
        """Nothing is searched for here."""
        raise NotImplementedError(name, condition, values)

    def append(self, seen: ChainHead, moved: ChainHead, rows: Sequence[Row]) -> Asking[bool]:
        """Move a head that is still as it was seen, and add entries."""
        return bool((yield Statement("append", act=lambda: self.move(seen, moved, rows))))

    def seal(self, chain: bytes, seal: Seal) -> Asking[bool]:
        """Writers do not seal."""
        raise NotImplementedError(chain, seal)

    def rows(self) -> list[StoredEntry]:
        """The entries, in order."""
        return [entry for _, entry in sorted(self.table.entries.get(CHAIN, {}).items())]

    def move(self, seen: ChainHead, moved: ChainHead, rows: Sequence[Row]) -> list[Row]:
        """Compare and set."""
        head = self.table.heads[CHAIN]
        if (head.seq, head.hash) != (seen.seq, seen.hash):
            return []
        self.add(rows)
        self.table.heads[CHAIN] = ChainHead(
            **{**_fields(head), "seq": moved.seq, "hash": moved.hash, "at_us": moved.at_us}
        )
        return [(CHAIN,)]

    def add(self, rows: Sequence[Row]) -> None:
        """Put entries into the table, whose primary key they must not break."""
        for _, *columns in rows:
            entry = StoredEntry(**dict(zip(ENTRY_COLUMNS, columns, strict=True)))
            entries = self.table.entries.setdefault(CHAIN, {})
            if entry.seq in entries:
                raise Violation("A1", f"there are two entries {entry.seq}")
            entries[entry.seq] = entry

    def _read_head(self, chain: bytes) -> list[Row]:
        head = self.table.heads.get(chain)
        return [] if head is None else [(*(getattr(head, name) for name in HEAD_COLUMNS), self._clock())]

    def _insert_head(self, chain: bytes, scope: str, hash_: bytes, seal_hash: bytes) -> list[Row]:
        now = self._clock()
        new = ChainHead(
            chain=chain,
            scope=scope,
            seq=0,
            hash=hash_,
            at_us=0,
            kept_from=1,
            sealed=0,
            sealed_us=now,
            seal_hash=seal_hash,
        )
        self.table.heads.setdefault(chain, new)
        return []

    def _read_entries(self, chain: bytes, after: int, upto: int, limit: int) -> list[Row]:
        del chain
        return [_row(entry) for entry in self.rows() if after < entry.seq <= upto][:limit]


class _Dialect:
    """As much of a dialect as plans of the audit chain need."""

    def __init__(self, audit: ModelAudit) -> None:
        self.audit = audit


def _fields(head: ChainHead) -> dict[str, Any]:
    return {name: getattr(head, name) for name in HEAD_COLUMNS}


def _row(entry: StoredEntry) -> Row:
    return tuple(getattr(entry, name) for name in ENTRY_COLUMNS)


class _Writer:
    """A process that appends, and what it waits for."""

    def __init__(self, actor: int, work: Generator[Any, Any, None]) -> None:
        self.actor = actor
        self.work = work
        self.wanted: Statement | None = None
        self.go(next, work)

    def go(self, move: Callable[..., Any], *values: Any) -> None:
        """Go on to the next statement."""
        try:
            self.wanted = move(*values)
        except StopIteration:
            self.wanted = None

    def act(self) -> None:
        """Nothing by itself: who chooses it carries its statement out."""


class _LostReply(Exception):
    """The connection broke after a statement was sent."""


class AuditSimulation:
    """One schedule."""

    def __init__(
        self, world: AuditWorld, choices: Script | Dice, seen: dict[str, int], trace: list[str] | None = None
    ) -> None:
        self.world = world
        self.choices = choices
        self.seen = seen
        self.trace = trace
        self.now_us = START
        self.left = world.budget
        self.moves = 0
        self.table = Table()
        self.model = ModelAudit(self.table.audit, lambda: self.now_us)
        self.told: set[bytes] = set()
        sealers = [_Writer(-1 - number, self._seal()) for number in range(world.seals)]
        self._writers = [_Writer(actor, self._append_all(actor)) for actor in range(world.writers)] + sealers

    def run(self) -> None:
        """Let everybody go on to their ends."""
        while self.moves < _MOST_MOVES:
            waiting = [writer for writer in self._writers if writer.wanted is not None]
            if not waiting:
                break
            self.moves += 1
            self._go_on(waiting[self.choices.move(waiting) if len(waiting) > 1 else 0])
            self._check()
        self._look()

    def untie(self) -> None:
        """Let go of what points in circles."""
        for writer in self._writers:
            writer.work.close()
        self._writers.clear()

    def _go_on(self, writer: _Writer) -> None:
        wanted = writer.wanted
        assert wanted is not None
        assert wanted.act is not None
        menu = [fault for fault in self.world.faults if self.left and writer.actor >= 0]
        choice = self.choices.fault(len(menu) + 1) if menu else 0
        fault = menu[choice - 1] if choice else ""
        self.note(f"writer {writer.actor}", f"{wanted.text}{fault and ': ' + fault}")
        if fault:
            self.left -= 1
            self.seen[f"audit: fault: {fault}"] += 1
        if fault == "crash":
            writer.work.close()
            writer.wanted = None
            return
        self.now_us += 1
        rows = wanted.act()
        if wanted.text == "append" and not rows:
            self.seen["audit: overtaken"] += 1
        if fault == "lost":
            writer.go(writer.work.throw, _LostReply())
        else:
            writer.go(writer.work.send, rows)

    def _append_all(self, actor: int) -> Generator[Any, Any, None]:
        """Append entries, each until that is acknowledged."""
        world = self.world
        new = [_new_entry(actor, number) for number in range(world.entries)]
        for first in range(0, world.entries, world.together):
            asked = new[first : first + world.together]
            while True:
                before = {entry.id for entry in self.model.rows()}
                try:
                    answers = yield from OPERATOR_PLANS[AppendEntry](_Dialect(self.model), asked, joined=False)
                except _LostReply:
                    continue
                if any(isinstance(answer, _LostReply) for answer in answers):
                    continue
                break
            for answer in answers:
                if not isinstance(answer, EntryAppended):
                    raise Violation("A3", f"an entry was refused: {answer!r}")
                self.seen["audit: appended before" if answer.entry.id in before else "audit: appended"] += 1
                self.told.add(answer.entry.id)

    def _seal(self) -> Generator[Any, Any, None]:
        """Seal what is there: look, and seal later if nobody else has."""
        head: ChainHead | None = None
        while head is None or head.seq == head.sealed:
            found = yield Statement("look", act=lambda: [(self.table.audit.heads.get(CHAIN),)])
            head = found[0][0]
            if head is not None and head.seq == head.sealed and not self._has_more_to_come():
                return
        at, entries = head, tuple(entry for entry in self.model.rows() if head.sealed < entry.seq <= head.seq)
        seal = seal_after(at, entries, self.now_us)
        rows = yield Statement("seal", act=lambda: self._add_seal(seal))
        self.seen["audit: sealed" if rows[0][0] else "audit: sealed by another"] += 1

    def _has_more_to_come(self) -> bool:
        return any(writer.actor >= 0 and writer.wanted is not None for writer in self._writers)

    def _add_seal(self, seal: Seal) -> list[Row]:
        answer: Any = self.table.apply(AddSeal(CHAIN, seal), self.now_us)
        return [(answer.is_done,)]

    def _check(self) -> None:
        head = self.table.audit.heads.get(CHAIN)
        rows = self.model.rows()
        previous, end = hash_origin(SCOPE), None
        for number, entry in enumerate(rows, 1):
            if entry.seq != number or entry.previous != previous or entry.hash != hash_entry(entry):
                raise Violation("A1", f"entry {entry.seq} does not follow what is before it")
            previous, end = entry.hash, entry
        if head is not None and (head.seq, head.hash) != (len(rows), previous):
            raise Violation("A1", f"the head says {head.seq}, and the chain has {len(rows)} entries")
        if end is not None and head is not None and head_at(head, end) != head:
            raise Violation("A1", "the head is not that of the last entry")
        twice = [id_ for id_, count in Counter(entry.target for entry in rows).items() if count > 1]
        if twice:
            raise Violation("A2", f"{twice[0]} is in the chain twice")
        if not self.told <= {entry.id for entry in rows}:
            raise Violation("A3", "an entry was acknowledged, and is not in the chain")

    def _look(self) -> None:
        report = run(verify(SCOPE), lambda wanted: self.table.apply(wanted, self.now_us))
        if report.faults:
            raise Violation("A4", report.faults[0].text)

    def note(self, who: str, what: str) -> None:
        """A line for people."""
        if self.trace is not None:
            self.trace.append(f"{self.now_us - START:8}  {who:<10} {what}")


def _new_entry(actor: int, number: int) -> AppendEntry:
    return AppendEntry(
        scope=SCOPE,
        id=b"%02d.%013d" % (actor, number),
        actor=f"writer {actor}",
        action="resolve",
        target=f"{actor}/{number}",
        outcome="done",
        written=write_note(bytes(16), "why", {}),
    )
