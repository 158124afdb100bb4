"""What the API gives, as values: one class for each shape, which is also what the OpenAPI document says.

Those of records are in `record_views`, which the command line shares.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from semel.batch import BatchStatus
from semel.batch.items import ItemResult
from semel.core.erasure.port import SubjectErasureReport
from semel.core.events.letters import StoredLetter
from semel.core.events.outbox import ParkedEvent, StreamLag
from semel.core.record import Failure, instant
from semel.events.dead_letters import unpack
from semel.server.access import User
from semel.server.actions.events import letter_id
from semel.server.actions.records import Body
from semel.server.api.record_views import EntryView, HolderView, RecordView, iso, iso_or_none
from semel.server.attention import Need, Needs
from semel.server.audit import AuditEntry, AuditReport
from semel.server.bulk import BulkProgress
from semel.server.hooks import OperationsWithoutHook
from semel.server.tokens import Token


class Problem(msgspec.Struct, frozen=True):
    """Why a request was not carried out, as RFC 9457 has it; `because` is a stable word."""

    type: str
    title: str
    status: int
    detail: str
    because: str


class RecordList(msgspec.Struct, frozen=True):
    """A page of records; no cursor: it was the last."""

    records: list[RecordView]
    cursor: str | None


class CountView(msgspec.Struct, frozen=True):
    """How many records of an operation are in a status."""

    operation: str
    status: str
    number: int


class CountList(msgspec.Struct, frozen=True):
    """How many there are of each."""

    counts: list[CountView]
    number: int


class HistoryView(msgspec.Struct, frozen=True):
    """What happened to a record, oldest first."""

    entries: list[EntryView]


class StepView(msgspec.Struct, frozen=True):
    """A finished step, its value as JSON text, as far as it is shown; null where there is none."""

    name: str
    text: str | None
    why_none: str
    is_cut: bool


class BodyView(msgspec.Struct, frozen=True):
    """What a record keeps of its outcome, as JSON text; numbers are exact."""

    text: str | None
    why_none: str
    is_cut: bool
    steps: list[StepView]

    @staticmethod
    def of(body: Body) -> BodyView:
        """As it is shown."""
        steps = [StepView(step.name, step.text, step.why_none, step.is_cut) for step in body.steps]
        return BodyView(body.text, body.why_none, body.is_cut, steps)


class LetterView(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter, without the content of its event."""

    id: str
    consumer: str
    scope: str | None
    reason: str
    type: str
    attempts: int
    error: Failure | None
    first: str
    last: str
    seen: int
    reference: str | None

    @staticmethod
    def of(letter: StoredLetter) -> LetterView:
        """As it is shown."""
        return LetterView(
            id=letter_id(letter),
            consumer=letter.consumer,
            scope=letter.scope or None,
            reason=letter.reason,
            type=letter.type,
            attempts=letter.attempts,
            error=letter.error,
            first=iso(instant(letter.first_us)),
            last=iso(instant(letter.last_us)),
            seen=letter.seen,
            reference=None if letter.record is None else letter.record.hex(),
        )


class LetterList(msgspec.Struct, frozen=True):
    """A page of dead letters."""

    letters: list[LetterView]
    cursor: str | None


class LetterBody(msgspec.Struct, frozen=True):
    """What was delivered: the event as JSON text, or headers and body (base64) of what is no event."""

    event: str | None
    headers: Mapping[str, str] | None
    body: str | None

    @staticmethod
    def of(letter: StoredLetter) -> LetterBody:
        """As it is shown."""
        if letter.readable:
            return LetterBody(letter.content.decode("utf-8", "replace"), None, None)
        headers, body = unpack(letter.content)
        return LetterBody(None, headers, base64.b64encode(body).decode())


class DispositionView(msgspec.Struct, frozen=True):
    """What came of handing an event to its consumer again."""

    status: str
    action: str


