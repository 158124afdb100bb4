"""The page of the plant: what is known of each asset, and buttons that send events about it, once or fifty times.

What always holds: text is escaped, no script or style stands in the page itself, and a request of another site changes
nothing. The page looks as the hotel's do, and uses what it has.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from examples.assets.sample import deliveries, make_life
from examples.hotel import frame
from semel import AsyncSemel
from semel.events import Consumer, Event

HERE: Final = Path(__file__).parent
SOURCE: Final = "/plant/page"
OFTEN: Final = 50
_LOADS: Final = (("running", 32.5), ("maintenance", 0.0), ("idle", 1.5))
_MOST_FORM: Final = 4096


@dataclass(frozen=True)
class Sent:
    """Events that were sent together.

    Attributes:
        what: which, in words.
        deliveries: how often they were delivered.
        events: how many there were.
        statuses: how many deliveries ended in which way.
    """

    what: str
    deliveries: int
    events: int
    statuses: dict[str, int]


class Pages:
    """The handlers, over a consumer and what reads the assets."""

    def __init__(self, consumer: Consumer[AsyncSemel], read: Callable[[], Awaitable[list[dict[str, Any]]]]) -> None:
        self._consumer = consumer
        self._read = read
        self._sent: deque[Sent] = deque(maxlen=12)
        shared = PrefixLoader({"hotel": FileSystemLoader(frame.HERE / "templates")})
        self._templates = Environment(
            loader=ChoiceLoader([FileSystemLoader(HERE / "templates"), shared]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
        )

    def routes(self) -> list[BaseRoute]:
        """The page, and the files it loads."""
        return [
            Route("/", self.home, methods=["GET"]),
            Route("/send", self.send, methods=["POST"]),
            Mount("/static/assets", StaticFiles(directory=HERE / "static")),
            Mount("/static", StaticFiles(directory=frame.HERE / "static")),
        ]

    async def home(self, request: Request) -> Response:
        """All assets, and what was sent."""
        often = "often" in request.query_params
        page = self._templates.get_template("home.html")
        text = page.render(user=None, assets=await self._read(), sent=list(reversed(self._sent)), often=often)
        return HTMLResponse(text, headers=frame.HEADERS)

    async def send(self, request: Request) -> Response:
        """Send what a button says."""
        if frame.is_of_another_site(request):
            return Response("Nothing was sent: this came from another site.", 403)
        body = await request.body()
        form = {name: values[0] for name, values in parse_qs(body[:_MOST_FORM].decode(errors="replace")).items()}
        action, _, name = form.get("do", "").partition(":")
        often = form.get("deliver") == "often"
        assets = {asset["asset"]: asset for asset in await self._read()}
        if action == "life":
            life = make_life(_new_name())
            await self._deliver(f"The life of {life[0].subject}, out of order", deliveries(random.Random(), 9, life))
        elif (event := make_event(action, assets.get(name))) is not None:
            await self._deliver(f"{event.type} of {event.subject}", [event] * (OFTEN if often else 1))
        return RedirectResponse("/?often" if often else "/", 303)

    async def _deliver(self, what: str, events: Sequence[Event]) -> None:
        ends = await asyncio.gather(*(self._consumer.handle(event) for event in events))
        statuses: Counter[str] = Counter(end.status for end in ends)
        self._sent.append(Sent(what, len(events), len({event.id for event in events}), dict(statuses)))


def make_event(action: str, asset: dict[str, Any] | None) -> Event | None:
    """What a button of the page tells about an asset; None where there is no such button, or no such asset.

    Versions are the milliseconds of this machine's clock: whoever operates the plant numbers what they tell.
    """
    version = time.time_ns() // 1_000_000
    if action == "register":
        return _event("asset.registered", _new_name(), facility="north", type="pump", capacity_kw=50.0, version=version)
    if asset is None:
        return None
    match action:
        case "move":
            kept = {name: asset[name] for name in ("type", "capacity_kw")}
            other = "south" if asset["facility"] == "north" else "north"
            return _event("asset.saved", asset["asset"], facility=other, **kept, version=version)
        case "update":
            states = [state for state, _ in _LOADS]
            before = states.index(asset["state"]) if asset["state"] in states else -1
            state, load = _LOADS[(before + 1) % len(_LOADS)]
            return _event("asset.state_changed", asset["asset"], state=state, load_kw=load, version=version)
        case "meter":
            return _event("asset.energy_metered", asset["asset"], kwh=5.0)
    return None


def _event(type_: str, asset: str, **data: Any) -> Event:
    return Event(type=type_, source=SOURCE, subject=asset, data=data)


def _new_name() -> str:
    return f"pump-{secrets.token_hex(2)}"
