"""The pages: send a file, and follow what becomes of it. They look as the hotel's do, and use what it has.

What always holds: text from users is escaped, no script or style stands in a page itself, and a page is shown to
nobody but the account whose it is.
"""

import csv
import io
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from examples.hotel import frame
from examples.payments.bulk import Bulks
from examples.payments.bulk_file import COLUMNS
from examples.payments.parts import Caller, Parts
from examples.payments.problems import Refused

HERE: Final = Path(__file__).parent
HEADERS: Final = {**frame.HEADERS, "Vary": "Cookie, Accept"}
MOST_SAMPLES: Final = 20_000
Handler = Callable[[Request], Awaitable[Response]]


class Pages:
    """The handlers, over the parts of the service."""

    def __init__(self, parts: Parts) -> None:
        self._settings = parts.settings
        self._bulks = Bulks(parts)
        own = FileSystemLoader(HERE / "templates")
        shared = FileSystemLoader(frame.HERE / "templates")
        self._templates = Environment(
            loader=ChoiceLoader([own, PrefixLoader({"hotel": shared})]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
        )
        self._templates.filters["grouped"] = _grouped

    def routes(self) -> list[BaseRoute]:
        """All pages, and the files they load."""
        return [
            Route("/", self.home, methods=["GET"]),
            Route("/sample.csv", sample, methods=["GET"]),
            Mount("/static/payments", StaticFiles(directory=HERE / "static")),
            Mount("/static", StaticFiles(directory=frame.HERE / "static")),
        ]

    def or_else(self, handler: Handler) -> Handler:
        """The page of a bulk for whoever wants a page, and what `handler` answers for programs."""

        async def choose(request: Request) -> Response:
            wants_page = "text/html" in request.headers.get("accept", "")
            return await (self.bulk(request) if wants_page else handler(request))

        return choose

    async def home(self, request: Request) -> Response:
        """Send a file; or sign in."""
        account: Caller | None = request.state.account
        if account is None:
            return self._page("sign_in.html", None, is_refused="refused" in request.query_params)
        bulks = await self._bulks.list(account.id)
        return self._page("home.html", account, bulks=bulks, limits=self._settings.bulk, columns=COLUMNS)

    async def bulk(self, request: Request) -> Response:
        """How far a bulk is, while it runs."""
        account: Caller = request.state.account
        try:
            bulk = await self._bulks.describe(account.id, request.path_params["id"])
        except Refused as error:
            return self._page("message.html", account, status=error.status, heading="No such file", text=str(error))
        return self._page("bulk.html", account, bulk=bulk)

    def _page(self, template: str, account: Caller | None, *, status: int = 200, **values: Any) -> HTMLResponse:
        text = self._templates.get_template(template).render(user=account, currency=self._settings.currency, **values)
        return HTMLResponse(text, status, HEADERS)


async def sample(request: Request) -> Response:
    """`GET /sample.csv?payments=500&bad=3`: a file to try, with cards that are declined, and lines that are wrong."""
    wanted, wrong = (_count(request, name, most) for name, most in (("payments", MOST_SAMPLES), ("bad", 50)))
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(COLUMNS.split(", "))
    for number in range(1, wanted + 1):
        card = "tok_declined" if number % 40 == 7 else "tok_ok"
        amount = "0.00" if number % 250 == 99 else f"{Decimal(number * 37 % 9000 + 150) / 100:.2f}"
        if wrong and number % max(1, wanted // wrong) == 0:
            amount = "12,50"
        rows.writerow([f"salary-{number:05}", amount, f"customer-{number % 500:04}", card])
    return Response(text.getvalue(), media_type="text/csv", headers={"Content-Disposition": "attachment"})


def _count(request: Request, name: str, most: int) -> int:
    text = request.query_params.get(name, "")
    default = {"payments": 500, "bad": 0}[name]
    return min(int(text), most) if text.isascii() and text.isdecimal() and len(text) < 10 else default


def _grouped(value: Any) -> str:
    """A number with its thousands apart: 12,345 or 12,345.60."""
    return f"{Decimal(str(value)):,}"
