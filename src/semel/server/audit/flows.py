"""What is done with the audit chain, as flows: for the server, which awaits, and for the command line, which does not.

- An entry has its random id before it is sent, so that sending it again after a lost reply appends nothing twice.
- A range is sealed by whoever appends, once enough entries or time have passed; that it could not be sealed is no
  reason for an entry to fail, because the next one seals more.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from semel.core.flow import Flow, ask
from semel.core.operators.audit import (
    AddSeal,
    AppendEntry,
    EntryAppended,
    FindStrays,
    KeepFrom,
    ReadEntries,
    ReadHeads,
    ReadSeals,
    RedactEntry,
    ScanEntries,
    Stray,
    seal_after,
)
from semel.core.operators.chain import (
    SALT_BYTES,
    ChainHead,
    Note,
    Phase,
    Seal,
    StoredEntry,
    name_chain,
    read_note,
    write_note,
)
from semel.core.operators.verification import EXPIRE, REDACT, Anchor, AuditFault, ChainCheck, ExpiredCheck
from semel.core.record import instant, store_instant
from semel.engine.call_flow import Pause
from semel.engine.engine import EngineBase
from semel.errors import RecordNotFound, StoreUnavailable, UsageError
from semel.stores.rows import storable

SEAL_AFTER: Final = 100
"""A chain is sealed once so many entries are not,"""
SEAL_EVERY_US: Final = 60_000_000
"""or once the last seal is so old."""
MOST_IN_SEAL: Final = 1000
_PAGE: Final = 500
_CONFLICTS: Final = 60
_RESENDS: Final = 3
_LONGEST: Final = {"scope": 255, "actor": 200, "action": 64, "target": 255, "outcome": 255, "reason": 2000}
_MOST_DETAILS: Final = 32
_LONGEST_DETAIL: Final = 1000
_PLACE: Final = re.compile(r"(-?[0-9]{1,19})-(-?[0-9]{1,19})-((?:[0-9a-f]{2}){0,64})")
"""As entries say it; more digits would not fit what stores count with."""
_MOST_US: Final = 2**63 - 1
_EARLIEST_US, _LATEST_US = 0, 250_000_000_000_000_000
"""What is shown of an instant: from 1970 to 9892, of which every clock can tell the time of day."""
_DAMAGED: Final = "(damaged: see semel audit verify)"
_NOT_SEALED: Final = "the audit chain of scope %r could not be sealed (%s): run semel audit verify"
_LOG: Final = logging.getLogger("semel.audit")
_PHASES: Final[dict[int, Literal["whole", "begun", "ended"]]] = {
    Phase.WHOLE: "whole",
    Phase.BEGUN: "begun",
    Phase.ENDED: "ended",
}


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry of the audit chain.

    Attributes:
        scope: whose chain it is in; empty: of nobody in particular.
        seq: its number in it, from 1.
        at: when, by the store's clock.
        actor: who did it.
        action: what was done.
        target: to what: a reference.
        reason: why; None: it was taken out.
        outcome: what came of it.
        detail: more about it; empty where it was taken out.
        phase: `whole` for something that is over, `begun` and `ended` for the two ends of an action.
        begun: the number of the entry whose action ends here.
        is_open: begins an action whose end is not in the chain: it runs, or its process has died.
        hash: of the entry, as hex digits.
        place: where it is in a list, for `before`.
    """

    scope: str
    seq: int
    at: datetime
    actor: str
    action: str
    target: str
    reason: str | None
    outcome: str
    detail: Mapping[str, str]
    phase: Literal["whole", "begun", "ended"]
    begun: int | None
    is_open: bool
    hash: str
    place: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What a look at the chains has found.

    Attributes:
        entries: how many entries were hashed again.
        sealed: how many of them are sealed.
        faults: what is not as it was written; empty: all is whole.
        scopes: how many chains there are.
        anchors: how many seals were compared that were written down elsewhere; without any, what is gone together with
            its head, and what was hashed anew, is not found.
    """

    entries: int
    sealed: int
    faults: tuple[AuditFault, ...]
    scopes: int
    anchors: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


class NewEntry(msgspec.Struct, frozen=True):
    """What an entry is to say, before it is appended.

    Raises:
        UsageError: a text is too long, or empty where it must not be.
    """

    scope: str
    actor: str
    action: str
    target: str
    reason: str
    outcome: str = ""
    detail: dict[str, str] = {}
    phase: Phase = Phase.WHOLE
    ends: int = 0

    def __post_init__(self) -> None:
        for name, longest in _LONGEST.items():
            _check_text(name, getattr(self, name), longest, may_be_empty=name not in ("actor", "action"))
        if len(self.detail) > _MOST_DETAILS:
            raise UsageError(f"An audit entry has at most {_MOST_DETAILS} details; nothing was appended.")
        for name, value in self.detail.items():
            _check_text("the name of a detail", name, 64, may_be_empty=False)
            _check_text(f"the detail {name!r}", value, _LONGEST_DETAIL, may_be_empty=True)


def new_decision(
    scope: str, who: str, action: str, target: str, reason: str, *, detail: Mapping[str, object] | None = None
) -> NewEntry:
    """What an entry says of a decision that was taken at the command line; texts that are too long are cut."""
    longest = _LONGEST
    told = {name: str(value) for name, value in (detail or {}).items()}
    return NewEntry(
        scope,
        who[: longest["actor"]],
        action,
        target[: longest["target"]],
        reason[: longest["reason"]],
        detail=told,
    )


def _check_text(name: str, value: object, longest: int, *, may_be_empty: bool) -> None:
    if not isinstance(value, str) or len(value) > longest or "\0" in value or not (value.strip() or may_be_empty):
        least = "" if may_be_empty else ", not empty"
        raise UsageError(f"{name} must be a text of at most {longest} characters{least}; nothing was appended.")


def _kept(text: str) -> str:
    return storable(text) or ""


class AuditFlows:
    """What is done with the chains of one store.

    Args:
        engine: whose store it is; draws ids and says how long to pause.
        draw: gives so many random bytes.
    """

    def __init__(self, engine: EngineBase, draw: Callable[[int], bytes]) -> None:
        self._new_id = engine.new_nonce
        self._jitter = engine.jitter
        self._draw = draw

    def append(self, new: NewEntry) -> Flow[AuditEntry]:
        """Append an entry, and seal what is due.

        Raises:
            StoreUnavailable: the store did not answer, or others were first at every try.
        """
        detail = {_kept(name): _kept(value) for name, value in new.detail.items()}
        operation = AppendEntry(
            scope=_kept(new.scope),
            id=self._new_id(),
            actor=_kept(new.actor),
            action=_kept(new.action),
            target=_kept(new.target),
            outcome=_kept(new.outcome),
            written=write_note(self._draw(SALT_BYTES), _kept(new.reason), detail),
            phase=int(new.phase),
            ends=new.ends,
        )
        appended = yield from self._send(operation)
        head = appended.head
        if head.seq - head.sealed >= SEAL_AFTER or head.at_us - head.sealed_us >= SEAL_EVERY_US:
            try:
                yield from self.seal_chain(head)
            except StoreUnavailable as error:
                _LOG.info("the audit chain was not sealed this time: %s", error)
            except Exception as error:  # noqa: BLE001 - the entry is written, and a chain changed by hand undoes none
                _LOG.error(_NOT_SEALED, head.scope, type(error).__qualname__)
        return show_entry(appended.entry)

    def _send(self, operation: AppendEntry) -> Flow[EntryAppended]:
        """Append, however often others are first; what may be lost on the way is sent again, with the same id."""
        conflicts = resends = 0
        while True:
            try:
                return (yield from ask(operation))
            except StoreUnavailable as error:
                conflicts += error.conflict
                resends += not error.conflict
                if conflicts > _CONFLICTS or resends > _RESENDS:
                    raise
            yield from ask(Pause((0.01 + 0.09 * self._jitter()) * (1 if conflicts > resends else 5)))

    def seal_chain(self, head: ChainHead) -> Flow[ChainHead]:
        """Seal what is not sealed of a chain; answers its head as it is then."""
        while head.sealed < head.seq:
            found = yield from ask(ReadEntries(head.chain, head.sealed, head.seq, MOST_IN_SEAL))
            numbers = [entry.seq for entry in found.entries]
            if numbers != list(range(head.sealed + 1, head.sealed + 1 + len(numbers))) or not numbers:
                _LOG.error("entries of the audit chain of scope %r are missing: run semel audit verify", head.scope)
                return head
            seal = seal_after(head, found.entries, head.at_us)
            yield from ask(AddSeal(head.chain, seal))
            heads = (yield from ask(ReadHeads(head.scope, b"", 1))).heads
            if not heads:
                return head
            (head,) = heads
        return head

    def seal(self, scope: str | None) -> Flow[list[Anchor]]:
        """Seal all that is not sealed of one chain or all; answers the last seal of each.

        A chain that was changed, so that its next seal is refused, keeps none of the others from being sealed.
        """
        anchors: list[Anchor] = []
        for head in (yield from _all_heads(scope)):
            try:
                sealed = yield from self.seal_chain(head)
            except StoreUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - what a database says of rows that nobody writes but by hand
                _LOG.error(_NOT_SEALED, head.scope, type(error).__qualname__)
                sealed = head
            if sealed.sealed:
                anchors.append(Anchor(sealed.scope, sealed.sealed, sealed.seal_hash.hex(), sealed.sealed_us))
        return anchors

    def redact(self, scope: str, seq: int, *, actor: str, reason: str) -> Flow[AuditEntry]:
        """Take what a person wrote out of an entry; the chain says so first.

        Raises:
            RecordNotFound: there is no such entry, or nothing is left in it.
        """
        chain = name_chain(_kept(scope))
        found = (yield from ask(ReadEntries(chain, seq - 1, seq, 1))).entries
        if not found or found[0].written is None:
            raise RecordNotFound(f"There is nothing to take out of entry {seq}; nothing was changed.")
        said = yield from self.append(NewEntry(scope, actor, REDACT, str(seq), reason, "done"))
        yield from ask(RedactEntry(chain, seq))
        return said

    def expire(self, older_than: timedelta, *, actor: str, reason: str) -> Flow[int]:
        """Delete entries that are older, up to the end of a seal; each chain says so first. Answers how many went."""
        count = 0
        oldest = older_than // timedelta(microseconds=1)
        for head in (yield from _all_heads(None)):
            now = (yield from ask(ReadHeads(head.scope, b"", 1))).now_us
            ends = [seal.last for seal in (yield from _all_seals(head)) if seal.at_us <= now - oldest]
            kept_from = max([head.kept_from, *(last + 1 for last in ends)])
            if kept_from > head.kept_from:
                yield from self.append(NewEntry(head.scope, actor, EXPIRE, str(kept_from), reason, "done"))
            while kept_from > 1:
                dropped = (yield from ask(KeepFrom(head.chain, kept_from, _PAGE))).count
                count += dropped
                if dropped < _PAGE:
                    break
        return count


def _all_heads(scope: str | None) -> Flow[list[ChainHead]]:
    heads: list[ChainHead] = []
    while True:
        after = heads[-1].chain if heads else b""
        page = (yield from ask(ReadHeads(scope, after, _PAGE))).heads
        heads += page
        if len(page) < _PAGE:
            return heads


def _all_seals(head: ChainHead) -> Flow[list[Seal]]:
    seals: list[Seal] = []
    while True:
        after = seals[-1].last if seals else 0
        page = (yield from ask(ReadSeals(head.chain, after, head.sealed, _PAGE))).seals
        seals += page
        if len(page) < _PAGE:
            return seals


def verify(scope: str | None, anchors: Sequence[Anchor] = ()) -> Flow[AuditReport]:
    """Compare one chain or all of them with what was written: hashes, heads, seals and anchors."""
    heads = yield from _all_heads(scope)
    entries = sealed = 0
    faults: list[AuditFault] = []
    for head in heads:
        mine = [anchor for anchor in anchors if anchor.scope == head.scope]
        check, found = yield from _check_chain(head, mine)
        entries += check.entries
        sealed += max(0, head.sealed - head.kept_from + 1)
        faults += found
        if head.chain != name_chain(head.scope):
            text = f"entry {head.seq}: its chain is another one than that of its scope"
            faults.append(AuditFault(head.scope, head.seq, "insertion", text))
    strays = (yield from ask(FindStrays())).strays
    faults += _judge_strays(stray for stray in strays if scope is None or stray.chain == name_chain(_kept(scope)))
    known = {head.scope for head in heads}
    for anchor in anchors:
        if anchor.scope not in known and scope in (None, anchor.scope):
            text = f"entry {anchor.seq}: an anchor reaches this far, and the chain is gone"
            faults.append(AuditFault(anchor.scope, anchor.seq, "truncation", text))
    compared = sum(scope in (None, anchor.scope) for anchor in anchors)
    return AuditReport(entries, sealed, tuple(faults), len(heads), compared)


def _check_chain(
    head: ChainHead, anchors: Iterable[Anchor], looked_for: frozenset[int] = frozenset()
) -> Flow[tuple[ChainCheck, list[AuditFault]]]:
    seals = yield from _all_seals(head)
    check = ChainCheck(head, seals, anchors)
    after = head.kept_from - 1
    while after < head.seq:
        page = (yield from ask(ReadEntries(head.chain, after, head.seq, _PAGE))).entries
        for entry in page:
            check.add(entry)
        if len(page) < _PAGE:
            break
        after = page[-1].seq
    faults = [*(yield from _check_expired(head, seals)), *check.finish()]
    if faults:
        now = (yield from ask(ReadHeads(head.scope, b"", 1))).heads
        # Entries were deleted or redacted while they were read, and the one that says so stands behind what was read.
        # It stands there before anything is gone: what is not said at the second look is said nowhere.
        unsaid = frozenset(fault.seq for fault in faults if fault.is_unsaid)
        if now and (now[0].kept_from > head.kept_from or (now[0].seq > head.seq and unsaid - looked_for)):
            return (yield from _check_chain(now[0], anchors, looked_for | unsaid))
    return check, faults


def _check_expired(head: ChainHead, seals: Sequence[Seal]) -> Flow[list[AuditFault]]:
    """What is below the entries that are kept, and no expiry has left there.

    An expiry may delete meanwhile, the oldest first: what seems to be put in and is gone at a second look was not.
    """
    check = ExpiredCheck(head, seals)
    after = 0
    while after < head.kept_from - 1:
        page = (yield from ask(ReadEntries(head.chain, after, head.kept_from - 1, _PAGE))).entries
        for entry in page:
            check.add(entry)
        if len(page) < _PAGE:
            break
        after = page[-1].seq
    faults: list[AuditFault] = []
    for first, last in check.finish():
        for entry in (yield from ask(ReadEntries(head.chain, first - 1, last, 1))).entries:
            text = f"entry {entry.seq}: it was put in or changed; entries are kept from {head.kept_from} on"
            faults.append(AuditFault(head.scope, entry.seq, "insertion", text))
    return faults


def _judge_strays(strays: Iterable[Stray]) -> list[AuditFault]:
    faults: list[AuditFault] = []
    for stray in strays:
        what = "it" if stray.is_entry else "a seal"
        if stray.head is None:
            text = f"entry {stray.seq}: {what} is there, and the head of its chain is gone"
            faults.append(AuditFault(stray.scope, stray.seq, "truncation", text))
        elif stray.is_entry and stray.seq < 1:
            text = f"entry {stray.seq}: it was put in before the beginning of the chain"
            faults.append(AuditFault(stray.scope, stray.seq, "insertion", text))
        elif stray.is_entry:
            text = f"entry {stray.seq}: it was put in behind the end of the chain, which is entry {stray.head}"
            faults.append(AuditFault(stray.scope, stray.seq, "insertion", text))
        else:
            text = f"entry {stray.seq}: it was sealed, and the head says that only entries up to {stray.head} are"
            faults.append(AuditFault(stray.scope, stray.seq, "truncation", text))
    return faults


def show_entry(stored: StoredEntry) -> AuditEntry:
    """A stored entry as people see it; one that was damaged is shown too, and does not hide the others."""
    note = None if stored.written is None else _note_of(stored.written)
    return AuditEntry(
        scope=stored.scope,
        seq=stored.seq,
        at=instant(min(max(stored.at_us, _EARLIEST_US), _LATEST_US)),
        actor=stored.actor,
        action=stored.action,
        target=stored.target,
        reason=None if note is None else note.reason,
        outcome=stored.outcome,
        detail={} if note is None else note.detail,
        phase=_PHASES.get(stored.phase, "whole"),
        begun=stored.ends or None,
        is_open=stored.is_open,
        hash=stored.hash.hex(),
        place=f"{stored.at_us}-{stored.seq}-{name_chain(stored.scope).hex()}",
    )


def _note_of(written: bytes) -> Note:
    try:
        return read_note(written)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Note(_DAMAGED, {})


def read_page(asked: ScanEntries) -> Flow[list[AuditEntry]]:
    """A page of entries, as people see them."""
    return [show_entry(stored) for stored in (yield from ask(asked)).entries]


def scan(
    *,
    scopes: Collection[str] | None,
    actor: str | None,
    action: str | None,
    target: str | None,
    only_open: bool,
    before: datetime | str | None,
    limit: int,
) -> ScanEntries:
    """Which entries are asked for."""
    return ScanEntries(
        scopes=None if scopes is None else tuple(sorted(set(scopes))),
        actor=actor,
        action=action,
        target=target,
        only_open=only_open,
        before=_place_of(before),
        limit=limit,
    )


def _place_of(before: datetime | str | None) -> tuple[int, int, bytes] | None:
    """Where a list goes on.

    Raises:
        UsageError: it is no place.
    """
    if before is None:
        return None
    if isinstance(before, datetime):
        return store_instant(before), 0, b""
    found = _PLACE.fullmatch(before)
    if found is None:
        raise UsageError(f"{before!r:.100} is no place in the audit chain; give the `place` of an entry.")
    at_us, seq, chain = found.groups()
    return _within_store(int(at_us)), _within_store(int(seq)), bytes.fromhex(chain)


def _within_store(number: int) -> int:
    return min(max(number, -_MOST_US), _MOST_US)
