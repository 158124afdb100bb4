"""The pages: choose, reserve, give details, pay. Each is whole when it arrives; scripts only send and wait.

What always holds: text from users is escaped, no script or style stands in a page itself, and a page is shown to
nobody but the user whose it is.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from examples.hotel.booking import LONGEST_STAY
from examples.hotel.frame import HEADERS, HERE
from examples.hotel.offers import Offer, Stay, drafts, hotels, last_night, offers, reserved
from examples.hotel.parts import Parts, SignedIn
from examples.hotel.tables import Hotel

CLIENT: Final = HERE.parent.parent / "clients" / "js" / "src"
CARDS: Final = (
    ("tok_ok", "Card that works", "is charged at once"),
    ("tok_declined", "Card that is declined", "the bank says no"),
    ("tok_slow", "Card that is slow", "time enough to click again, refresh or close the tab"),
)
NOT_FOUND: Final = 404
_VISIT: Final = re.compile(r"[A-Za-z0-9_-]{8,64}")


def routes(parts: Parts) -> list[BaseRoute]:
    """All pages, and the files they load."""
    pages = Pages(parts)
    return [
        Route("/", pages.home, methods=["GET"]),
        Route("/book", pages.book, methods=["GET"]),
        Route("/reservations/{id}", pages.reservation, methods=["GET"]),
        Mount("/static/once", StaticFiles(directory=CLIENT, check_dir=False)),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]


@dataclass(frozen=True)
class Search:
    """Where and when somebody wants to stay, and what is wrong with it."""

    hotel_id: str
    check_in: date
    check_out: date
    mistake: str = ""

    def query(self, **more: str) -> str:
        """As the end of an address."""
        stay = {"hotel": self.hotel_id, "from": self.check_in.isoformat(), "to": self.check_out.isoformat()}
        return urlencode({**stay, **more})


class Pages:
    """The handlers, over the parts of the hotel."""

    def __init__(self, parts: Parts) -> None:
        self._database = parts.database
        self._clock = parts.settings.clock
        self._currency = parts.settings.currency
        self._minutes = parts.settings.draft_for // timedelta(minutes=1)
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.filters["day"] = _day

    async def home(self, request: Request) -> Response:
        """Choose a room; or sign in."""
        user = _user(request)
        if user is None:
            return self._page("sign_in.html", None)
        async with self._database.reading() as session:
            houses = await hotels(session)
            search = self._search(request.query_params, houses)
            rooms = [] if search.mistake else await offers(session, search.hotel_id, search.check_in, search.check_out)
            last = await last_night(session, search.hotel_id)
            waiting = await drafts(session, user.id, self._clock())
        return self._page(
            "home.html",
            user,
            hotels=houses,
            hotel=next(house for house in houses if house.id == search.hotel_id),
            check_in=search.check_in,
            check_out=search.check_out,
            mistake=search.mistake,
            first=self._clock().date(),
            last=last,
            drafts=waiting,
            rooms=[_room(offer, search) for offer in rooms],
            currency=self._currency,
        )

    async def book(self, request: Request) -> Response:
        """What is about to be reserved."""
        user = _user(request)
        if user is None:
            return RedirectResponse("/", 303, HEADERS)
        given = request.query_params
        async with self._database.reading() as session:
            houses = await hotels(session)
            search = self._search(given, houses)
            found = [] if search.mistake else await offers(session, search.hotel_id, search.check_in, search.check_out)
        offer = next((each for each in found if each.room_type == given.get("type")), None)
        if offer is None or search.hotel_id != given.get("hotel"):
            text = search.mistake or "This room is not offered for these dates. Choose another one."
            return self._page("message.html", user, status=NOT_FOUND, heading="No such room", text=text)
        if not _VISIT.fullmatch(given.get("visit", "")):
            # The visit is what makes a second click the same wish: an address without one gets one, and keeps it.
            return RedirectResponse(_booking(offer, search), 303, HEADERS)
        house = next(each for each in houses if each.id == search.hotel_id)
        stay = self._wish(offer, search, house)
        home = "/?" + search.query()
        return self._page("book.html", user, stay=stay, visit=given["visit"], home=home, minutes=self._minutes)

    async def reservation(self, request: Request) -> Response:
        """A reservation of the user's own, by its status."""
        user = _user(request)
        if user is None:
            return RedirectResponse("/", 303, HEADERS)
        now = self._clock()
        async with self._database.reading() as session:
            stay = await reserved(session, user.id, request.path_params["id"], now)
        if stay is None:
            text = "You have no reservation with this number. Perhaps it belongs to another name."
            return self._page("message.html", user, status=NOT_FOUND, heading="No such reservation", text=text)
        left = max(0, int((stay.expires_at - now).total_seconds())) if stay.expires_at else 0
        again = "/?" + Search(stay.hotel_id, stay.check_in, stay.check_out).query()
        return self._page(f"{stay.status.lower()}.html", user, stay=stay, left=left, again=again, cards=CARDS)

    def _page(self, template: str, user: SignedIn | None, *, status: int = 200, **values: Any) -> HTMLResponse:
        text = self._templates.get_template(template).render(user=user, **values)
        return HTMLResponse(text, status, HEADERS)

    def _search(self, given: Mapping[str, str], houses: list[Hotel]) -> Search:
        """What was asked for; what cannot be read is replaced by a stay of two nights in a week's time."""
        today = self._clock().date()
        known = {house.id for house in houses}
        hotel_id = given.get("hotel", "")
        check_in = _date(given.get("from")) or today + timedelta(days=7)
        check_out = _date(given.get("to")) or check_in + timedelta(days=2)
        mistake = ""
        if check_in < today:
            mistake = "The day of arrival has passed. Choose a later one."
        elif check_out <= check_in:
            mistake = "Leave at least one day after you arrive."
        elif check_out - check_in > timedelta(days=LONGEST_STAY):
            mistake = f"A stay has at most {LONGEST_STAY} nights. Choose fewer."
        return Search(hotel_id if hotel_id in known else houses[0].id, check_in, check_out, mistake)

    def _wish(self, offer: Offer, search: Search, house: Hotel) -> Stay:
        return Stay(
            hotel_id=house.id,
            hotel_name=house.name,
            room_type=offer.room_type,
            check_in=search.check_in,
            check_out=search.check_out,
            price=offer.total,
            currency=self._currency,
            left=offer.left,
        )


def _room(offer: Offer, search: Search) -> dict[str, Any]:
    """An offer with the link that books it."""
    return {
        "name": offer.name,
        "nights": [{"night": each.night, "price": each.price, "left": each.rooms_left} for each in offer.nights],
        "total": offer.total,
        "left": offer.left,
        "link": _booking(offer, search),
    }


def _booking(offer: Offer, search: Search) -> str:
    """The address of a new visit: one wish to reserve, however often it is clicked."""
    return "/book?" + search.query(type=offer.room_type, visit=secrets.token_urlsafe(12))


def _user(request: Request) -> SignedIn | None:
    found: SignedIn | None = getattr(request.state, "user", None)
    return found


def _date(text: str | None) -> date | None:
    """A day that can be counted on from; None for anything else."""
    try:
        found = date.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.year < date.max.year else None


def _day(value: date) -> str:
    """Such as "Fri 5 Jun 2026", in English whatever the locale of the machine."""
    weekday = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[value.weekday()]
    month = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[value.month - 1]
    return f"{weekday} {value.day} {month} {value.year}"