class StreamView(msgspec.Struct, frozen=True):
    """How many events of a stream wait, and how many are parked."""

    stream: str
    waiting: int
    oldest: str | None
    parked: int
    failed: int

    @staticmethod
    def of(lag: StreamLag) -> StreamView:
        """As it is shown."""
        oldest = None if lag.oldest_us is None else iso(instant(lag.oldest_us))
        return StreamView(lag.stream, lag.waiting, oldest, lag.parked, lag.failed)


class StreamList(msgspec.Struct, frozen=True):
    """The streams of the outbox."""

    streams: list[StreamView]


class ParkedView(msgspec.Struct, frozen=True, kw_only=True):
    """A parked event, without its content."""

    position: int
    type: str
    scope: str | None
    ordering_key: str | None
    error: Failure | None
    attempts: int
    parked: str

    @staticmethod
    def of(parked: ParkedEvent) -> ParkedView:
        """As it is shown."""
        event = parked.stored.event
        return ParkedView(
            position=parked.stored.position,
            type=event.type,
            scope=event.scope or None,
            ordering_key=event.ordering_key,
            error=parked.error,
            attempts=parked.attempts,
            parked=iso(instant(parked.parked_us)),
        )


class ParkedList(msgspec.Struct, frozen=True):
    """A page of parked events."""

    events: list[ParkedView]
    after: int | None


class Number(msgspec.Struct, frozen=True):
    """How many were changed."""

    number: int


class BatchView(msgspec.Struct, frozen=True, kw_only=True):
    """How far a batch is."""

    id: str
    scope: str | None
    operation: str
    state: str
    reason: str
    total: int
    completed: int
    failed: int
    skipped: int
    in_doubt: int
    rate: float | None
    eta_seconds: float | None
    started: str | None
    updated: str

    @staticmethod
    def of(scope: str, status: BatchStatus) -> BatchView:
        """As it is shown."""
        return BatchView(
            id=status.id,
            scope=scope or None,
            operation=status.operation,
            state=status.state,
            reason=status.reason,
            total=status.total,
            completed=status.completed,
            failed=status.failed,
            skipped=status.skipped,
            in_doubt=status.in_doubt,
            rate=status.rate,
            eta_seconds=None if status.eta is None else status.eta.total_seconds(),
            started=iso_or_none(status.started),
            updated=iso(status.updated),
        )


class BatchList(msgspec.Struct, frozen=True):
    """A page of batches in the order in which they were begun; `after` is where the next one begins."""

    batches: list[BatchView]
    after: int | None


