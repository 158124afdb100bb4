"""Doing something from a page: first what would happen, then the reason, then what came of it.

- Nothing is changed by an address alone: what changes something is a form of a page that this browser was given.
- The page that asks says for each target whether it would be done, or why not, in the words of the refusal.
- What was seen is what is decided about: a record that has changed since is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.responses import Response

from semel.core.record import Cancelled, DidNotHappen, Failed, Happened, Record
from semel.errors import SemelError
from semel.server.access import Permission
from semel.server.actions.events import check_processed
from semel.server.console.deeds import DEEDS, Deed, fitting_deeds, is_live, why_not
from semel.server.console.pages.bulk import ask_for_all
from semel.server.console.pages.forms import MOST, Given, check_form, read_form, read_number, read_value
from semel.server.console.view import View, query_text
from semel.server.refusals import Forbidden, Invalid, Refused, Unavailable, refusal_of


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that something is done to: what it is called, where its page is, and why it would be refused."""

    id: str
    words: str
    place: str
    note: str = ""
    refusal: str = ""


@dataclass(slots=True)
class Plan:
    """What is to be done, as it is shown before."""

    deed: Deed
    targets: list[Target]
    back: str
    target_field: str
    hidden: list[tuple[str, str]] = field(default_factory=list)
    confirm: str = ""

    @property
    def possible(self) -> int:
        """How many would be done."""
        return sum(not target.refusal for target in self.targets)


@dataclass(frozen=True, slots=True)
class Came:
    """What came of one target; where the store did not answer, it may be done all the same."""

    target: Target
    words: str
    is_done: bool
    is_known: bool = True


def choices_for(view: View, record: Record) -> list[Deed]:
    """What this user can do to a record as it is now."""
    deeds = fitting_deeds(record, view.now, force=view.may(Permission.FORCE))
    return [deed for deed in deeds if view.may(deed.permission)]


def why_none(view: View, record: Record) -> str:
    """Why a user can do nothing to a record."""
    if view.actions.is_read_only:
        return "This store keeps no audit chain, so nothing can be changed here."
    if fitting_deeds(record, view.now, force=False):
        return f"Your roles ({', '.join(sorted(view.user.roles)) or 'none'}) do not permit what could be done here."
    if is_live(record, view.now):
        return why_not(DEEDS["cancel"], record, view.now)
    return "Nothing has to be done."


def bulk_choices(view: View) -> list[tuple[str, str]]:
    """What this user can do to many records together."""
    names = ("happened", "release", "cancel", "fail", "reopen", "erase")
    return [(name, DEEDS[name].words) for name in names if view.may(DEEDS[name].permission)]


async def ask_first(view: View) -> Response:
    """What would happen, and the form that asks for the reason."""
    deed = DEEDS.get(view.asked("do"))
    if view.asked("which") == "all" and (deed is None or deed.kind != "parked"):
        return await ask_for_all(view)
    plan = await make_plan(view, Given.of(view.request.query_params.multi_items()))
    return view.page("act.html", here="", plan=plan, problem="", typed={"reason": "", "value": "", "error": ""})


async def carry_out(view: View) -> Response:
    """Do it, and show what came of it."""
    given = await read_form(view)
    check_form(view, given)
    plan = await make_plan(view, given)
    try:
        work = _worker(view, plan, given)
    except Refused as refused:
        typed = {name: given.first(name) for name in ("reason", "value", "error")}
        return view.page("act.html", here="", code=400, plan=plan, problem=refused.message, typed=typed)
    came = [await _try(work, target) for target in plan.targets]
    is_gone = plan.deed.name == "erase" and view.user.scopes is not None  # it has lost its scope
    if len(came) == 1 and came[0].is_done and plan.deed.kind == "record" and not is_gone:
        return view.redirect(came[0].target.place, done=plan.deed.name)
    done, unknown = sum(one.is_done for one in came), sum(not one.is_known for one in came)
    return view.page("acted.html", here="", plan=plan, came=came, done=done, unknown=unknown)


