"""The console as an ASGI application: alone, in `semel serve`, or mounted in an application of yours."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from semel.api import AsyncSemel, Semel
from semel.engine.engine import engine_of
from semel.errors import SemelError
from semel.events import Consumer
from semel.server.access import User
from semel.server.actions import Actions, make_actions
from semel.server.api.protection import check_texts
from semel.server.api.way_back import with_way_back
from semel.server.bulk import BulkActions, BulkRunner
from semel.server.console.examination import Examination
from semel.server.console.links import Links
from semel.server.console.pages import acting, batches, bulk, events, records, state
from semel.server.console.rendering import HERE, make_templates
from semel.server.console.security import SecurityHeaders
from semel.server.console.view import Handler, Site, UserRule, View, frame_of
from semel.server.refusals import Forbidden, Invalid, NotFound, NotPossible, ReadOnly, Unavailable, refusal_of
from semel.stores.admin import Finding

_LOG: Final = logging.getLogger("semel.server")
_STATUSES: Final[dict[type[SemelError], int]] = {
    NotFound: 404,
    Forbidden: 403,
    ReadOnly: 403,
    Invalid: 400,
    NotPossible: 409,
    Unavailable: 503,
}
_TITLES: Final = {
    401: "Sign in first",
    404: "Not found",
    403: "Not permitted",
    400: "Not understood",
    409: "Not possible",
    500: "Internal error",
    503: "The store does not answer",
}
_HTTP_REFUSALS: Final = {
    404: "There is no such page here.",
    405: "This page is there, and cannot be asked for in this way: it is looked at, or it takes a form, and not both.",
}
_PAGES: Final[tuple[tuple[str, Handler], ...]] = (
    ("/", state.show_attention),
    ("/overview", state.show_overview),
    ("/records", records.show_records),
    ("/records/{reference}", records.show_record),
    ("/records/{reference}/body", records.show_body),
    ("/find", records.find_record),
    ("/process", records.show_process),
    ("/batches", batches.show_batches),
    ("/batch", batches.show_batch),
    ("/events", events.show_events),
    ("/events/letters", events.show_letters),
    ("/events/letter", events.show_letter_body),
    ("/events/parked", events.show_parked),
    ("/doctor", state.show_doctor),
    ("/audit", state.show_audit),
    ("/act", acting.ask_first),
    ("/bulk", bulk.show_bulk),
)
_FORMS: Final[tuple[tuple[str, Handler], ...]] = (
    ("/act", acting.carry_out),
    ("/bulk", bulk.begin),
    ("/bulk/change", bulk.change_bulk),
)


def console_app(
    semel: Semel | AsyncSemel,
    *,
    user: UserRule,
    consumers: Iterable[Consumer[Any]] = (),
    links: Mapping[str, str] | None = None,
) -> ASGIApp:
    """The console for a store, to be mounted.

    Args:
        semel: the engine whose records are shown.
        user: says who sends a request, from what your application knows of it; None: nobody, who sees nothing. It may
            be a coroutine function.
        consumers: consumers whose dead letters can be redriven here.
        links: addresses elsewhere by what they are called, with names in braces: `{trace_id}`, `{process_instance}`,
            `{business_key}`, `{subject}`, `{reference}`, `{tag_NAME}` and others.

    Raises:
        UsageError: a link cannot be used.
    """
    actions = make_actions(semel, consumers=consumers)
    many = BulkActions(actions)
    return make_console(actions, many, BulkRunner(many), user=user, links=links)


def make_console(
    actions: Actions,
    many: BulkActions,
    runner: BulkRunner,
    *,
    user: UserRule,
    links: Mapping[str, str] | None = None,
    sign_in: str = "",
    findings: Sequence[Finding] = (),
) -> ASGIApp:
    """The console on actions that are there already.

    Args:
        actions: what operators can do.
        many: the same to all that match.
        runner: what carries that out.
        user: as for `console_app`.
        links: as for `console_app`.
        sign_in: the page where somebody unknown is sent.
        findings: what the doctor's page shows beside what it finds about the store.
    """
    examination = Examination(engine_of(actions.semel).store, findings)
    site = Site(actions, user, Links(links or {}), make_templates(), many, runner, examination, sign_in)
    return SecurityHeaders(Starlette(routes=_routes(site), exception_handlers={HTTPException: _refuse_http(site)}))


def _routes(site: Site) -> list[BaseRoute]:
    pages: list[BaseRoute] = [
        Route(place, _endpoint(site, handler), methods=["GET", "HEAD"], name=place) for place, handler in _PAGES
    ]
    return [
        *pages,
        *(Route(place, _endpoint(site, handler), methods=["POST"]) for place, handler in _FORMS),
        Mount("/static", StaticFiles(directory=HERE / "static"), name="static"),
    ]


def _endpoint(site: Site, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        found = site.find_user(request)
        user = await found if inspect.isawaitable(found) else found
        if not isinstance(user, User):
            if site.sign_in:
                return RedirectResponse(with_way_back(request, site.sign_in), 303)
            return _message(site, request, None, 401, "Nobody is signed in, so nothing is shown.")
        site.runner.look_for_left()
        try:
            check_texts(request)
            return await handler(View(site, request, user))
        except SemelError as error:
            refused = refusal_of(error)
            status = next((code for kind, code in _STATUSES.items() if isinstance(refused, kind)), None)
            if status is None:
                return _broken(site, request, user, error)
            return _message(site, request, user, status, refused.message)
        except Exception as error:  # noqa: BLE001 - the last place; what it says may be personal, so it is not shown
            return _broken(site, request, user, error)

    return answer


def _broken(site: Site, request: Request, user: User, error: Exception) -> Response:
    _LOG.error("a page ended with %s", type(error).__qualname__)
    return _message(site, request, user, 500, "Something went wrong; the log of the server says what.")


def _refuse_http(site: Site) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        response = _message(site, request, None, status, _HTTP_REFUSALS.get(status, "This cannot be answered."))
        response.headers.update(getattr(error, "headers", None) or {})
        return response

    return answer


def _message(site: Site, request: Request, user: User | None, status: int, text: str) -> Response:
    root = request.scope.get("root_path", "")
    frame = frame_of(site, user, datetime.now(UTC), lambda place: f"{root}{place}")
    told = {"title": _TITLES.get(status, "Not possible"), "text": text, "back": "/"}
    page = site.templates.get_template("message.html").render(frame | told)
    return HTMLResponse(page, status)
