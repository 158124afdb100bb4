"""The endpoints in one table: path, permission, what they take and give, and which action they call.

The routes of the server and the OpenAPI document are both made of this table. The permission named here is the one that
the action itself asks for; a test compares them for every role.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from semel.server.access import Permission
from semel.server.api import bodies, calls, views
from semel.server.api.record_views import RecordView
from semel.server.bulk import PERMISSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One thing that can be asked.

    Attributes:
        method: GET looks, POST changes.
        path: below the prefix of the API.
        name: for clients that are made of the document.
        permission: what the user needs; None: to be signed in.
        summary: what it does, in a sentence.
        gives: the shape of the answer.
        act: what is called.
        query: what may stand behind the question mark.
        body: what the request holds.
        status: of an answer that is none of a refusal.
        preview: the shape of an answer that only says what would be done.
        is_everywhere: whether it is for users alone who reach every scope.
    """

    method: Literal["GET", "POST"]
    path: str
    name: str
    permission: Permission | None
    summary: str
    gives: type[msgspec.Struct]
    act: Callable[[calls.Call], Awaitable[Any]]
    query: type[bodies.Query] = bodies.Query
    body: type[bodies.Body] | None = None
    status: int = 200
    preview: type[msgspec.Struct] | None = None
    is_everywhere: bool = False


def _get(path: str, name: str, permission: Permission | None, summary: str, **more: Any) -> Endpoint:
    return Endpoint(method="GET", path=path, name=name, permission=permission, summary=summary, **more)


def _post(path: str, name: str, permission: Permission, summary: str, **more: Any) -> Endpoint:
    return Endpoint(method="POST", path=path, name=name, permission=permission, summary=summary, **more)