async def make_plan(view: View, given: Given) -> Plan:
    """What is asked for, with the targets as they are now.

    Raises:
        Refused: there is no such thing to do, the user may not, or no target is named.
    """
    deed = DEEDS.get(given.first("do"))
    if deed is None:
        raise Invalid("There is no such thing to do; nothing was changed.", because="do")
    view.actions.demand(view.user, deed.permission)
    if view.actions.is_read_only:
        raise Forbidden("This store keeps no audit chain, so nothing can be changed here; nothing was changed.")
    plan = await _PLANS[deed.kind](view, deed, given)
    if not plan.targets:
        raise Invalid("Nothing was chosen, so there is nothing to do. Go back and choose.", because="targets")
    return plan


async def _plan_records(view: View, deed: Deed, given: Given) -> Plan:
    references = given.all("target")[:MOST]
    force = view.may(Permission.FORCE) and len(references) == 1
    plan = Plan(deed, [], f"/records/{references[0]}" if len(references) == 1 else "/records", "target")
    for reference in references:
        try:
            record = await view.actions.show(view.user, reference)
        except Refused as refused:
            plan.targets.append(Target(reference, reference[:12], "/records", refusal=refused.message))
            continue
        refusal = why_not(deed, record, view.now, force=force)
        words = f"{record.key.operation} {record.key.value}".strip()
        plan.targets.append(
            Target(record.reference, words, f"/records/{record.reference}", f"{record.status}", refusal)
        )
        plan.hidden.append(("fence", f"{record.reference}:{record.fence}"))
        if not refusal and is_live(record, view.now):
            plan.confirm = record.reference[:8]
    return plan


async def _plan_letters(view: View, deed: Deed, given: Given) -> Plan:
    consumer = given.first("consumer")
    plan = Plan(deed, [], f"/events/letters{query_text({'consumer': consumer})}", "letter", [("consumer", consumer)])
    for id_ in given.all("letter")[:MOST]:
        try:
            letter = await view.actions.letter(view.user, consumer, id_)
            in_vain = ""
            if deed.name == "redrive":
                view.actions.consumer(consumer)
                in_vain = await view.actions.why_in_vain(letter)
        except Refused as refused:
            plan.targets.append(Target(id_, id_[:12], plan.back, refusal=refused.message))
            continue
        words = f"{letter.type or 'unreadable'} {letter.subject or ''}".strip()
        place = f"/records/{letter.record.hex()}" if in_vain and letter.record is not None else plan.back
        plan.targets.append(Target(id_, words, place, letter.reason.replace("_", " "), in_vain))
    return plan


async def _plan_parked(view: View, deed: Deed, given: Given) -> Plan:
    stream = given.first("stream")
    plan = Plan(deed, [], f"/events/parked{query_text({'stream': stream})}", "position", [("stream", stream)])
    if given.first("which") == "all":
        return await _plan_all_parked(view, plan, stream)
    for text in given.all("position")[:MOST]:
        position = read_number(text, "position")
        page = await view.actions.parked(view.user, stream, after=position - 1, limit=1)
        found = [one for one in page.events if one.stored.position == position]
        if not found:
            gone = f"There is no parked event at position {text} of {stream}; nothing was done."
            plan.targets.append(Target(text, f"position {text}", plan.back, refusal=gone))
            continue
        event = found[0].stored.event
        waits = (
            "It waits behind another one of its key, or was released and goes out with the next turn of its relay; "
            "only the one that failed is decided about."
        )
        refusal = waits if found[0].error is None else ""
        plan.targets.append(Target(text, f"{event.type} {event.subject or ''}".strip(), plan.back, "", refusal))
    return plan


async def _plan_all_parked(view: View, plan: Plan, stream: str) -> Plan:
    """All of a stream that failed: one target, because one statement releases them together."""
    if plan.deed.name != "publish":
        raise Invalid("Events are dropped by their positions, never all together; nothing was changed.", because="do")
    view.actions.demand_everywhere(view.user, plan.deed.permission)
    failed = next((lag.failed for lag in await view.actions.streams(view.user) if lag.stream == stream), 0)
    refusal = "" if failed else f"No event of {stream} failed, so there is nothing to release."
    plan.targets.append(Target("all", f"all of {stream} that failed: {failed:,}", plan.back, "", refusal))
    plan.hidden.append(("which", "all"))
    plan.target_field = ""
    return plan


async def _plan_batch(view: View, deed: Deed, given: Given) -> Plan:
    scope, batch = given.first("scope"), given.first("batch")
    status = await view.actions.batch(view.user, scope, batch)
    back = f"/batch{query_text({'scope': scope, 'batch': batch})}"
    target = Target(batch, batch, back, status.state)
    return Plan(deed, [target], back, "", [("scope", scope), ("batch", batch)])


