"""Actions on many in the console: who sees and steers them, what their dry run counts, and what came of them."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import pytest

from semel import AsyncSemel
from semel.core.events.letters import StoredLetter
from semel.events import Consumer, Event
from semel.server import User
from semel.server.actions import make_actions
from semel.server.actions.events import letter_id
from semel.server.app import find_attention
from semel.server.attention import AttentionFinder
from semel.server.bulk import BulkActions, BulkRequest, BulkRunner, LetterAction, LetterFilter
from semel.server.console.app import make_console
from semel.server.console.deeds import DEEDS
from semel.server.console.security import COOKIE, token_of
from tests.server.desk import ADMIN, OPERATOR, WHY, Desk
from tests.server.test_attention import put_letter

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


class Ledger(Consumer[AsyncSemel]):
    """A consumer whose handler raises what it is told to, and else works."""

    def __init__(self, desk: Desk, error: Exception | None, **how: Any) -> None:
        super().__init__(desk.semel, "billing", **how)
        self.error = error
        self.on("paid")(self.book)

    async def book(self, event: Event) -> None:
        """The handler."""
        if self.error is not None:
            raise self.error

    async def fails(self, desk: Desk, id_: str = "e-1") -> str:
        """An event that becomes a dead letter; gives the letter's id."""
        known = {letter_id(letter) for letter in await letters_of(desk)}
        await self.handle(Event(type="paid", source="/shop", id=id_))
        (new,) = {letter_id(letter) for letter in await letters_of(desk)} - known
        return new


async def letters_of(desk: Desk) -> tuple[StoredLetter, ...]:
    return (await desk.actions.letters(ADMIN, "billing")).letters


def in_doubt_ledger(desk: Desk) -> Ledger:
    """Its events are in doubt, and for a person, once its handler has raised."""
    return Ledger(desk, TimeoutError(), max_attempts=3, in_doubt="hold")


async def redrive(reader: Reader, letter: str) -> str:
    """Redrive a letter, and give what the page then says."""
    return told(await reader.send("/act", "/events", do="redrive", consumer="billing", letter=letter, reason=WHY))


@pytest.mark.parametrize(
    ("error", "then", "outcome"),
    [
        (None, "1 of 1 done. What Came of it paid done handed over: processed", "done"),
        (
            OSError(),
            "0 of 1 done, 1 refused. What Came of it paid refused The event is exhausted again.",
            "failed: exhausted",
        ),
    ],
    ids=["processed", "exhausted"],
)
async def test_a_redriven_letter_is_done_once_its_event_is_processed(
    desk: Desk, error: Exception | None, then: str, outcome: str
) -> None:
    ledger = Ledger(desk, OSError(), max_attempts=1)
    letter = await ledger.fails(desk)
    ledger.error = error
    async with reading(desk, OPERATOR, [ledger]) as reader:
        assert then in await redrive(reader, letter)
    assert await desk.outcomes() == ["begun", outcome]


async def test_a_letter_in_doubt_is_refused_with_the_record_to_decide_about(desk: Desk) -> None:
    ledger = in_doubt_ledger(desk)
    letter = await ledger.fails(desk)
    async with reading(desk, OPERATOR, [ledger]) as reader:
        page = await reader.get(f"/act?do=redrive&consumer=billing&letter={letter}")
        came = await redrive(reader, letter)
    assert "0 of 1 would be done" in told(page)
    assert f"Decide about its record {letter[64:80]}; nothing was changed" in told(page)
    assert f'href="/records/{letter[64:]}"' in page.text
    assert f"The event is in doubt again. Decide about its record {letter[64:80]}." in came


async def test_a_dry_run_of_a_redrive_leaves_out_what_only_a_person_can_decide(desk: Desk) -> None:
    ledger = in_doubt_ledger(desk)
    for number in range(2):
        await ledger.fails(desk, f"e-{number}")
    done = Ledger(desk, OSError(), max_attempts=1)
    await done.fails(desk, "e-2")
    ledger.error = None
    actions = make_actions(desk.semel, consumers=[ledger])
    bulk, asked = BulkActions(actions), to_letters("redrive")
    preview = await bulk.preview(OPERATOR, asked)
    await bulk.start(OPERATOR, asked)
    await bulk.run("", "b")
    progress = await bulk.progress(OPERATOR, "", "b")
    assert (preview.matching, preview.eligible) == (progress.status.total, progress.done) == (3, 1)
    assert (await bulk.preview(OPERATOR, to_letters("discard"))).eligible == 2


async def test_a_letter_whose_event_did_not_happen_is_redriven(desk: Desk) -> None:
    ledger = in_doubt_ledger(desk)
    letter = await ledger.fails(desk)
    await desk.actions.release(OPERATOR, letter[64:], reason="the bank knows nothing of it")
    ledger.error = None
    actions = make_actions(desk.semel, consumers=[ledger])
    assert (await BulkActions(actions).preview(OPERATOR, to_letters("redrive"))).eligible == 1
    async with reading(desk, OPERATOR, [ledger]) as reader:
        assert "1 of 1 would be done" in await reader.text(f"/act?do=redrive&consumer=billing&letter={letter}")
        assert "handed over: processed" in await redrive(reader, letter)


