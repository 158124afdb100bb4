"""Pages about the whole: what needs a person, the overview, the doctor, and the audit chain."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from semel.core.record import Record, Status
from semel.server.access import Permission
from semel.server.attention import Need, needs_of
from semel.server.console.charts import Sample, draw_all
from semel.server.console.search import LOOKS_AT
from semel.server.console.view import View, query_text
from semel.server.refusals import NotPossible

SAMPLE: Final = 1000
_SAMPLE_PAGE: Final = 200
_SAMPLE_BYTES: Final = 8 << 20
_OPEN_COUNTED: Final = 200
AUDIT_PAGE: Final = 50
_TITLES: Final = {
    "in_doubt": "In doubt: {}",
    "dead_letter": "Dead letters of {}",
    "parked_key": "Parked keys of stream {}",
    "paused_batch": "Paused batches of {}",
    "paused_bulk": "Paused actions on many",
}
_MANY: Final = {
    "in_doubt": "records in doubt",
    "dead_letter": "dead letters",
    "parked_key": "parked events",
    "paused_batch": "paused batches and actions on many",
}
_BUTTONS: Final = {
    "in_doubt": "Look at them",
    "dead_letter": "Look at the letters",
    "parked_key": "Look at the events",
    "paused_batch": "Look at the batches",
    "paused_bulk": "Look at the actions",
}


async def show_attention(view: View) -> Response:
    """What needs a person."""
    needs = await needs_of(view.actions, view.user)
    return view.page(
        "attention.html",
        here="/",
        needs=needs,
        titled=[(need, _card(view, need)) for need in needs.needs],
        kinds=_MANY,
    )


def _card(view: View, need: Need) -> dict[str, str]:
    """The title of a need, and where to go on."""
    queries = {
        "in_doubt": f"/records/{need.target}"
        if need.number == 1
        else f"/records{query_text({'status': 'in_doubt', 'operation': need.operation, 'order': 'oldest'})}",
        "dead_letter": f"/events/letters{query_text({'consumer': need.operation, 'reason': need.cause})}",
        "parked_key": f"/events/parked{query_text({'stream': need.operation})}",
        "paused_batch": f"/batch{query_text({'scope': need.scope, 'batch': need.target})}"
        if need.number == 1
        else "/batches?state=paused",
        "paused_bulk": f"/bulk{query_text({'scope': need.scope, 'id': need.target})}" if need.number == 1 else "/bulk",
    }
    return {
        "title": _TITLES[need.kind].format(need.operation),
        "button": "Look at it" if need.number == 1 else _BUTTONS[need.kind],
        "url": view.url(queries[need.kind]),
    }


async def show_overview(view: View) -> Response:
    """Rates, duplicates and durations."""
    sample = await _take_sample(view)
    return view.page(
        "overview.html",
        here="/overview",
        sample=sample,
        charts=draw_all(sample) if sample.number else [],
        open={str(status): await _count_open(view, status) for status in (Status.IN_DOUBT, Status.RUNNING)},
    )


async def _take_sample(view: View) -> Sample:
    """The newest records: so many, and so many bytes of them, as a page can afford."""
    reach = await view.actions.reach(view.user, LOOKS_AT, newest_first=True)
    records: list[Record] = []
    cursor: str | None = None
    size = 0
    while len(records) < SAMPLE and size < _SAMPLE_BYTES:
        page = await view.actions.list(view.user, cursor=cursor, limit=_SAMPLE_PAGE, after=reach, newest_first=True)
        records += page.records
        size += sum(len(record.outcome or b"") for record in page.records)
        cursor = page.cursor
        if cursor is None:
            break
    return Sample(records, view.now, is_all=cursor is None, since=reach)


async def _count_open(view: View, status: Status) -> str:
    """How many records are in a status that has an index of its own; beyond a page nobody counts."""
    page = await view.actions.list(view.user, limit=_OPEN_COUNTED, status=str(status))
    return f"{len(page.records):,}" + ("+" if page.cursor else "")


async def show_doctor(view: View) -> Response:
    """What `semel doctor` finds, and which promises hold."""
    view.actions.demand_everywhere(view.user, Permission.SHOW)
    if not view.site.examination.is_possible:
        raise NotPossible(f"{view.site.store.name} cannot be looked at by the doctor: it is for tests.")
    return view.page("doctor.html", here="/doctor", examined=await view.actions.told(view.site.examination.look()))


async def show_audit(view: View) -> Response:
    """Who did what, newest first."""
    wanted = {name: view.asked(name) for name in ("actor", "action", "target", "before")}
    only_open = view.asked("open") == "1"
    given = {name: value or None for name, value in wanted.items()}
    entries = await view.actions.audit_entries(view.user, only_open=only_open, limit=AUDIT_PAGE + 1, **given)
    shown = entries[:AUDIT_PAGE]
    kept = wanted | {"open": "1" if only_open else ""}
    has_more = len(entries) > len(shown)
    return view.page(
        "audit.html",
        here="/audit",
        entries=shown,
        filters=kept,
        actions=list(Permission),
        next=f"/audit{query_text(kept | {'before': shown[-1].place})}" if has_more else "",
    )
