"""Pages that look at a bounded number of records: they say that they stopped, and how to go on."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest
from starlette.requests import Request

from semel import AsyncSemel, Policy
from semel.server import User, console_app
from semel.server.console.pages import bulk, records, state
from semel.stores.memory import MemoryStore

pytestmark = pytest.mark.anyio
HOST: Final = "console.example"
SAME: Final = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
USERS: Final = {"adam": User("adam", {"admin"}), "ruth": User("ruth", {"operator"}, {"rare"})}
NUMBER: Final = 40
LOOKS_AT: Final = 10
FINAL: Final = Policy(final_errors=(ValueError,))
HOLD: Final = Policy(in_doubt="hold")
STOPPED: Final = "The search stopped"


async def _fail(_: object = None) -> None:
    raise ValueError


async def _break(_: object = None) -> None:
    raise OSError


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """A shop whose oldest records are the only ones of their kind; pages look at a quarter of it."""
    for pages in (bulk, records, state):
        monkeypatch.setattr(pages, "LOOKS_AT", LOOKS_AT)
    async with AsyncSemel(MemoryStore()) as semel:
        await _run(semel, "rare", operation="once", scope="rare", about={"business_key": "order-1"})
        for key, work, policy in (("failed", _fail, FINAL), ("doubt", _break, HOLD)):
            with pytest.raises(Exception):  # noqa: B017, PT011 - what is kept is what counts
                await semel.run(key, work, operation=key, fingerprint=None, policy=policy)
        for number in range(NUMBER):
            await _run(semel, f"k{number}", operation="pay")
        app = console_app(semel, user=lambda request: USERS[_name_of(request)])
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
            yield client


def _name_of(request: Request) -> str:
    return request.headers.get("x-user", "adam")


async def _run(semel: AsyncSemel, key: str, **told: Any) -> None:
    async def work() -> int:
        return 1

    await semel.run(key, work, fingerprint=None, **told)


async def _page(client: httpx.AsyncClient, place: str, user: str = "adam") -> str:
    answer = await client.get(place, headers={"x-user": user})
    assert answer.status_code == 200, answer.text
    return answer.text


def _operations(page: str) -> list[str]:
    return re.findall(r'data-label="Operation"[^>]*>([^<]*)', page)


def _onward(page: str) -> str:
    (link,) = re.findall(r'rel="next" href="([^"]*)"', page)
    return html.unescape(link)


async def _all_found(client: httpx.AsyncClient, page: str, user: str = "adam") -> list[str]:
    """The operations on this page, and on all to which it leads on."""
    found = _operations(page)
    while STOPPED in page:
        page = await _page(client, _onward(page), user)
        found += _operations(page)
    return found


@pytest.mark.parametrize("query", ["operation=once", "status=failed", "scope=rare", "operation=once&scope=rare"])
async def test_a_search_that_stopped_says_so_and_finds_the_rest_when_it_goes_on(
    client: httpx.AsyncClient, query: str
) -> None:
    page = await _page(client, f"/records?{query}")
    assert STOPPED in page
    assert "No record matches" not in page
    assert _operations(page) == []
    assert len(await _all_found(client, page)) == 1


async def test_a_search_goes_on_from_the_oldest_too(client: httpx.AsyncClient) -> None:
    page = await _page(client, "/records?operation=pay&order=oldest&status=completed")
    assert len(await _all_found(client, page)) == NUMBER


@pytest.mark.parametrize("query", ["business_key=order-1", "status=in_doubt", "status=stuck", "tag=a%3Db"])
async def test_what_an_index_leads_to_is_found_at_once(client: httpx.AsyncClient, query: str) -> None:
    assert STOPPED not in await _page(client, f"/records?{query}")


async def test_the_list_of_a_user_of_one_scope_goes_on_to_what_is_theirs(client: httpx.AsyncClient) -> None:
    page = await _page(client, "/records", "ruth")
    assert STOPPED in page
    assert await _all_found(client, page, "ruth") == ["once"]


async def test_the_overview_of_a_user_of_one_scope_says_how_far_it_looked(client: httpx.AsyncClient) -> None:
    assert "No records of late." in await _page(client, "/overview", "ruth")
    assert "older ones were not looked at" in await _page(client, "/overview")


async def test_a_count_that_stopped_says_so_and_all_that_match_are_done(client: httpx.AsyncClient) -> None:
    asked = await _page(client, "/act?which=all&do=erase&operation=pay")
    assert "at least" in asked
    assert "a page counts so many and no more" in asked
    form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', asked)) | {"reason": "law"}
    begun = await client.post("/bulk", data=form, headers=SAME)
    assert begun.status_code == 303
    page = await _page(client, begun.headers["location"])
    assert sum(map(int, re.findall(r"(\d+) done, 0 refused, (\d+) left", page)[0])) == NUMBER


async def test_where_nothing_was_found_so_far_it_can_be_begun_all_the_same(client: httpx.AsyncClient) -> None:
    asked = await _page(client, "/act?which=all&do=erase&status=completed&tag=nobody%3Dknows&before=1s")
    assert "so there is nothing to do" in asked
    asked = await _page(client, "/act?which=all&do=reopen&status=failed&shared=1")
    assert 'name="reason"' in asked


async def test_a_count_that_looked_at_all_is_exact(client: httpx.AsyncClient) -> None:
    assert "at least" not in await _page(client, "/act?which=all&do=cancel&status=in_doubt")