async def test_a_dry_run_of_very_many_letters_in_doubt_says_how_many_there_are_at_most(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.server.bulk.MOST_COUNTED", 1)
    ledger = in_doubt_ledger(desk)
    for number in range(3):
        await ledger.fails(desk, f"e-{number}")
    actions = make_actions(desk.semel, consumers=[ledger])
    preview = await BulkActions(actions).preview(OPERATOR, to_letters("redrive"))
    assert (preview.matching, preview.eligible, preview.is_eligible_exact) == (3, 2, False)


def to_letters(action: LetterAction) -> BulkRequest:
    return BulkRequest(action=action, reason=WHY, letters=LetterFilter("billing"), id="b")


async def first_screen(desk: Desk, user: User) -> httpx.Response:
    async with reading(desk, user) as reader:
        return await reader.get("/")


async def test_a_paused_bulk_action_is_on_the_first_screen_with_a_link_to_it(desk: Desk) -> None:
    await pause_an_erasure(desk)
    page = await first_screen(desk, ADMIN)
    assert "Paused actions on many Wait for the lawyer. Paused by adam." in told(page)
    assert 'href="/bulk?id=b"' in page.text
    assert "/batch?" not in page.text


async def test_several_paused_bulk_actions_lead_to_their_list(desk: Desk) -> None:
    bulk = await pause_an_erasure(desk)
    await bulk.start(ADMIN, BulkRequest(action="erase", reason=WHY, records={"status": "completed"}, id="c"))
    await bulk.change(ADMIN, "", "c", "pause", reason="wait for the lawyer, too")
    page = await first_screen(desk, ADMIN)
    assert 'href="/bulk"' in page.text
    assert "2 oldest" in told(page)


async def test_a_paused_bulk_action_over_all_scopes_needs_those_alone_who_reach_them(desk: Desk) -> None:
    await pause_an_erasure(desk)
    page = await first_screen(desk, User("sam", {"admin"}, scopes={"", "acme"}))
    assert "Nothing needs a person." in told(page)


async def test_a_paused_bulk_action_of_a_scope_needs_those_who_reach_it(desk: Desk) -> None:
    await desk.completed()
    anna, fred = User("anna", {"admin"}, scopes={"acme"}), User("fred", {"admin"}, scopes={"globex"})
    bulk = BulkActions(desk.actions)
    await bulk.start(anna, BulkRequest(action="erase", reason=WHY, records={"status": "completed"}, id="b"))
    await bulk.change(anna, "acme", "b", "pause", reason="wait for the lawyer")
    assert 'href="/bulk?scope=acme&amp;id=b"' in (await first_screen(desk, anna)).text
    assert "Nothing needs a person." in told(await first_screen(desk, fred))


async def test_the_gauges_count_a_paused_bulk_action_among_the_batches(desk: Desk) -> None:
    await pause_an_erasure(desk)
    (shown,) = await find_attention(AttentionFinder(desk.semel), lambda: datetime.now(UTC))
    assert (shown.kind, shown.operation, shown.number) == ("paused_batch", "semel:bulk", 1)


async def test_a_user_of_two_scopes_acts_on_all_letters_of_one(desk: Desk) -> None:
    for scope in ("acme", "globex"):
        await put_letter(desk, "billing", scope, record=scope.ljust(32).encode())
    place = "/act?which=all&do=discard&consumer=billing"
    async with reading(desk, User("anna", {"operator"}, scopes={"acme", "globex"})) as reader:
        assert "A bulk action belongs to one scope" in await reader.text(place)
        assert "Match the search 1 Could be done 1" in await reader.text(f"{place}&scope=acme")
        await reader.send("/bulk", f"{place}&scope=acme", reason=WHY)
    assert [letter.scope for letter in await letters_of(desk)] == ["globex"]


@pytest.mark.parametrize(("scope", "number"), [("scope=", 4), ("scope=acme", 1), ("scope=shared", 1), ("shared=1", 2)])
async def test_letters_are_searched_by_scope(desk: Desk, scope: str, number: int) -> None:
    for place, record in zip(("acme", "", "", "shared"), (b"a" * 32, b"b" * 32, b"c" * 32, b"d" * 32), strict=True):
        await put_letter(desk, "billing", place, record=record)
    async with reading(desk, ADMIN) as reader:
        page = await reader.get(f"/events/letters?consumer=billing&{scope}")
        many = await reader.text(f"/act?which=all&do=discard&consumer=billing&{scope}")
    assert page.text.count('type="checkbox" name="letter"') == number
    kept = ('name="scope" value="acme"', 'name="scope" value="shared"', 'name="shared" value="1"')
    assert sum(f'<input type="hidden" {one}>' in page.text for one in kept) == (number < 4)
    assert f"Match the search {number} " in many


async def test_the_way_back_from_many_letters_leads_to_the_same_search(desk: Desk) -> None:
    await put_letter(desk, "billing")
    asked = "consumer=billing&type=t&subject=7&scope=acme"
    async with reading(desk, ADMIN) as reader:
        page = await reader.get(f"/act?which=all&do=discard&{asked}&why=exhausted")
    assert f'href="/events/letters?{asked.replace("&", "&amp;")}&amp;reason=exhausted"' in page.text
