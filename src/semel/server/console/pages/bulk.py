"""Doing something to all that match: a count first, then a reason, then progress that anybody can follow.

- What is carried out is a batch: it goes on after a crash, each target is decided about once, and refusals are kept.
- The page that asks gives the bulk action its name, so that a form that is sent twice begins one.
- A search that asks for everything is refused: nobody means all records there are.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any, Final, cast

from starlette.responses import Response

from semel.core.events.letters import REASONS
from semel.core.store import Capability
from semel.server.api.views import RefusalView
from semel.server.bulk import MOST_ITEMS, PERMISSIONS, BulkAction, BulkProgress, BulkRequest, LetterFilter
from semel.server.console.charts import meter
from semel.server.console.deeds import DEEDS, Deed
from semel.server.console.pages.forms import Given, check_form, read_form, read_number, read_value
from semel.server.console.rendering import share
from semel.server.console.search import LOOKS_AT, SearchForm, read_moment, read_scope
from semel.server.console.view import View, query_text
from semel.server.refusals import Invalid, Refused

_LOOK: Final = "a look at what would happen"
_CHANGES: Final = {"pause": "Pause", "resume": "Resume", "cancel": "Cancel"}
_REFUSALS: Final = 50
PAGE: Final = 50
_ACTIONS: Final[dict[str, BulkAction]] = {"happened": "resolve"}
"""How a bulk action is called whose deed has another name here."""
_DEEDS: Final = {action: DEEDS[name] for name, action in _ACTIONS.items()}
_TYPED: Final = ("reason", "error", "value", "rate")


async def ask_for_all(view: View) -> Response:
    """How many match and could be done, and the form that asks for the reason."""
    given = _with_fixed_moments(view, view.request.query_params.multi_items())
    deed, asked, back = _request(view, given, _LOOK)
    return await _ask(view, given, deed, asked, back, problem="")


def _with_fixed_moments(view: View, pairs: list[tuple[str, str]]) -> Given:
    """What an address asks for, with moments such as `1h` as the instants that they are now.

    The form then asks for the same however often and whenever it is sent.
    """
    settled = []
    for name, value in pairs:
        moment = read_moment(value.strip(), view.now) if name in ("after", "before") else None
        settled.append((name, value if moment is None else moment.isoformat()))
    return Given.of(settled)


async def _ask(view: View, given: Given, deed: Deed, asked: BulkRequest, back: str, *, problem: str) -> Response:
    preview = await view.site.bulk.preview(view.user, _stated_later(deed, asked), looks_at=LOOKS_AT)
    return view.page(
        "bulk_ask.html",
        here="",
        code=400 if problem else 200,
        deed=deed,
        preview=preview,
        most_items=MOST_ITEMS,
        problem=problem,
        back=back,
        hidden=[(name, value) for name, value in given.pairs if name not in ("token", "id", *_TYPED)],
        id=given.first("id") or f"bulk-{secrets.token_hex(8)}",
        typed={name: given.first(name) for name in _TYPED},
    )


def _stated_later(deed: Deed, asked: BulkRequest) -> BulkRequest:
    """What is asked for, as far as it can be counted before the form is filled in."""
    return replace(asked, error="stated later" if deed.asks_for == "error" else "")


async def begin(view: View) -> Response:
    """Begin a bulk action, and show how far it is."""
    given = await read_form(view)
    check_form(view, given)
    deed, asked, back = _request(view, given, given.first("reason"))
    try:
        asked = replace(
            asked,
            error=given.first("error"),
            value=read_value(given.first("value")),
            rate=_rate(given.stripped("rate")),
            id=given.first("id") or None,
        )
        begun = await view.site.bulk.start(view.user, asked)
    except Refused as refused:
        kept = replace(asked, reason=_LOOK, error="", value=None, rate=None)
        return await _ask(view, given, deed, kept, back, problem=refused.message)
    view.site.runner.begin(begun.scope, begun.id)
    return view.redirect("/bulk", scope=begun.scope, id=begun.id)


async def show_bulk(view: View) -> Response:
    """How far a bulk action is, and what was refused."""
    scope, id_ = view.asked("scope"), view.asked("id")
    if not id_:
        return await _show_list(view)
    progress = await view.site.bulk.progress(view.user, scope, id_)
    if progress.status.state in ("pending", "running"):
        view.site.runner.begin(scope, id_)  # the process that began it may be dead: what was decided goes on here
    has_refusals = progress.refused or progress.status.failed
    refusals = await view.site.bulk.refusals(view.user, scope, id_, limit=_REFUSALS) if has_refusals else ()
    may_change = view.may(PERMISSIONS[progress.metadata.action])
    changes = {"paused": ("resume", "cancel"), "running": ("pause", "cancel"), "pending": ("pause", "cancel")}
    return view.page(
        "bulk.html",
        here="/batches",
        bulk=_row(progress),
        refusals=[RefusalView.of(one) for one in refusals],
        changes=[(name, _CHANGES[name]) for name in changes.get(progress.status.state, ())] if may_change else [],
    )


async def _show_list(view: View) -> Response:
    """Actions on many, the newest first."""
    after = read_number(view.asked("after", "0"), "after")
    listed = await view.site.bulk.list(view.user, limit=PAGE + 1, after=after, newest_first=True)
    shown = listed[:PAGE]
    return view.page(
        "bulks.html",
        here="/batches",
        bulks=[_row(one) for one in shown],
        is_kept=view.actions.has(Capability.BATCH),
        is_later=after > 0,
        next=view.url("/bulk", after=str(shown[-1].number)) if len(listed) > PAGE else "",
    )


async def change_bulk(view: View) -> Response:
    """Pause a bulk action, let it go on, or end it."""
    given = await read_form(view)
    check_form(view, given)
    scope, id_, what = given.first("scope"), given.first("id"), given.first("what")
    if what not in _CHANGES:
        raise Invalid("A bulk action is paused, resumed or cancelled; nothing was changed.", because="what")
    change = cast("Any", what)
    await view.site.bulk.change(view.user, scope, id_, change, reason=given.first("reason"))
    if what == "resume":
        view.site.runner.begin(scope, id_)
    return view.redirect("/bulk", scope=scope, id=id_)


def _row(progress: BulkProgress) -> dict[str, Any]:
    status = progress.status
    parts = [("good", progress.done), ("warn", progress.refused), ("bad", status.failed), ("warn", status.in_doubt)]
    return {
        "progress": progress,
        "deed": _DEEDS.get(progress.metadata.action) or DEEDS[progress.metadata.action],
        "status": status,
        "bars": meter(parts, status.total),
        "share": share(status.total - status.remaining, status.total),
        "summary": f"{progress.done:,} done, {progress.refused:,} refused, {status.remaining:,} left",
        "query": query_text({"scope": progress.scope, "id": progress.id}),
    }


def _request(view: View, given: Given, reason: str) -> tuple[Deed, BulkRequest, str]:
    """What is asked for, and the page to go back to.

    Raises:
        Refused: it cannot be done to many, or the search asks for everything.
    """
    deed = DEEDS.get(given.first("do"))
    action = None if deed is None else _ACTIONS.get(deed.name, cast("BulkAction", deed.name))
    if deed is None or action not in PERMISSIONS:
        raise Invalid("This cannot be done to all that match; nothing was changed.", because="do")
    if deed.kind == "letter":
        return deed, *_letters(given, action, reason)
    form = SearchForm.of(dict(given.pairs))
    if form.is_empty:
        raise Invalid(
            "The search matches every record there is; nothing was changed. Narrow it first, by status or operation.",
            because="filter",
        )
    wanted = form.to_filter(view.now)
    wanted["newest_first"] = False
    return deed, BulkRequest(action=action, reason=reason, records=wanted), f"/records{query_text(form.pairs)}"


def _letters(given: Given, action: BulkAction, reason: str) -> tuple[BulkRequest, str]:
    why = given.first("why")
    if why and why not in REASONS:
        raise Invalid(f"A letter is here because of one of {', '.join(REASONS)}; nothing was changed.", because="why")
    asked = {name: given.first(name) for name in ("consumer", "type", "subject", "scope", "shared")}
    wanted = LetterFilter(
        asked["consumer"],
        why or None,
        asked["type"] or None,
        asked["subject"] or None,
        read_scope(asked["scope"], asked["shared"]),
    )
    back = f"/events/letters{query_text(asked | {'reason': why})}"
    return BulkRequest(action=action, reason=reason, letters=wanted), back


def _rate(text: str) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise Invalid("A rate is a number of targets in a second; nothing was changed.", because="rate") from None
