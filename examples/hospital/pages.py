"""The pages: instances on their diagram, what became of each task, and buttons that make trouble.

What always holds: text is escaped, no script or style stands in a page itself, and a request of another site changes
nothing. Pages look as the hotel's do, and use what it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import httpx
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from examples.hospital.clients import Insurer, System
from examples.hospital.delegates import Outside
from examples.hospital.diagram import find_states, find_ways, read_diagram
from examples.hospital.instances import Instance, Instances
from examples.hospital.process import DIAGRAM
from examples.hospital.sample import make_claim
from examples.hotel import frame

HERE: Final = Path(__file__).parent
FIRST_WORKER: Final = "worker-1"
WORDS: Final = {
    "running": "running",
    "ran": "ran",
    "replayed": "replayed",
    "in-doubt": "in doubt",
    "waiting": "waits",
    "refused": "refused",
}
Handler = Callable[[Request], Response]
_CODES: Final = re.compile(r"[0-9]{8}( [0-9]{8}){0,9}")


@dataclass(frozen=True)
class Effects:
    """What a system around the hospital has of a claim: how often it was done, and asked for."""

    done: int
    asked_for: int
    numbers: tuple[str, ...]


class Pages:
    """The handlers. They block, so each runs in a thread."""

    def __init__(self, instances: Instances, outside: Outside) -> None:
        self._instances = instances
        self._outside = outside
        self._insurer = outside.insurer
        self._books = outside.books
        self._diagram = read_diagram(DIAGRAM)
        shared = PrefixLoader({"hotel": FileSystemLoader(frame.HERE / "templates")})
        self._templates = Environment(
            loader=ChoiceLoader([FileSystemLoader(HERE / "templates"), shared]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
        )
        self._templates.globals["words"] = WORDS

    def close(self) -> None:
        """Close all connections."""
        self._instances.close()
        self._outside.close()

    def routes(self) -> list[BaseRoute]:
        """All pages, and the files they load."""
        return [
            Route("/", self.home, methods=["GET"]),
            Route("/instances/{id}", self.instance, methods=["GET"]),
            Route("/instances", _own_site_alone(self.begin), methods=["POST"]),
            Route("/instances/{id}/again", _own_site_alone(self.begin_again), methods=["POST"]),
            Route("/instances/{id}/kill", _own_site_alone(self.kill), methods=["POST"]),
            Route("/instances/{id}/codes", _own_site_alone(self.validate), methods=["POST"]),
            Route("/instances/{id}/lose", _own_site_alone(self.lose), methods=["POST"]),
            Mount("/static/hospital", StaticFiles(directory=HERE / "static")),
            Mount("/static", StaticFiles(directory=frame.HERE / "static")),
        ]

    def home(self, request: Request) -> Response:
        """All instances."""
        return self._page("home.html", instances=self._instances.latest())

    def instance(self, request: Request) -> Response:
        """One instance on its diagram."""
        found = self._instances.get(request.path_params["id"])
        if found is None:
            return self._no_instance()
        runs = self._instances.runs(found.id)
        states = find_states(self._diagram, found, runs)
        claim = found.variables["claimId"]
        return self._page(
            "instance.html",
            instance=found,
            runs=runs,
            diagram=self._diagram,
            states=states,
            ways=find_ways(self._diagram, states),
            money=_money(found),
            others=[other for other in self._instances.latest() if other.variables["claimId"] == claim],
            claims=_effects(self._insurer, "claims", claim),
            appeals=_effects(self._insurer, "appeals", claim),
            payments=_effects(self._books, "postings", claim),
            loses=_loses(self._insurer),
            codes=self._outside.coder.find(*_procedure(found)),
        )

    def begin(self, request: Request) -> Response:
        """A claim with a number that none had before."""
        is_refused = "refused" in request.query_params
        return _show(self._instances.add(make_claim(self._instances.next_number(), is_refused=is_refused)))

    def begin_again(self, request: Request) -> Response:
        """The same claim in another instance."""
        found = self._instances.get(request.path_params["id"])
        if found is None:
            return self._no_instance()
        inputs = {name: found.variables[name] for name in make_claim(0)}
        return _show(self._instances.add(inputs))

    def kill(self, request: Request) -> Response:
        """Kill the worker that runs an instance."""
        found = self._instances.get(request.path_params["id"])
        if found is None:
            return self._no_instance()
        self._instances.ask_to_die(found.worker or FIRST_WORKER)
        return _show(found.id)

    def lose(self, request: Request) -> Response:
        """The insurer does what it is asked for next, and nobody hears of it."""
        with suppress(httpx.HTTPError):  # it is away, so it loses replies already
            self._insurer.faults(lose_reply=1)
        return _show(request.path_params["id"])

    def validate(self, request: Request) -> Response:
        """A person says which codes hold; no run of the task overwrites them."""
        found = self._instances.get(request.path_params["id"])
        if found is None:
            return self._no_instance()
        codes = request.state.form.get("codes", [""])[0]
        if not _CODES.fullmatch(codes):
            text = "Nothing was changed: codes have eight digits each, and a blank between them."
            return self._page("message.html", 422, heading="No codes", text=text)
        self._outside.coder.validate(*_procedure(found), tuple(codes.split()))
        return _show(found.id)

    def _no_instance(self) -> Response:
        return self._page("message.html", 404, heading="No such process", text="There is no instance with this number.")

    def _page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        text = self._templates.get_template(template).render(user=None, **values)
        return HTMLResponse(text, status, frame.HEADERS)


def _own_site_alone(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Refuse what a page of another site sends: a browser says so."""

    async def check(request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return Response("Nothing was done: this came from another site.", 403)
        request.state.form = parse_qs((await request.body()).decode("utf-8", "replace"))
        return await run_in_threadpool(handler, request)

    return check


def _show(instance: str) -> Response:
    return RedirectResponse(f"/instances/{instance}", 303)


def _procedure(instance: Instance) -> tuple[str, date]:
    """What codes belong to."""
    return instance.variables["medicalRecordId"], date.fromisoformat(instance.variables["procedureDate"])


def _money(instance: Instance) -> dict[str, Decimal | None]:
    names = ("claimTotalAmount", "insurancePayment", "patientBalance")
    given = {name: instance.variables.get(name) for name in names}
    return {name: None if value is None else Decimal(str(value)) for name, value in given.items()}


def _effects(system: System, kind: str, claim: str) -> Effects | None:
    """What a system has of a claim; None where it does not answer."""
    try:
        entries = [entry for entry in system.entries(kind) if json.loads(entry["asked"]).get("claim") == claim]
    except httpx.HTTPError:
        return None
    numbers = tuple(entry["number"] for entry in entries)
    return Effects(len(entries), sum(entry["asked_for"] for entry in entries), numbers)


def _loses(insurer: Insurer) -> bool:
    try:
        return insurer.faults()["lose_reply"] > 0
    except httpx.HTTPError:
        return False