class ItemView(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a batch that failed or is in doubt, and why."""

    id: str
    position: int
    status: str
    error_type: str | None
    message: str
    attempts: int

    @staticmethod
    def of(result: ItemResult[Any]) -> ItemView:
        """As it is shown."""
        error = result.error
        return ItemView(
            id=result.id,
            position=result.position,
            status=result.status,
            error_type=None if error is None else error.type,
            message="" if error is None else error.message,
            attempts=result.attempts,
        )


class ItemList(msgspec.Struct, frozen=True):
    """A page of items in the order of the input; `after` is where the next one begins."""

    items: list[ItemView]
    after: int | None


class NeedView(msgspec.Struct, frozen=True, kw_only=True):
    """What needs a person: some of one kind."""

    kind: str
    operation: str
    policy: str | None
    number: int
    is_exact: bool
    oldest: str
    target: str
    scope: str | None
    why: str
    holder: HolderView | None
    suggestion: str
    cause: str
    paused_by: str

    @staticmethod
    def of(need: Need) -> NeedView:
        """As it is shown."""
        return NeedView(
            kind=need.kind,
            operation=need.operation,
            policy=need.policy,
            number=need.number,
            is_exact=need.is_exact,
            oldest=iso(need.oldest),
            target=need.target,
            scope=need.scope or None,
            why=need.why,
            holder=None if need.holder is None else HolderView.of(need.holder),
            suggestion=need.suggestion,
            cause=need.cause,
            paused_by=need.paused_by,
        )


class NeedList(msgspec.Struct, frozen=True):
    """All that needs a person, the longest waiting first, what could not be looked for, and what not to its end.

    `cut` are kinds of which there are so many that more may need a person than is told, even where none is;
    `without_hook` are operations in doubt that wait for a hook which is not known here.
    """

    needs: list[NeedView]
    number: int
    not_looked_for: list[str]
    at: str
    cut: list[str]
    without_hook: list[str]

    @staticmethod
    def of(needs: Needs) -> NeedList:
        """As it is shown."""
        return NeedList(
            [NeedView.of(need) for need in needs.needs],
            needs.number,
            list(needs.not_looked_for),
            iso(needs.at),
            list(needs.cut),
            list(needs.without_hook),
        )


class SweepView(msgspec.Struct, frozen=True):
    """What a sweep did, and what it leaves."""

    deleted: int
    lapsed: int
    reconciled: int
    held: int
    invalidated: int


class RefusedErasure(msgspec.Struct, frozen=True):
    """What was not erased for one reason, and the names of the first of them."""

    kind: str
    why: str
    number: int
    names: list[str]


class ErasureView(msgspec.Struct, frozen=True):
    """What was erased about a subject, or would be, by kind; and what was not."""

    erased: dict[str, int]
    refused: list[RefusedErasure]
    dry_run: bool

    @classmethod
    def of(cls, report: SubjectErasureReport) -> ErasureView:
        """As the API shows a report."""
        refused = [
            RefusedErasure(kind, one.why, one.number, list(one.names))
            for kind, refusals in report.refused.items()
            for one in refusals
        ]
        return cls(dict(report.erased), refused, report.dry_run)


class UserView(msgspec.Struct, frozen=True):
    """Who is signed in, and what they may do."""

    name: str
    roles: list[str]
    scopes: list[str] | None
    permissions: list[str]

    @staticmethod
    def of(user: User) -> UserView:
        """As it is shown."""
        scopes = None if user.scopes is None else sorted(user.scopes)
        return UserView(user.name, sorted(user.roles), scopes, sorted(user.permissions))


class OperationView(msgspec.Struct, frozen=True):
    """An operation with records to be reconciled: whether its hook can be asked here."""

    operation: str
    has_hook: bool


class WithoutHookView(msgspec.Struct, frozen=True):
    """An operation with records in doubt that wait for a hook, which is not known here."""

    operation: str
    number: int
    oldest: str
    reference: str
    scope: str


class OperationList(msgspec.Struct, frozen=True, kw_only=True):
    """The operations that the engine of this server was told about, and those that cannot be reconciled here.

    `without_hook` are those with records in doubt that wait for a hook. It is null where the store could only find them
    by reading everything, and not `exact` where there are more records in doubt than are looked at.
    """

    operations: list[OperationView]
    without_hook: list[WithoutHookView] | None
    exact: bool
    note: str

    @staticmethod
    def of(operations: list[OperationView], found: OperationsWithoutHook, note: str) -> OperationList:
        """As it is shown."""
        without = [
            WithoutHookView(one.operation, one.number, iso(one.oldest), one.reference, one.scope)
            for one in found.operations
        ]
        listed = without if found.is_looked_for else None
        return OperationList(operations=operations, without_hook=listed, exact=found.is_exact, note=note)


class AuditEntryView(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the audit chain."""

    scope: str | None
    seq: int
    at: str
    actor: str
    action: str
    target: str
    reason: str | None
    outcome: str
    detail: Mapping[str, str]
    phase: str
    is_open: bool
    hash: str
    place: str

    @staticmethod
    def of(entry: AuditEntry) -> AuditEntryView:
        """As it is shown."""
        return AuditEntryView(
            scope=entry.scope or None,
            seq=entry.seq,
            at=iso(entry.at),
            actor=entry.actor,
            action=entry.action,
            target=entry.target,
            reason=entry.reason,
            outcome=entry.outcome,
            detail=dict(entry.detail),
            phase=entry.phase,
            is_open=entry.is_open,
            hash=entry.hash,
            place=entry.place,
        )


class AuditList(msgspec.Struct, frozen=True):
    """Entries, newest first; `before` is where the next page begins."""

    entries: list[AuditEntryView]
    before: str | None


class AuditReportView(msgspec.Struct, frozen=True):
    """What a check of the chains has found."""

    is_whole: bool
    entries: int
    sealed: int
    faults: list[str]
    anchors: int

    @staticmethod
    def of(reports: tuple[AuditReport, ...]) -> AuditReportView:
        """As it is shown."""
        faults = [f"{fault.scope or 'shared'} {fault.seq}: {fault.text}" for one in reports for fault in one.faults]
        entries, sealed, anchors = (
            sum(getattr(one, name) for one in reports) for name in ("entries", "sealed", "anchors")
        )
        return AuditReportView(not faults, entries, sealed, faults, anchors)


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without its secret."""

    name: str
    roles: list[str]
    scopes: list[str] | None
    created: str
    created_by: str
    expires: str
    last_used: str | None
    revoked: str | None
    is_valid: bool

    @staticmethod
    def of(token: Token) -> TokenView:
        """As it is shown."""
        return TokenView(
            name=token.name,
            roles=sorted(token.roles),
            scopes=None if token.scopes is None else sorted(token.scopes),
            created=iso(token.created),
            created_by=token.created_by,
            expires=iso(token.expires),
            last_used=iso_or_none(token.last_used),
            revoked=iso_or_none(token.revoked),
            is_valid=token.is_valid,
        )


class TokenList(msgspec.Struct, frozen=True):
    """All tokens, by name."""

    tokens: list[TokenView]


class NewTokenView(msgspec.Struct, frozen=True):
    """A token that was just made; its secret is shown here and nowhere else."""

    token: TokenView
    secret: str


class BulkPreviewView(msgspec.Struct, frozen=True):
    """What a bulk action would do. Nothing was changed."""

    matching: int
    eligible: int
    by_status: Mapping[str, int]
    is_eligible_exact: bool


class BulkView(msgspec.Struct, frozen=True, kw_only=True):
    """How far a bulk action is."""

    id: str
    scope: str | None
    action: str
    actor: str
    reason: str
    state: str
    total: int
    done: int
    refused: int
    failed: int
    remaining: int
    rate: float | None
    eta_seconds: float | None
    searched_by: list[str]

    @staticmethod
    def of(progress: BulkProgress) -> BulkView:
        """As it is shown."""
        status, metadata = progress.status, progress.metadata
        return BulkView(
            id=progress.id,
            scope=progress.scope or None,
            action=metadata.action,
            actor=metadata.actor,
            reason=metadata.reason,
            state=status.state,
            total=status.total,
            done=progress.done,
            refused=progress.refused,
            failed=status.failed,
            remaining=status.remaining,
            rate=status.rate,
            eta_seconds=None if status.eta is None else status.eta.total_seconds(),
            searched_by=list(metadata.searched_by),
        )


class BulkList(msgspec.Struct, frozen=True):
    """Bulk actions in the order in which they were begun."""

    bulk: list[BulkView]


class RefusalView(msgspec.Struct, frozen=True):
    """An item of a bulk action that was refused or failed, and why."""

    target: str
    position: int
    status: str
    because: str
    message: str

    @staticmethod
    def of(result: ItemResult[Any]) -> RefusalView:
        """As it is shown."""
        text = "" if result.error is None else result.error.message
        because, colon, message = text.partition(": ")
        if result.status != "skipped" or not colon:
            because, message = result.status, text
        return RefusalView(result.id, result.position, result.status, because, message)


class RefusalList(msgspec.Struct, frozen=True):
    """Refusals in the order of the input; `after` is where the next page begins."""

    refusals: list[RefusalView]
    after: int | None


class FindingView(msgspec.Struct, frozen=True):
    """Something that was looked at: `verdict` is ok, note or fix."""

    verdict: str
    topic: str
    found: str
    advice: str


class DoctorView(msgspec.Struct, frozen=True):
    """What was found about the store, and about this server."""

    store: str
    fine: bool
    findings: list[FindingView]


class Health(msgspec.Struct, frozen=True):
    """Whether the server and its store answer."""

    status: str
