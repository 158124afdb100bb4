"""Every page and every deed of the console with every role, and with none: who may what, by a table of permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import httpx
import pytest

from semel import AsyncSemel
from semel.server import Permission, Role, User, console_app
from semel.server.access import PERMISSIONS
from semel.server.bulk import PERMISSIONS as BULK
from semel.server.console.app import _PAGES
from semel.server.console.deeds import DEEDS, Deed
from semel.server.console.pages.bulk import _ACTIONS

pytestmark = pytest.mark.anyio
HOST: Final = "console.example"
REFERENCE: Final = "f" * 64
PAGES: Final = {
    "/": Permission.LIST,
    "/overview": Permission.LIST,
    "/records": Permission.LIST,
    "/records/{reference}": Permission.SHOW,
    "/records/{reference}/body": Permission.BODY,
    "/find": Permission.LIST,
    "/process": Permission.LIST,
    "/batches": Permission.LIST,
    "/batch": Permission.SHOW,
    "/events": Permission.LIST,
    "/events/letters": Permission.LIST,
    "/events/letter": Permission.BODY,
    "/events/parked": Permission.LIST,
    "/doctor": Permission.SHOW,
    "/audit": Permission.AUDIT,
    "/bulk": Permission.LIST,
}
"""What each page needs; `/act` needs what is done."""
ASKED: Final = {
    "/find": {"q": "x"},
    "/process": {"instance": "x"},
    "/batch": {"batch": "payroll"},
    "/events/letters": {"consumer": "billing"},
    "/events/letter": {"consumer": "billing", "letter": REFERENCE},
    "/events/parked": {"stream": "default"},
}
OF_KIND: Final = {
    "record": {"target": REFERENCE},
    "letter": {"consumer": "billing", "letter": REFERENCE},
    "parked": {"stream": "default", "position": "1"},
    "batch": {"batch": "payroll"},
}
ROLES: Final = [*Role, None]


@pytest.fixture(params=ROLES)
async def visitor(request: pytest.FixtureRequest) -> AsyncIterator[tuple[httpx.AsyncClient, User]]:
    """Somebody with one role, or with none, in front of an empty console."""
    user = User("somebody", set() if request.param is None else {request.param})
    async with AsyncSemel("memory://") as semel:
        transport = httpx.ASGITransport(console_app(semel, user=lambda _: user))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
            yield client, user


def test_every_page_has_a_row() -> None:
    assert [place for place, _ in _PAGES if place != "/act"] == list(PAGES)


def test_a_role_permits_something_that_another_does_not() -> None:
    assert len({PERMISSIONS[role] for role in Role}) == len(Role)


@pytest.mark.parametrize("place", PAGES)
async def test_a_page_is_shown_to_exactly_those_who_may_see_it(
    visitor: tuple[httpx.AsyncClient, User], place: str
) -> None:
    client, user = visitor
    answer = await client.get(place.format(reference=REFERENCE), params=ASKED.get(place))
    may = user.may(PAGES[place])
    assert (answer.status_code == 403) is not may, answer.text
    assert answer.status_code in ((200, 303, 404, 409) if may else (403,)), answer.text


@pytest.mark.parametrize("deed", DEEDS.values(), ids=list(DEEDS))
async def test_a_deed_is_offered_to_exactly_those_who_may_do_it(
    visitor: tuple[httpx.AsyncClient, User], deed: Deed
) -> None:
    client, user = visitor
    answer = await client.get("/act", params={"do": deed.name, **OF_KIND[deed.kind]})
    assert (answer.status_code == 403) is not user.may(deed.permission), answer.text
    action = _ACTIONS.get(deed.name, deed.name)
    if action in BULK:
        assert BULK[action] is deed.permission
        of_many = {"consumer": "billing"} if deed.kind == "letter" else {"status": "in_doubt"}
        answer = await client.get("/act", params={"which": "all", "do": deed.name, **of_many})
        assert (answer.status_code == 403) is not user.may(deed.permission), answer.text