P = Permission
_RECORD, _LETTER = "/records/{reference}", "/consumers/{consumer:path}/letters/{letter}"
_PARKED, _BATCH = "/streams/{stream:path}/parked", "/batches/{batch:path}"
ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    _get("/me", "me", None, "Who is signed in, and what they may do.", gives=views.UserView, act=calls.call_me),
    _get("/attention", "attention", P.LIST, "What needs a person.", gives=views.NeedList, act=calls.call_attention),
    _get(
        "/operations",
        "operations",
        P.LIST,
        "Which operations can be reconciled here, and which that wait for it cannot.",
        gives=views.OperationList,
        act=calls.call_operations,
    ),
    _get(
        "/records",
        "list_records",
        P.LIST,
        "Records, page by page.",
        gives=views.RecordList,
        act=calls.call_list,
        query=bodies.ListRecords,
    ),
    _get(
        "/counts",
        "count_records",
        P.LIST,
        "How many records there are.",
        gives=views.CountList,
        act=calls.call_counts,
        query=bodies.Filter,
    ),
    _get(_RECORD, "show_record", P.SHOW, "One record.", gives=RecordView, act=calls.call_show),
    _get(
        f"{_RECORD}/history",
        "record_history",
        P.SHOW,
        "What happened to it.",
        gives=views.HistoryView,
        act=calls.call_history,
    ),
    _get(
        f"{_RECORD}/body",
        "record_body",
        P.BODY,
        "What it keeps of its outcome; written into the audit chain.",
        gives=views.BodyView,
        act=calls.call_body,
    ),
    _post(
        f"{_RECORD}/resolve",
        "resolve_record",
        P.RESOLVE,
        "Say that it happened, with this value.",
        gives=RecordView,
        act=calls.call_resolve,
        body=bodies.Resolve,
    ),
    _post(
        f"{_RECORD}/cancel",
        "cancel_record",
        P.CANCEL,
        "Have it never run again.",
        gives=RecordView,
        act=calls.call_cancel,
        body=bodies.Ending,
    ),
    _post(
        f"{_RECORD}/fail",
        "fail_record",
        P.FAIL,
        "Say that it failed, and is not tried again.",
        gives=RecordView,
        act=calls.call_fail,
        body=bodies.Fail,
    ),
    _post(
        f"{_RECORD}/release",
        "release_record",
        P.RELEASE,
        "Say that it did not happen: the next claim runs it.",
        gives=RecordView,
        act=calls.call_release,
        body=bodies.Ending,
    ),
    _post(
        f"{_RECORD}/reopen",
        "reopen_record",
        P.REOPEN,
        "Let it run again that failed for good or was cancelled.",
        gives=RecordView,
        act=calls.call_reopen,
        body=bodies.Decision,
    ),
    _post(
        f"{_RECORD}/erase",
        "erase_record",
        P.ERASE,
        "Take out what may be personal; it never runs again.",
        gives=RecordView,
        act=calls.call_erase,
        body=bodies.Decision,
    ),
    _post(
        "/subjects/erase",
        "erase_subject",
        P.ERASE,
        "Erase all that is kept about a subject.",
        gives=views.ErasureView,
        act=calls.call_erase_subject,
        body=bodies.EraseSubject,
    ),
    _get(
        "/consumers/{consumer:path}/letters",
        "list_letters",
        P.LIST,
        "Dead letters of a consumer, page by page.",
        gives=views.LetterList,
        act=calls.call_letters,
        query=bodies.ListLetters,
    ),
    _get(_LETTER, "show_letter", P.SHOW, "One dead letter.", gives=views.LetterView, act=calls.call_letter),
    _get(
        f"{_LETTER}/body",
        "letter_body",
        P.BODY,
        "What was delivered; written into the audit chain.",
        gives=views.LetterBody,
        act=calls.call_letter_body,
    ),
    _post(
        f"{_LETTER}/redrive",
        "redrive_letter",
        P.REDRIVE,
        "Hand its event to its consumer again.",
        gives=views.DispositionView,
        act=calls.call_redrive,
        body=bodies.Reason,
    ),
    _post(
        f"{_LETTER}/discard",
        "discard_letter",
        P.DISCARD,
        "Delete it; the event is not processed.",
        gives=views.LetterView,
        act=calls.call_discard,
        body=bodies.Reason,
    ),
    _get(
        "/streams",
        "list_streams",
        P.LIST,
        "What waits in the outbox.",
        gives=views.StreamList,
        act=calls.call_streams,
        is_everywhere=True,
    ),
    _get(
        _PARKED,
        "list_parked",
        P.LIST,
        "Events that could not be published.",
        gives=views.ParkedList,
        act=calls.call_parked,
        query=bodies.ListParked,
    ),
    _post(
        f"{_PARKED}/release",
        "release_all_parked",
        P.REDRIVE,
        "Have every event of the stream that failed published again.",
        gives=views.Number,
        act=calls.call_release_all_parked,
        body=bodies.Reason,
        is_everywhere=True,
    ),
    _post(
        f"{_PARKED}/{{position:int}}/release",
        "release_parked",
        P.REDRIVE,
        "Have it published again.",
        gives=views.Number,
        act=calls.call_release_parked,
        body=bodies.Reason,
    ),
    _post(
        f"{_PARKED}/{{position:int}}/drop",
        "drop_parked",
        P.DISCARD,
        "Delete it; it is never published.",
        gives=views.Number,
        act=calls.call_drop_parked,
        body=bodies.Reason,
    ),
    _get(
        "/batches",
        "list_batches",
        P.LIST,
        "Batches, in the order in which they were begun.",
        gives=views.BatchList,
        act=calls.call_batches,
        query=bodies.ListBatches,
    ),
    _get(
        _BATCH,
        "show_batch",
        P.SHOW,
        "How far it is.",
        gives=views.BatchView,
        act=calls.call_batch,
        query=bodies.OfScope,
    ),
    _get(
        "/items/{batch:path}",  # an id may end with anything, so that what is below a batch would hide others
        "batch_items",
        P.SHOW,
        "Which of its items failed or are in doubt, and why; their values stay out.",
        gives=views.ItemList,
        act=calls.call_items,
        query=bodies.ListItems,
    ),
    *(
        _post(
            f"{_BATCH}/{name}",
            f"{name}_batch",
            P.BATCH,
            summary,
            gives=views.BatchView,
            act=calls.call_change_batch(name),
            body=bodies.OnScope,
        )
        for name, summary in (
            ("pause", "Let running items end, and begin no others."),
            ("resume", "Let it be run again."),
            ("cancel", "End it for good."),
        )
    ),
    _post(
        f"{_BATCH}/retry",
        "retry_batch",
        P.BATCH,
        "Have items run again.",
        gives=views.Number,
        act=calls.call_retry_batch,
        body=bodies.RetryBatch,
    ),
    _post(
        "/sweep",
        "sweep",
        P.SWEEP,
        "Delete what is expired, mark lapsed leases, ask the reconcile hooks.",
        gives=views.SweepView,
        act=calls.call_sweep,
        body=bodies.Sweep,
        is_everywhere=True,
    ),
    *(
        _post(
            f"/bulk/{action}",
            f"bulk_{action}",
            permission,
            f"Do {action} with all that match: count them, or begin. It goes on by itself, also after a crash.",
            gives=views.BulkView,
            act=calls.call_bulk(action),
            body=bodies.Bulk,
            status=202,
            preview=views.BulkPreviewView,
        )
        for action, permission in PERMISSIONS.items()
    ),
    _get("/bulk", "list_bulk", P.LIST, "Bulk actions.", gives=views.BulkList, act=calls.call_bulk_list),
    _get(
        "/bulk/{bulk}",
        "show_bulk",
        P.LIST,
        "How far a bulk action is.",
        gives=views.BulkView,
        act=calls.call_bulk_progress,
        query=bodies.OfScope,
    ),
    _get(
        "/bulk/{bulk}/refusals",
        "bulk_refusals",
        P.LIST,
        "What was refused, each with why.",
        gives=views.RefusalList,
        act=calls.call_bulk_refusals,
        query=bodies.ListRefusals,
    ),
    _post(
        "/bulk/{bulk}/change",
        "change_bulk",
        P.LIST,
        "Pause it, let it go on, or end it; needs the permission of its action.",
        gives=views.BatchView,
        act=calls.call_bulk_change,
        body=bodies.ChangeBulk,
    ),
    _get(
        "/audit",
        "list_audit",
        P.AUDIT,
        "Who did what, newest first.",
        gives=views.AuditList,
        act=calls.call_audit,
        query=bodies.ListAudit,
    ),
    _get(
        "/audit/verify",
        "verify_audit",
        P.AUDIT,
        "Compare the chain with what was written.",
        gives=views.AuditReportView,
        act=calls.call_verify_audit,
        query=bodies.VerifyAudit,
    ),
    _post(
        "/audit/redact",
        "redact_audit",
        P.AUDIT,
        "Take reason and details out of an entry; gives the entry that says so.",
        gives=views.AuditEntryView,
        act=calls.call_redact_audit,
        body=bodies.RedactAudit,
    ),
    _get(
        "/tokens",
        "list_tokens",
        P.TOKENS,
        "All tokens.",
        gives=views.TokenList,
        act=calls.call_tokens,
        is_everywhere=True,
    ),
    _post(
        "/tokens",
        "add_token",
        P.TOKENS,
        "Make a token; its secret is shown once.",
        gives=views.NewTokenView,
        act=calls.call_add_token,
        body=bodies.AddToken,
        status=201,
        is_everywhere=True,
    ),
    _post(
        "/tokens/{name}/revoke",
        "revoke_token",
        P.TOKENS,
        "Have a token be of no use from now on.",
        gives=views.Number,
        act=calls.call_revoke_token,
        body=bodies.Body,
        is_everywhere=True,
    ),
    _get(
        "/doctor",
        "doctor",
        P.SHOW,
        "What was found about the store.",
        gives=views.DoctorView,
        act=calls.call_doctor,
        is_everywhere=True,
    ),
)
"""All endpoints of the API."""