_PLANS: Final[dict[str, Callable[[View, Deed, Given], Awaitable[Plan]]]] = {
    "record": _plan_records,
    "letter": _plan_letters,
    "parked": _plan_parked,
    "batch": _plan_batch,
}


def _worker(view: View, plan: Plan, given: Given) -> Callable[[Target], Awaitable[str]]:
    """What does it to one target, and says what came of it.

    Raises:
        Refused: the reason is missing, or what has to be stated cannot be read.
    """
    reason = given.first("reason")
    if not reason.strip():
        raise Invalid("A reason is needed, for those who read it later; nothing was changed.", because="reason")
    if plan.deed.kind == "record":
        return _record_worker(view, plan, given, reason)
    return _other_worker(view, plan, reason)


def _record_worker(view: View, plan: Plan, given: Given, reason: str) -> Callable[[Target], Awaitable[str]]:
    fences = dict(value.split(":", 1) for value in given.all("fence") if ":" in value)
    confirm = given.stripped("confirm").lower()
    deed, actions = plan.deed, view.actions
    stated = _stated(deed, given)

    async def work(target: Target) -> str:
        fence = fences.get(target.id, "")
        seen: dict[str, Any] = {"reason": reason, "fence": read_number(fence, "fence") if fence else None}
        if deed.name == "reopen":
            await actions.reopen(view.user, target.id, **seen)
        elif deed.name == "erase":
            await actions.erase(view.user, target.id, **seen)
        else:
            if plan.confirm:
                seen |= {"force": True, "confirm": confirm}
            if deed.name == "correct":
                seen["correct"] = True
            await actions.resolve(view.user, target.id, stated, **seen)
        return "done"

    return work


def _stated(deed: Deed, given: Given) -> Any:
    match deed.name:
        case "happened" | "correct":
            return Happened(read_value(given.first("value")))
        case "cancel":
            return Cancelled()
        case "fail":
            error = given.stripped("error")
            if not error:
                raise Invalid("State the error that duplicates shall get; nothing was changed.", because="error")
            return Failed(error)
        case _:
            return DidNotHappen()


def _other_worker(view: View, plan: Plan, reason: str) -> Callable[[Target], Awaitable[str]]:
    hidden, actions, user = dict(plan.hidden), view.actions, view.user

    async def work(target: Target) -> str:
        match plan.deed.name:
            case "redrive":
                disposition = await actions.redrive(user, hidden["consumer"], target.id, reason=reason)
                check_processed(disposition)
                return f"handed over: {disposition.status}"
            case "discard":
                await actions.discard(user, hidden["consumer"], target.id, reason=reason)
            case "publish" if hidden.get("which") == "all":
                return f"released: {await actions.release_all_parked(user, hidden['stream'], reason=reason):,}"
            case "publish":
                await actions.release_parked(user, hidden["stream"], int(target.id), reason=reason)
            case "drop":
                await actions.drop_parked(user, hidden["stream"], int(target.id), reason=reason)
            case name:
                return await _change_batch(view, name, hidden["scope"], hidden["batch"], reason)
        return "done"

    return work


async def _change_batch(view: View, name: str, scope: str, batch: str, reason: str) -> str:
    actions, user = view.actions, view.user
    match name:
        case "pause":
            await actions.pause_batch(user, scope, batch, reason=reason)
        case "resume":
            await actions.resume_batch(user, scope, batch, reason=reason)
        case "cancel_batch":
            await actions.cancel_batch(user, scope, batch, reason=reason)
        case _:
            which: Any = "failed" if name == "retry_failed" else "in_doubt"
            count = await actions.retry_batch(user, scope, batch, which, reason=reason)
            return f"{count:,} items run again"
    return "done"


async def _try(work: Callable[[Target], Awaitable[str]], target: Target) -> Came:
    try:
        return Came(target, await work(target), is_done=True)
    except SemelError as error:
        refused = refusal_of(error)
        if not isinstance(refused, Refused):
            raise
        may_be_done = isinstance(refused, Unavailable) and refused.may_have_happened
        return Came(target, refused.message, is_done=False, is_known=not may_be_done)
