"""One request for a page: who asks, what the console knows, and the page that is given back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from semel.core.store import Store
from semel.engine.engine import engine_of
from semel.server.access import Permission, User
from semel.server.actions import Actions
from semel.server.bulk import BulkActions, BulkRunner
from semel.server.console.examination import Examination
from semel.server.console.links import Links
from semel.server.console.security import COOKIE, new_secret, set_secret, token_of

EVERY: Final = timedelta(seconds=1.5)
"""From one question to the next: with the answer itself a page is no older than two seconds."""
PLACES: Final = (
    ("/", "Needs a person"),
    ("/overview", "Overview"),
    ("/records", "Records"),
    ("/batches", "Batches"),
    ("/events", "Events"),
    ("/doctor", "Doctor"),
    ("/audit", "Audit"),
)
UserRule = Callable[[Request], User | Awaitable[User | None] | None]


@dataclass(frozen=True, slots=True)
class Site:
    """What all pages share."""

    actions: Actions
    find_user: UserRule
    links: Links
    templates: Environment
    bulk: BulkActions
    runner: BulkRunner
    examination: Examination
    sign_in: str = ""

    @property
    def store(self) -> Store:
        """The store that is looked at."""
        return engine_of(self.actions.semel).store


class View:
    """One request."""

    def __init__(self, site: Site, request: Request, user: User) -> None:
        self.site = site
        self.request = request
        self.user = user
        self.now = datetime.now(UTC)
        self._secret = request.cookies.get(COOKIE)

    @property
    def actions(self) -> Actions:
        """Everything that an operator can do."""
        return self.site.actions

    def url(self, place: str, **query: str) -> str:
        """The address of a page, wherever the console is mounted."""
        root: str = self.request.scope.get("root_path", "")
        return f"{root}{place}" + (f"?{urlencode(query)}" if query else "")

    def asked(self, name: str, default: str = "") -> str:
        """What the address says under a name, exactly: a key may begin or end with blanks."""
        return self.request.query_params.get(name, default)

    def may(self, permission: Permission) -> bool:
        """Whether the user may do this here; whatever changes something needs an audit chain."""
        return self.user.may(permission) and not (self.actions.is_read_only and permission not in _LOOKING)

    def page(self, template: str, *, here: str, code: int = 200, **context: Any) -> Response:
        """A page, with what every page has."""
        secret = self._secret or new_secret()
        frame = frame_of(self.site, self.user, self.now, self.url) | {
            "here": here,
            "token": token_of(secret, self.user.name),
        }
        text = self.site.templates.get_template(template).render(frame | context)
        response = HTMLResponse(text, code)
        if self._secret is None:
            set_secret(response, self.request, secret)
        return response

    def redirect(self, place: str, **query: str) -> Response:
        """Another page instead."""
        return RedirectResponse(self.url(place, **query), 303)


_LOOKING: Final = frozenset({Permission.LIST, Permission.SHOW, Permission.BODY, Permission.AUDIT})
Handler = Callable[[View], Awaitable[Response]]


def frame_of(site: Site, user: User | None, now: datetime, url: Callable[..., str]) -> dict[str, Any]:
    """What the frame of every page needs."""
    return {
        "url": url,
        "user": user,
        "roles": "" if user is None else ", ".join(sorted(user.roles)) or "no role",
        "now": now,
        "places": PLACES if user is not None else (),
        "here": "",
        "token": "",
        "every_ms": EVERY // timedelta(milliseconds=1),
        "store": site.store.name if user is not None else "",
        "sign_out": url("/sign-out") if user is not None and site.sign_in else "",
        "is_read_only": user is not None and site.actions.is_read_only,
    }


def query_text(pairs: Mapping[str, str]) -> str:
    """A query, without what is empty; with its question mark."""
    given = {name: value for name, value in pairs.items() if value}
    return f"?{urlencode(given)}" if given else ""
