"""The start page: the services, their buttons, and what happened.

What always holds: text is escaped, no script or style stands in the page itself, and a request of another site presses
nothing. Without scripts a button is a form, and the page reloads itself while something runs. It looks as the hotel's
pages do, and uses what they have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from examples.hotel import frame
from examples.start.operations import ServiceSummary
from examples.start.runs import Runs

HERE: Final = Path(__file__).parent
Look = Callable[[], Awaitable[Mapping[str, ServiceSummary]]]


class Pages:
    """The handlers, over what runs.

    Args:
        runs: the services, and what is pressed.
        store: what the services run on, for people.
        console: where the console of a service is, by its name; empty where there is none.
        look: says what the consoles show now.
    """

    def __init__(self, runs: Runs, store: str, console: Mapping[str, str], look: Look) -> None:
        self._runs = runs
        self._store = store
        self._console = console
        self._look = look
        shared = PrefixLoader({"hotel": FileSystemLoader(frame.HERE / "templates")})
        self._templates = Environment(
            loader=ChoiceLoader([FileSystemLoader(HERE / "templates"), shared]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
        )

    def make_app(self) -> Starlette:
        """The page as an application."""
        return Starlette(
            routes=[
                Route("/", self.home, methods=["GET"]),
                Route("/press/{service}/{button}", self.press, methods=["POST"]),
                Mount("/static/start", StaticFiles(directory=HERE / "static")),
                Mount("/static", StaticFiles(directory=frame.HERE / "static")),
            ]
        )

    async def home(self, request: Request) -> Response:
        """All services, and what happened."""
        text = self._templates.get_template("home.html").render(
            user=None,
            services=self._runs.services,
            totals=self._runs.totals,
            is_running=any(service.running for service in self._runs.services),
            store=self._store,
            console=self._console,
            summaries=await self._look(),
        )
        return HTMLResponse(text, headers=frame.HEADERS)

    async def press(self, request: Request) -> Response:
        """Press a button; what happens is on the page."""
        if frame.is_of_another_site(request):
            return Response("Nothing was pressed: this came from another site.", 403)
        service = self._runs.find(request.path_params["service"])
        button = None if service is None else service.find(request.path_params["button"])
        if service is None or button is None:
            return Response("Nothing was pressed: there is no such button.", 404)
        self._runs.press(service, button)
        return RedirectResponse(f"/#{service.name}", 303)
