"""Texts that mean harm, stored wherever a text can be, on every page that shows them: text, and nothing else."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser
from starlette.applications import Starlette
from starlette.routing import Mount

from semel import AsyncSemel, Cancelled, Policy, Semel, errors
from semel.batch import Batches
from semel.events import Backoff, Consumer, Event, Outbox, Relay
from semel.server import User, console_app
from tests.attack.test_attacks import HOSTILE as OF_DATABASES
from tests.effort import FULL
from tests.server.console.sample_site import Reader, Site, run_apart, served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
OF_PAGES: Final = (
    "<script>window.hacked=1</script>",
    '"><img src=x onerror=window.hacked=1>',
    "'><svg/onload=window.hacked=1>",
    "</title></textarea></style><script>window.hacked=1</script>",
    "javascript:window.hacked=1",
    '" autofocus onfocus=window.hacked=1 x="',
    "<iframe srcdoc='<script>parent.hacked=1</script>'>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=window.hacked=1>",
    '<a href="javas\tcript:window.hacked=1">x</a>',
    "<base href=//evil.example/><meta http-equiv=refresh content=0;url=//evil.example>",
    "{{constructor.constructor('window.hacked=1')()}}${window.hacked=1}{% raw %}",
    "<!--><img src=x onerror=window.hacked=1>-->]]>",
    "\u202e<\u2066script\u200b>\ufeff",
    "&lt;script&gt;window.hacked=1&lt;/script&gt;&#x3c;img src=x onerror=window.hacked=1>",
)
OF_EVENTS: Final = tuple(text for text in OF_PAGES if "\t" not in text)  # events refuse control characters
PAGES_OF_A_KIND: Final = 40 if FULL else 3
TEXTS: Final = (*OF_PAGES, *OF_DATABASES)
LIVE: Final = (
    "main img, main script, main iframe, main object, main base, main style, main math, meta[http-equiv], [onload], "
    "[onerror], [onfocus]"
)
EVIL: Final = " ".join(OF_PAGES)[:900]


class Bad(Exception):
    """It says what it was told."""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A shop in which all texts are hostile, decided about by somebody whose name is."""
    path = tmp_path_factory.mktemp("attacked") / "shop.db"
    mallory = User(OF_PAGES[1], {"admin"})
    with Semel(path) as semel:
        _run_operations(semel)
        _keep_letters(semel)
        _run_batches(semel)
        run_apart(_park(path))
        app = Starlette(routes=[Mount("/admin", console_app(semel, user=lambda _: mallory))])
        with served(app) as address:
            yield Site(address, path, semel)
    shutil.rmtree(path.parent, ignore_errors=True)


def _run_operations(semel: Semel) -> None:
    def handler(text: str) -> str:
        semel.current().step(text, lambda: text)
        if len(text) % 2:
            raise Bad(text)
        return text

    for text in TEXTS:
        about: dict[str, Any] = {
            "subject": text,
            "requester": text,
            "business_key": text,
            "process_instance": text,
            "tags": {"tenant": text, "trace_id": text},
        }
        with suppress(Bad, errors.SemelError):
            semel.run(
                text,
                partial(handler, text),
                operation="import",
                scope="acme",
                fingerprint=None,
                about=about,
                policy=Policy(in_doubt="hold"),
            )
    for text in TEXTS[:6]:
        with suppress(errors.SemelError):
            semel.resolve(text, Cancelled(), operation="import", scope="acme", reason=text, by=text)


def _keep_letters(semel: Semel) -> None:
    consumer = Consumer(semel, "<script>window.hacked=1</script>", max_attempts=1, backoff=Backoff(first=timedelta(0)))

    @consumer.on("x<img src=x onerror=window.hacked=1>")
    def placed(event: Event) -> None:
        raise Bad(EVIL)

    for number, text in enumerate(OF_EVENTS):
        consumer.handle(
            Event(
                type="x<img src=x onerror=window.hacked=1>",
                source="/shop",
                id=f"e-{number}",
                subject=text,
                data={text: text},
            )
        )


def _run_batches(semel: Semel) -> None:
    def pay(data: object) -> None:
        raise Bad(EVIL)

    for text in OF_PAGES[:3]:
        items = [{"id": other} for other in OF_PAGES[:5]]
        batch = Batches(semel, "acme").start(text, items, operation="pay", item_id="id", metadata={text: text})
        batch.run(pay, concurrency=1, max_failed=2, final_errors=(Bad,))


class _Refuses:
    async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
        return [Bad(EVIL) for _ in events]


