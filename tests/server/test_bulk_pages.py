"""Actions on many in the console: who sees and steers them, what their dry run counts, and where the first screen leads."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from semel.server import User
from semel.server.actions import make_actions
from semel.server.bulk import BulkActions, BulkRequest, BulkRunner
from semel.server.console.app import make_console
from semel.server.console.deeds import DEEDS
from semel.server.console.security import COOKIE, token_of
from tests.server.desk import ADMIN, OPERATOR, WHY, Desk

pytestmark = pytest.mark.anyio
HOST: Final = "http://semel.test"


class Reader:
    """Somebody who reads pages and sends their forms, without a browser."""

    def __init__(self, client: httpx.AsyncClient, user: User) -> None:
        self._client = client
        self._user = user

    async def get(self, place: str) -> httpx.Response:
        """A page."""
        return await self._client.get(place)

    async def text(self, place: str) -> str:
        """What a page says."""
        return told(await self.get(place))

    async def send(self, place: str, page: str, **fields: str) -> httpx.Response:
        """Send a form with the hidden fields that it has on a page."""
        found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', (await self.get(page)).text)
        hidden = {name: html.unescape(value) for name, value in found}
        hidden["token"] = token_of(self._client.cookies[COOKIE], self._user.name)  # that of any page
        return await self._client.post(place, data=hidden | fields, headers={"origin": HOST})


def told(page: httpx.Response) -> str:
    """What people read of the main part of a page."""
    main = page.text[page.text.index("<main") : page.text.index("</main")]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", main)))


@asynccontextmanager
async def reading(desk: Desk, user: User, consumers: Any = ()) -> AsyncIterator[Reader]:
    """A console whose reader is this user."""
    actions = make_actions(desk.semel, consumers=consumers)
    bulk = BulkActions(actions)
    runner = BulkRunner(bulk)
    app = make_console(actions, bulk, runner, user=lambda request: user)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HOST, follow_redirects=True) as client:
        yield Reader(client, user)
        await runner.join()


async def pause_an_erasure(desk: Desk) -> BulkActions:
    """A bulk action of an admin over all scopes, which waits."""
    await desk.completed()
    bulk = BulkActions(desk.actions)
    asked = BulkRequest(action="erase", reason="by law", records={"status": "completed"}, id="b")
    await bulk.start(ADMIN, asked)
    await bulk.change(ADMIN, "", "b", "pause", reason="wait for the lawyer")
    return bulk


@pytest.mark.parametrize("scopes", [None, {""}], ids=["everywhere", "shared"])
@pytest.mark.parametrize("role", ["viewer", "operator", "eraser", "admin"])
async def test_a_bulk_action_has_no_page_of_a_batch(desk: Desk, role: str, scopes: set[str] | None) -> None:
    await pause_an_erasure(desk)
    async with reading(desk, User("sam", {role}, scopes=scopes)) as reader:
        page = await reader.get("/batch?scope=&batch=b")
    assert page.status_code == 404
    assert "by law" not in page.text
    assert "lawyer" not in page.text


@pytest.mark.parametrize("deed", [deed.name for deed in DEEDS.values() if deed.kind == "batch"])
@pytest.mark.parametrize("scopes", [None, {""}], ids=["everywhere", "shared"])
async def test_a_bulk_action_is_not_steered_as_a_batch(desk: Desk, scopes: set[str] | None, deed: str) -> None:
    bulk = await pause_an_erasure(desk)
    async with reading(desk, User("olga", {"operator"}, scopes=scopes)) as reader:
        asked = await reader.get(f"/act?do={deed}&scope=&batch=b")
        sent = await reader.send("/act", "/records", do=deed, scope="", batch="b", reason=WHY)
    assert (asked.status_code, sent.status_code) == (404, 404)
    assert (await bulk.progress(ADMIN, "", "b")).status.state == "paused"


async def test_those_whose_lease_is_over_can_be_decided_about_together(desk: Desk) -> None:
    for number in range(3):
        await desk.running(f"lapsed {number}")
    desk.clock.advance(3600)
    async with reading(desk, OPERATOR) as reader:
        text = await reader.text("/act?which=all&do=cancel&status=stuck")
    assert "Match the search 3 Could be done 3 Would be refused 0" in text
    assert "Cancel it: 3" in text


async def test_a_dry_run_of_very_many_says_that_its_number_is_the_most_there_can_be(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.server.bulk.MOST_COUNTED", 0)
    await desk.failed()
    async with reading(desk, OPERATOR) as reader:
        text = await reader.text("/act?which=all&do=reopen&status=failed")
    assert "Could be done at most 1 Would be refused at least 0" in text
    assert "Let it run again: at most 1" in text
