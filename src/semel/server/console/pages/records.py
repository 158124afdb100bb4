"""Pages about records: the search, one record with its time line, its body, and those of one process instance."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from starlette.responses import Response

from semel.core.record import Record, Status
from semel.server.access import Permission
from semel.server.console.deeds import DEEDS
from semel.server.console.pages.acting import bulk_choices, choices_for, why_none
from semel.server.console.rendering import look_of_state
from semel.server.console.search import FIELDS, LOOKS_AT, STUCK, SearchForm
from semel.server.console.security import BODY_POLICY
from semel.server.console.timeline import timeline_of
from semel.server.console.view import View, query_text
from semel.server.refusals import Invalid, NotFound, Refused

PAGE: Final = 50
_INSTANCE_PAGE: Final = 200
_REFERENCE: Final = re.compile(r"[0-9a-fA-F]{8,64}")
_FOUND_BY: Final = ("business_key", "process_instance", "subject", "requester")


@dataclass(frozen=True, slots=True)
class Chip:
    """A search that is often wanted."""

    words: str
    query: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class BodyPart:
    """One text of a body."""

    title: str
    text: str | None
    why_none: str = ""
    is_cut: bool = False


async def show_records(view: View) -> Response:
    """Records that match, a page of them."""
    form = SearchForm.of(view.request.query_params)
    cursor = view.asked("cursor") or None
    records: tuple[Record, ...] = ()
    onward = refusal = ""
    stopped_at: datetime | None = None
    try:
        page = await view.actions.list(
            view.user, cursor=cursor, limit=PAGE, looks_at=LOOKS_AT, **form.to_filter(view.now)
        )
        records, stopped_at = page.records, page.stopped_at
        onward = view.url("/records", **form.pairs, cursor=page.cursor) if page.cursor else ""
    except Refused as refused:
        if not view.user.may(Permission.LIST):
            raise
        refusal = refused.message
    return view.page(
        "records.html",
        here="/records",
        code=400 if refusal else 200,
        filters=form | {"stuck": form["status"] == STUCK},
        fields=FIELDS,
        statuses=list(Status),
        chips=_chips(form),
        is_narrowed=bool(refusal or form.pairs.keys() - {"status"}),
        records=records,
        refusal=refusal,
        next=onward,
        stopped_at=stopped_at,
        is_later=cursor is not None,
        first_url=view.url("/records", **form.pairs),
        filter_pairs=list(form.pairs.items()),
        bulk_choices=bulk_choices(view),
    )


def _chips(form: SearchForm) -> list[Chip]:
    words = {"": "All", STUCK: "Stuck", **{str(status): look_of_state(status).words.capitalize() for status in Status}}
    others = form.pairs.keys() - {"status", "order", "scan"}
    return [
        Chip(words, query_text({"status": status}), not others and form["status"] == status)
        for status, words in words.items()
    ]


async def find_record(view: View) -> Response:
    """What somebody may mean by one word: a reference, or anything that records are searched by."""
    wanted = view.asked("q").strip()
    if not wanted:
        return view.redirect("/records")
    if _REFERENCE.fullmatch(wanted):
        try:
            record = await view.actions.show(view.user, wanted)
            return view.redirect(f"/records/{record.reference}")
        except NotFound:
            pass
    for name in _FOUND_BY:
        page = await view.actions.list(view.user, limit=1, **{name: wanted})  # type: ignore[arg-type]  # all are texts
        if page.records:
            place = "/process" if name == "process_instance" else "/records"
            return view.redirect(place, **{"instance" if place == "/process" else name: wanted})
    raise NotFound(
        f"Nothing is known by {wanted!r}: no reference that begins so, no business key, process instance, subject or "
        f"requester. Keys themselves are found by their reference, or by the operation in the list."
    )


async def show_record(view: View) -> Response:
    """One record, and all that happened to it."""
    record = await view.actions.show(view.user, view.request.path_params["reference"])
    history = await view.actions.history(view.user, record.reference)
    choices = choices_for(view, record)
    return view.page(
        "record.html",
        here="/records",
        record=record,
        timeline=timeline_of(record, history, view.now),
        about=_about(record),
        choices=choices,
        why_no_choice="" if choices else why_none(view, record),
        may_see_body=view.may(Permission.BODY),
        links=view.site.links.of(record),
        done=_done(view.asked("done")),
    )


def _done(name: str) -> str:
    """What was just done here; an address cannot make the page say anything else."""
    return f"{DEEDS[name].words}: done." if name in DEEDS else ""


def _about(record: Record) -> list[tuple[str, str, str]]:
    about, rows = record.about, list[tuple[str, str, str]]()
    for name, words in (("business_key", "Business key"), ("subject", "Subject"), ("requester", "Requester")):
        value = getattr(about, name)
        if value:
            rows.append((words, value, f"/records{query_text({name: value})}"))
    if about.process_instance:
        rows.append(
            ("Process instance", about.process_instance, f"/process{query_text({'instance': about.process_instance})}")
        )
    rows += [
        (f"Tag {name}", value, f"/records{query_text({'tag': f'{name}={value}'})}")
        for name, value in about.tags.items()
    ]
    return rows


async def show_body(view: View) -> Response:
    """What a record keeps of its outcome and its steps, as text."""
    reference = view.request.path_params["reference"]
    body = await view.actions.body(view.user, reference)
    parts = [BodyPart("Outcome", body.text, body.why_none, body.is_cut)]
    parts += [
        BodyPart(f"Step {number}: {step.name}", step.text, step.why_none, step.is_cut)
        for number, step in enumerate(body.steps, 1)
    ]
    crumbs = [("Records", "/records"), (reference[:12], f"/records/{reference}")]
    return body_page(view, "/records", "Body of the record", crumbs, parts)


def body_page(view: View, here: str, title: str, crumbs: list[tuple[str, str]], parts: list[BodyPart]) -> Response:
    """A page of what others have written: text alone, and no script."""
    response = view.page("body.html", here=here, title=title, crumbs=crumbs, body_parts=parts)
    response.headers["Content-Security-Policy"] = BODY_POLICY
    return response


async def show_process(view: View) -> Response:
    """The operations of a process instance, and links back to its engine."""
    instance = view.asked("instance")
    wanted: dict[str, Any] = {"process_instance": instance, "scan": view.asked("scan") == "1"}
    try:
        page = await view.actions.list(view.user, limit=_INSTANCE_PAGE, **wanted)
    except Invalid:
        if wanted["scan"] or not instance:
            raise
        return view.redirect("/records", process_instance=instance)  # it says why, and can read all records
    if not page.records:
        raise NotFound(f"No operation of a process instance {instance!r} is known here.")
    business = sorted({record.about.business_key for record in page.records if record.about.business_key})
    values = {"process_instance": instance} | ({"business_key": business[0]} if len(business) == 1 else {})
    counts = Counter(record.status for record in page.records)
    return view.page(
        "process.html",
        here="/records",
        instance=instance,
        business_keys=business,
        records=page.records,
        is_cut=page.cursor is not None,
        counts=[(str(status), counts[status]) for status in Status if counts[status]],
        links=view.site.links.of_values(values),
    )