async def _park(path: Path) -> None:
    async with AsyncSemel(path) as semel:
        outbox = Outbox(semel, OF_PAGES[0])
        for number, text in enumerate(OF_EVENTS):
            event = Event(type=f"t{text}", source="/shop", id=f"o-{number}", subject=text, data=None)
            await outbox.add(event, ordering_key=text, autonomous=True)
        relay = Relay(outbox, _Refuses(), max_attempts=1)
        await relay.run_once()


@pytest.fixture
def mallory(attacked: Site, browser: Browser) -> Iterator[Reader]:
    """Somebody who looks at all of it; a policy that is broken, or a request to elsewhere, is a failure."""
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on("console", lambda said: problems.append(said.text) if "Content Security" in said.text else None)
    page.on("request", lambda asked: None if asked.url.startswith(attacked.address) else problems.append(asked.url))
    yield Reader(attacked, page)
    context.close()
    assert problems == []


def _is_inert(reader: Reader, place: str) -> list[str]:
    """Open a page, see that nothing of it ran or became an element; gives the links on it."""
    page = reader.page
    page.goto(place)
    assert page.locator("h1").count() == 1, place
    assert page.evaluate("window.hacked") is None, place
    assert page.locator(LIVE).count() == 0, place
    links: list[str] = page.locator("a").evaluate_all("links => links.map(link => link.href)")
    assert all(link.startswith(reader.site.address) for link in links), place
    return links


def test_every_page_with_hostile_texts_shows_them_as_text(mallory: Reader) -> None:
    start = mallory.site.url("/")
    waiting, seen, opened = [start], {start}, Counter[str]()
    while waiting:
        place = waiting.pop(0)
        kind = re.sub(r"[0-9a-f]{64}", "*", place.removeprefix(start).partition("?")[0])
        if opened[kind] == PAGES_OF_A_KIND:
            continue
        opened[kind] += 1
        found = {link.partition("#")[0] for link in _is_inert(mallory, place)}
        waiting += sorted(found - seen)
        seen |= found
    wanted = {"overview", "records", "records/*", "batches", "batch", "bulk", "doctor", "audit", "process", "act"}
    assert wanted | {"records/*/body", "events", "events/letters", "events/letter", "events/parked"} <= opened.keys()
    print(f"{opened.total()} pages")


@pytest.mark.parametrize(
    "place", ["/events/letters", "/events/letter", "/events/parked", "/bulk", "/audit", "/act", "/find"]
)
def test_a_page_that_is_asked_for_by_hostile_texts_shows_them_as_text(mallory: Reader, place: str) -> None:
    names = ("consumer", "letter", "stream", "scope", "id", "actor", "target", "q", "do", "reason", "type", "subject")
    for text in OF_PAGES if FULL else OF_PAGES[::5]:
        _is_inert(mallory, mallory.site.url(f"{place}?{urlencode(dict.fromkeys(names, text))}"))


def test_bodies_of_letters_and_records_are_text(mallory: Reader) -> None:
    page = mallory.page
    consumer = urlencode({"consumer": "<script>window.hacked=1</script>"})
    _is_inert(mallory, mallory.site.url(f"/events/letters?{consumer}"))
    bodies = page.locator("td a", has_text="show").evaluate_all("links => links.map(link => link.href)")
    assert len(bodies) == len(OF_EVENTS)
    for body in bodies if FULL else bodies[::4]:
        _is_inert(mallory, body)
        assert page.locator("pre").count() == 1
    page.goto(mallory.site.url("/records?operation=import&status=completed"))
    records = page.locator("tbody a").evaluate_all("links => links.map(link => link.href)")
    assert records
    for record in records if FULL else records[::4]:
        _is_inert(mallory, f"{record}/body")
        assert page.locator("pre").count() == 2  # the outcome and the step


def test_an_action_on_hostile_records_is_written_down_and_shown_as_text(mallory: Reader) -> None:
    page = mallory.page
    page.goto(mallory.site.url("/records?operation=import&status=in_doubt"))
    page.locator('input[name="target"]').first.check()
    page.get_by_label("What to do").select_option("fail")
    page.get_by_role("button", name="See what would happen").click()
    page.get_by_label("The error").fill(EVIL)
    page.get_by_label("Reason").fill(EVIL)
    page.locator("form button[type=submit]").last.click()
    page.wait_for_url("**/records/*")
    place = page.url
    _is_inert(mallory, place)
    _is_inert(mallory, mallory.site.url("/audit"))
    assert "<script>" in page.locator("tbody").inner_text()
