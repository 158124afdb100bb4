"""What each endpoint calls: one action, with what was sent, and its answer as it is shown.

Nothing is decided here. Permission and scope are asked for by the actions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import msgspec

from semel.core.key import is_internal
from semel.core.record import Happened
from semel.core.store import Capability
from semel.engine.engine import engine_of
from semel.server.access import Permission, User
from semel.server.actions import Actions
from semel.server.actions.checks import not_found_error
from semel.server.api import bodies, views
from semel.server.api.record_views import EntryView, RecordView
from semel.server.attention import needs_of
from semel.server.bulk import BulkActions, BulkRequest, BulkRunner
from semel.server.hooks import find_operations_without_hook
from semel.server.refusals import Invalid
from semel.stores.admin import admin_of
from semel.stores.wrapper import innermost_store
from semel.validation import read_json

_NO_HOOKS: Final = (
    "Reconcile hooks are Python code. An operation that is not listed with a hook cannot be reconciled here: start the "
    "server with --app MODULE:SEMEL."
)


@dataclass(slots=True)
class Call:
    """One request on its way to an action."""

    user: User
    actions: Actions
    bulk: BulkActions
    runner: BulkRunner
    path: dict[str, Any]
    query: Any
    body: Any


async def call_me(call: Call) -> views.UserView:
    """Who is signed in, and what they may do."""
    return views.UserView.of(call.user)


async def call_attention(call: Call) -> views.NeedList:
    """What needs a person."""
    return views.NeedList.of(await needs_of(call.actions, call.user))


async def call_operations(call: Call) -> views.OperationList:
    """Which operations can be reconciled here, and which that wait for it cannot."""
    call.actions.demand(call.user, Permission.LIST)
    known = engine_of(call.actions.semel).known
    listed = [views.OperationView(name, one.policy.reconcile is not None) for name, one in sorted(known.items())]
    shown = [one for one in listed if not is_internal(one.operation)]
    return views.OperationList.of(shown, await find_operations_without_hook(call.actions, call.user), _NO_HOOKS)


async def call_list(call: Call) -> views.RecordList:
    """Records, page by page."""
    query: bodies.ListRecords = call.query
    page = await call.actions.list(call.user, cursor=query.cursor, limit=query.limit, **query.to_filter())
    return views.RecordList([RecordView.of(record) for record in page.records], page.cursor)


async def call_counts(call: Call) -> views.CountList:
    """How many records there are."""
    counts = await call.actions.counts(call.user, **call.query.to_filter())
    listed = [views.CountView(one.operation, one.status.value, one.number) for one in counts]
    return views.CountList(listed, sum(one.number for one in counts))


async def call_show(call: Call) -> RecordView:
    """One record."""
    return RecordView.of(await call.actions.show(call.user, call.path["reference"]))


async def call_history(call: Call) -> views.HistoryView:
    """What happened to it."""
    entries = await call.actions.history(call.user, call.path["reference"])
    return views.HistoryView([EntryView.of(entry) for entry in entries])


async def call_body(call: Call) -> views.BodyView:
    """What it keeps of its outcome; written into the audit chain."""
    return views.BodyView.of(await call.actions.body(call.user, call.path["reference"]))


def _ending(call: Call) -> dict[str, Any]:
    body: bodies.Ending = call.body
    return {"reason": body.reason, "fence": body.fence, "force": body.force, "confirm": body.confirm}


async def call_resolve(call: Call) -> RecordView:
    """Say that it happened, with this value."""
    body: bodies.Resolve = call.body
    happened = Happened(_value_of(body.value))
    more = {**_ending(call), "correct": body.correct}
    return RecordView.of(await call.actions.resolve(call.user, call.path["reference"], happened, **more))


def _value_of(raw: msgspec.Raw) -> Any:
    """The value as it stands there: integers of any length stay what they are, and no fraction becomes another one."""
    try:
        return read_json(bytes(raw))
    except ValueError as error:
        raise Invalid(f"The value is no JSON: {error}; nothing was changed.", because="value") from error


async def call_cancel(call: Call) -> RecordView:
    """Have it never run again."""
    return RecordView.of(await call.actions.cancel(call.user, call.path["reference"], **_ending(call)))


async def call_release(call: Call) -> RecordView:
    """Say that it did not happen: the next claim runs it."""
    return RecordView.of(await call.actions.release(call.user, call.path["reference"], **_ending(call)))


async def call_fail(call: Call) -> RecordView:
    """Say that it failed, and is not tried again."""
    more = {**_ending(call), "error": call.body.error}
    return RecordView.of(await call.actions.fail(call.user, call.path["reference"], **more))


async def call_reopen(call: Call) -> RecordView:
    """Let it run again that failed for good or was cancelled."""
    body: bodies.Decision = call.body
    found = await call.actions.reopen(call.user, call.path["reference"], reason=body.reason, fence=body.fence)
    return RecordView.of(found)


async def call_erase(call: Call) -> RecordView:
    """Take out what may be personal; it never runs again."""
    body: bodies.Decision = call.body
    found = await call.actions.erase(call.user, call.path["reference"], reason=body.reason, fence=body.fence)
    return RecordView.of(found)


async def call_erase_subject(call: Call) -> views.ErasureView:
    """Erase all that is kept about a subject."""
    body: bodies.EraseSubject = call.body
    report = await call.actions.erase_subject(
        call.user, body.subject, reason=body.reason, scope=body.scope, scan=body.scan, dry_run=body.dry_run
    )
    return views.ErasureView.of(report)


async def call_letters(call: Call) -> views.LetterList:
    """Dead letters of a consumer, page by page."""
    query: bodies.ListLetters = call.query
    page = await call.actions.letters(call.user, call.path["consumer"], **_fields(query))
    return views.LetterList([views.LetterView.of(letter) for letter in page.letters], page.cursor)


async def call_letter(call: Call) -> views.LetterView:
    """One dead letter."""
    return views.LetterView.of(await call.actions.letter(call.user, call.path["consumer"], call.path["letter"]))


async def call_letter_body(call: Call) -> views.LetterBody:
    """What was delivered; written into the audit chain."""
    return views.LetterBody.of(await call.actions.letter_body(call.user, call.path["consumer"], call.path["letter"]))


async def call_redrive(call: Call) -> views.DispositionView:
    """Hand its event to its consumer again."""
    found = await call.actions.redrive(call.user, call.path["consumer"], call.path["letter"], reason=call.body.reason)
    return views.DispositionView(found.status, found.action)


async def call_discard(call: Call) -> views.LetterView:
    """Delete it; the event is not processed."""
    gone = await call.actions.discard(call.user, call.path["consumer"], call.path["letter"], reason=call.body.reason)
    return views.LetterView.of(gone)


async def call_streams(call: Call) -> views.StreamList:
    """What waits in the outbox."""
    return views.StreamList([views.StreamView.of(one) for one in await call.actions.streams(call.user)])


async def call_parked(call: Call) -> views.ParkedList:
    """Events that could not be published."""
    query: bodies.ListParked = call.query
    page = await call.actions.parked(call.user, call.path["stream"], after=query.after, limit=query.limit)
    return views.ParkedList([views.ParkedView.of(event) for event in page.events], page.after)


def _position(call: Call) -> int:
    position: int = call.path["position"]
    if position > bodies.MOST:
        raise not_found_error("event parked there")
    return position


async def call_release_parked(call: Call) -> views.Number:
    """Have it published again."""
    position = _position(call)
    return views.Number(
        await call.actions.release_parked(call.user, call.path["stream"], position, reason=call.body.reason)
    )


async def call_release_all_parked(call: Call) -> views.Number:
    """Have all that failed published again."""
    number = await call.actions.release_all_parked(call.user, call.path["stream"], reason=call.body.reason)
    return views.Number(number)


async def call_drop_parked(call: Call) -> views.Number:
    """Delete it; it is never published."""
    position = _position(call)
    return views.Number(
        await call.actions.drop_parked(call.user, call.path["stream"], position, reason=call.body.reason)
    )


async def call_batches(call: Call) -> views.BatchList:
    """Batches, in the order in which they were begun."""
    query: bodies.ListBatches = call.query
    limit = max(1, min(query.limit, 100))
    found = await call.actions.batches(call.user, state=query.state, scope=query.scope, limit=limit, after=query.after)
    after = found[-1].number if len(found) == limit else None
    return views.BatchList([views.BatchView.of(one.scope, one.status) for one in found], after)


async def call_batch(call: Call) -> views.BatchView:
    """How far it is."""
    scope = call.query.scope
    return views.BatchView.of(scope, await call.actions.batch(call.user, scope, call.path["batch"]))


async def call_items(call: Call) -> views.ItemList:
    """Which of its items failed or are in doubt, and why."""
    query: bodies.ListItems = call.query
    limit = max(1, min(query.limit, 500))
    found = await call.actions.batch_items(
        call.user, query.scope, call.path["batch"], query.status, after=query.after, limit=limit
    )
    after = found[-1].position if len(found) == limit else None
    return views.ItemList([views.ItemView.of(one) for one in found], after)


def call_change_batch(name: str) -> Callable[[Call], Awaitable[views.BatchView]]:
    """Make the call that pauses, resumes or cancels a batch."""

    async def act(call: Call) -> views.BatchView:
        body: bodies.OnScope = call.body
        change = getattr(call.actions, f"{name}_batch")
        return views.BatchView.of(
            body.scope, await change(call.user, body.scope, call.path["batch"], reason=body.reason)
        )

    return act


async def call_retry_batch(call: Call) -> views.Number:
    """Have items run again."""
    body: bodies.RetryBatch = call.body
    number = await call.actions.retry_batch(call.user, body.scope, call.path["batch"], body.which, reason=body.reason)
    return views.Number(number)


async def call_sweep(call: Call) -> views.SweepView:
    """Delete what is expired, mark lapsed leases, ask the reconcile hooks."""
    body: bodies.Sweep = call.body
    report = await call.actions.sweep(call.user, reason=body.reason, limit=body.limit)
    return views.SweepView(report.deleted, report.lapsed, report.reconciled, report.held, report.invalidated)


def call_bulk(action: str) -> Callable[[Call], Awaitable[Any]]:
    """Make the call that previews or begins a bulk action."""

    async def act(call: Call) -> views.BulkPreviewView | views.BulkView:
        body: bodies.Bulk = call.body
        asked = BulkRequest(
            action=action,  # type: ignore[arg-type]  # of the table below
            reason=body.reason,
            records=None if body.records is None else body.records.to_filter(),
            letters=body.letters,
            error=body.error,
            value=None if body.value is msgspec.UNSET else _value_of(body.value),
            rate=body.rate,
            id=body.id,
        )
        if body.dry_run:
            preview = await call.bulk.preview(call.user, asked)
            return views.BulkPreviewView(
                preview.matching, preview.eligible, preview.by_status, preview.is_eligible_exact
            )
        started = await call.bulk.start(call.user, asked)
        call.runner.begin(started.scope, started.id)
        return views.BulkView.of(started)

    return act


async def call_bulk_list(call: Call) -> views.BulkList:
    """Bulk actions."""
    return views.BulkList([views.BulkView.of(one) for one in await call.bulk.list(call.user)])


async def call_bulk_progress(call: Call) -> views.BulkView:
    """How far a bulk action is."""
    return views.BulkView.of(await call.bulk.progress(call.user, call.query.scope, call.path["bulk"]))


async def call_bulk_refusals(call: Call) -> views.RefusalList:
    """What was refused, each with why."""
    query: bodies.ListRefusals = call.query
    limit = max(1, min(query.limit, 500))
    found = await call.bulk.refusals(call.user, query.scope, call.path["bulk"], after=query.after, limit=limit)
    after = found[-1].position if len(found) == limit else None
    return views.RefusalList([views.RefusalView.of(one) for one in found], after)


async def call_bulk_change(call: Call) -> views.BatchView:
    """Pause it, let it go on, or end it; needs the permission of its action."""
    body: bodies.ChangeBulk = call.body
    status = await call.bulk.change(call.user, body.scope, call.path["bulk"], body.what, reason=body.reason)
    if body.what == "resume":
        call.runner.begin(body.scope, call.path["bulk"])
    return views.BatchView.of(body.scope, status)


async def call_audit(call: Call) -> views.AuditList:
    """Who did what, newest first."""
    query: bodies.ListAudit = call.query
    entries = await call.actions.audit_entries(call.user, **_fields(query))
    return views.AuditList(
        [views.AuditEntryView.of(entry) for entry in entries], entries[-1].place if entries else None
    )


async def call_verify_audit(call: Call) -> views.AuditReportView:
    """Compare the chain with what was written."""
    return views.AuditReportView.of(await call.actions.verify_audit(call.user, scope=call.query.scope))


async def call_redact_audit(call: Call) -> views.AuditEntryView:
    """Take out of an entry what a person wrote."""
    body: bodies.RedactAudit = call.body
    said = await call.actions.redact_audit(call.user, body.scope, body.seq, reason=body.reason)
    return views.AuditEntryView.of(said)


async def call_tokens(call: Call) -> views.TokenList:
    """All tokens."""
    return views.TokenList([views.TokenView.of(token) for token in await call.actions.list_tokens(call.user)])


async def call_add_token(call: Call) -> views.NewTokenView:
    """Make a token; its secret is shown once."""
    body: bodies.AddToken = call.body
    made = await call.actions.add_token(
        call.user, body.name, roles=body.roles, scopes=body.scopes, expires_in=timedelta(days=body.expires_in)
    )
    return views.NewTokenView(views.TokenView.of(made.token), made.secret)


async def call_revoke_token(call: Call) -> views.Number:
    """Have a token be of no use from now on."""
    await call.actions.revoke_token(call.user, call.path["name"])
    return views.Number(1)


async def call_doctor(call: Call) -> views.DoctorView:
    """What was found about the store."""
    call.actions.demand_everywhere(call.user, Permission.SHOW)
    store = innermost_store(engine_of(call.actions.semel).store)
    if Capability.EXAMINE not in store.capabilities:
        return views.DoctorView(store.name, fine=True, findings=[])
    found = await asyncio.to_thread(lambda: admin_of(store, Capability.EXAMINE).examine(timedelta(days=1)))
    listed = [views.FindingView(one.verdict, one.topic, one.found, one.advice) for one in found]
    return views.DoctorView(store.name, all(one.verdict != "fix" for one in found), listed)


def _fields(query: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(query, name) for name in query.__struct_fields__}
