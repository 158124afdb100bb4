"""Every page in a real browser: what it shows, that everybody can use it, and that it stays current."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from playwright.sync_api import Browser, Page, expect

from semel import AsyncSemel, Policy, Semel, errors
from semel.batch import Batches
from semel.events import Consumer, Event
from semel.server.process import make_server_app
from semel.server.settings import ServerSettings
from tests.effort import FULL
from tests.server.console.sample import BIG, HOSTILE
from tests.server.console.sample_site import ARTIFACTS, PATIENCE, Lost, Reader, Site, make_app, served

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PAGES: Final = {
    "attention": ("/", "What needs a person"),
    "overview": ("/overview", "Overview"),
    "records": ("/records?status=in_doubt", "Records"),
    "record": ("/find?q=claim-1", "Records"),
    "process": ("/process?instance=proc-7", "Process proc-7"),
    "batches": ("/batches", "Batches"),
    "batch": ("/batch?scope=acme&batch=payroll-2026-11", "payroll-2026-11"),
    "events": ("/events", "Events"),
    "letters": ("/events/letters?consumer=billing", "Dead letters of billing"),
    "parked": ("/events/parked?stream=default", "Parked events of default"),
    "doctor": ("/doctor", "Doctor"),
    "audit-empty": ("/audit", "Audit"),
    "bulks": ("/bulk", "Actions on many"),
    "message": ("/records/00000000", "Not found"),
}
ANSWERED_WITHIN: Final = 300
"""Milliseconds that an answer may take, which is what pages are measured by."""
CONTRAST: Final = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
RULES: Final = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def check_access(page: Page, rules: Mapping[str, object] = RULES) -> None:
    """Find what would shut somebody out of a page."""
    found = Axe().run(page, options={"resultTypes": ["violations"], **rules})
    assert found.violations_count == 0, found.generate_report()


def look_at(page: Page, name: str) -> None:
    """Check a page in both themes and on a telephone, and leave pictures of it."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.wait_for_load_state()  # what is looked for on a page may be there before its style sheet is
    for is_dark in (False, True):
        page.emulate_media(color_scheme="dark" if is_dark else "light")
        check_access(page, CONTRAST if is_dark and not FULL else RULES)
        page.screenshot(path=ARTIFACTS / f"{name}-{'dark' if is_dark else 'light'}.png", full_page=True)
    for width in (800, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    outside = "links => links.filter(one => one.getBoundingClientRect().right > innerWidth).map(one => one.textContent)"
    assert page.locator(".places a").evaluate_all(outside) == []
    if FULL:
        check_access(page)
    page.screenshot(path=ARTIFACTS / f"{name}-telephone.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everybody_in_both_themes_and_on_a_telephone(reader: Reader, name: str) -> None:
    place, title = PAGES[name]
    page = reader.opens(place)
    expect(page.locator("h1")).to_have_text(title)
    look_at(page, name)


APART: Final = """
texts => {
    const shown = texts.filter(text => text.checkVisibility());
    const boxes = shown.map(text => [text.textContent, text.getBoundingClientRect()]);
    const small = boxes.filter(([, box]) => box.height < 9).map(([words]) => words);
    const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
    const met = boxes.filter(([, a], place) => boxes.slice(place + 1).some(([, b]) => !apart(a, b)));
    return [boxes.length > 0, small, met.map(([words]) => words)];
}
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_the_words_of_a_chart_can_be_read_and_do_not_meet(reader: Reader, width: int) -> None:
    page = reader.opens("/overview")
    page.set_viewport_size({"width": width, "height": 800})
    for chart in page.locator("svg.chart").all():
        assert chart.locator("text").evaluate_all(APART) == [True, [], []], chart.get_attribute("aria-label")


@pytest.mark.parametrize("width", [390, 1000, 1280, 1920])
def test_the_figures_of_each_operation_are_not_cut_off(reader: Reader, width: int) -> None:
    name = "shop.checkout.payments.charge_card"
    reader.site.semel.run("k", lambda: 1, operation=name, scope="acme", fingerprint=None)
    page = reader.opens("/overview")
    page.set_viewport_size({"width": width, "height": 800})
    table = page.locator("[data-live=by-operation]")
    assert table.evaluate("part => part.scrollWidth <= part.clientWidth")
    expect(table.locator("tbody tr").first).to_contain_text("ms")


LONG: Final = "0123456789abcdef" * 8
"""A name without a place to break it, such as a digest."""


@pytest.fixture(scope="module")
def long_names(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, str]]:
    """A console in which whatever has a name has a long one, and where it is."""

    def fail() -> None:
        raise Lost(LONG)

    about = {"process_instance": LONG, "business_key": LONG}
    with Semel(tmp_path_factory.mktemp("long") / "shop.db") as semel:
        with suppress(Lost, errors.SemelError):
            policy = Policy(in_doubt="hold")
            semel.run(LONG, fail, operation=LONG, scope=LONG, fingerprint=None, policy=policy, about=about)
        Batches(semel, LONG).start(LONG, [{"id": LONG}], operation=LONG, item_id="id").pause(LONG)
        with served(make_app(semel)) as address:
            page = browser.new_page()
            yield page, f"{address}/viewer"
            page.close()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("place", ["/", f"/process?instance={LONG}", f"/batch?scope={LONG}&batch={LONG}", "/batches"])
def test_a_long_name_makes_no_page_wider_than_the_window(long_names: tuple[Page, str], place: str, width: int) -> None:
    page, address = long_names
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(address + place)
    page.wait_for_load_state()
    expect(page.locator("main")).to_contain_text(LONG)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


LINES: Final = """
cells => cells.map(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
})
"""
SCOPE: Final = "account:acc_bbad5b921c2781ca3ebd2f9f"


@pytest.mark.parametrize("width", [800, 1280])
def test_a_long_scope_leaves_keys_and_operations_their_room(reader: Reader, width: int) -> None:
    semel, key = reader.site.semel, "bulk_bb3a33f8f85b0efdb2c45776, cc5a87f7-40"
    semel.run(key, lambda: 1, operation="CODE_ASSIGNMENT", scope=SCOPE, fingerprint=None)
    page = reader.opens(f"/records?scope={SCOPE}")
    page.set_viewport_size({"width": width, "height": 800})
    operation, kept = (page.locator(f'tbody td[data-label="{name}"]') for name in ("Operation", "Key"))
    assert operation.evaluate_all(LINES) == [1]
    assert max(kept.evaluate_all(LINES)) <= 3


def test_what_is_focused_hides_no_hint(reader: Reader) -> None:
    record = reader.site.in_doubt("hinted")
    page = reader.opens(f"/act?do=cancel&target={record.reference}", "operator")
    expect(page.get_by_label("Reason")).to_be_focused()
    ring = "one => parseFloat(getComputedStyle(one).outlineWidth) + parseFloat(getComputedStyle(one).outlineOffset)"
    reason, hint = page.locator("#reason"), page.locator("#reason-hint")
    top, bottom = (one.evaluate("one => one.getBoundingClientRect()") for one in (reason, hint))
    assert top["top"] - reason.evaluate(ring) >= bottom["bottom"]


def test_a_record_has_its_time_line_its_links_and_what_can_be_done(reader: Reader) -> None:
    page = reader.opens("/records?operation=ship&scope=acme")
    page.locator("tbody a").first.click()
    line = page.locator(".timeline > li strong")
    expect(line).to_contain_text(
        [
            "Key claimed for the first time",
            "Attempt 1 ended without a known outcome",
            "Resolved: it did not happen, and may run again",
            "Attempt 2 completed",
            "Expires in",
        ]
    )
    expect(page.locator(".timeline")).to_contain_text(re.compile(r"on .+, pid \d+, semel"))
    expect(page.get_by_role("link", name="Erase what is personal")).to_be_visible()
    look_at(page, "record-with-history")
    reader.opens("/process?instance=proc-7")
    expect(page.get_by_role("link", name="In the engine")).to_have_attribute(
        "href", "https://engine.example/process/proc-7"
    )
    page.locator("tbody a").first.click()
    trace = "https://traces.example/trace/4bf92f3577b34da6a3ce929d0e0e4736"
    expect(page.get_by_role("link", name="Trace")).to_have_attribute("href", trace)


def test_a_body_is_text_with_exact_numbers_and_no_script_at_all(reader: Reader) -> None:
    page = reader.opens("/records?operation=balance")
    page.locator("tbody a").first.click()
    with page.expect_response("**/body") as answer:
        page.get_by_role("link", name="Show the body").click()
    expect(page.locator("pre")).to_contain_text(str(BIG))
    expect(page.locator("pre")).to_contain_text("äöü €")
    assert "script-src" not in answer.value.headers["content-security-policy"]
    assert page.locator("script").count() == 0
    look_at(page, "body")
    reader.opens("/audit?action=body")
    expect(page.locator("tbody tr").first).to_contain_text("adam")


HOSTILE_PAGES: Final = (
    "/",
    "/overview",
    "/records?operation=import",
    "/batches",
    "/events",
    "/events/letters?consumer=billing",
    f"/events/letters?consumer={HOSTILE}",
    f"/records?subject={HOSTILE}&operation={HOSTILE}&tag={HOSTILE}&scope={HOSTILE}",
    f"/find?q={HOSTILE}",
    f"/process?instance={HOSTILE}",
    f"/batch?scope=globex&batch={HOSTILE}",
    f"/audit?actor={HOSTILE}&target={HOSTILE}",
    f"/act?do={HOSTILE}",
)


def test_what_is_hostile_is_shown_as_text_and_runs_nowhere(reader: Reader) -> None:
    page = reader.page
    for place in HOSTILE_PAGES:
        page.goto(reader.site.url() + place.lstrip("/").replace("#", "%23"))
        assert page.evaluate("window.hacked") is None, place
        assert page.locator("main img, main script, main iframe").count() == 0, place
    page.goto(reader.site.url("/records?operation=import&order=oldest"))
    references = page.locator("tbody a").evaluate_all("links => links.map(link => link.href)")
    for reference in references:
        for place in (reference, f"{reference}/body"):
            page.goto(place)
            assert page.evaluate("window.hacked") is None
            assert page.locator("main img, main script").count() == 0
    expect(page.locator("h1")).to_be_visible()


def test_a_text_that_would_turn_the_line_round_is_written_out(reader: Reader) -> None:
    page = reader.opens("/records?operation=import&status=in_doubt")
    expect(page.locator("tbody td.mono").first).to_have_text("order-\\u202egnp.exe\\u2066")


def test_a_page_is_no_older_than_two_seconds(reader: Reader) -> None:
    reader.page.clock.install()
    page = reader.opens("/records?operation=probe&requester=")
    expect(page.locator("#pulse")).to_have_text("Live")
    reader.site.completed("within two seconds")
    with page.expect_response(lambda answer: "/records" in answer.url):
        page.clock.run_for(2000 - ANSWERED_WITHIN)
    expect(page.locator("tbody")).to_contain_text("within two seconds")


def test_an_overview_that_was_empty_is_drawn_once_something_runs(browser: Browser, tmp_path: Path) -> None:
    with Semel(tmp_path / "shop.db") as semel, served(make_app(semel)) as address:
        page = browser.new_page()
        page.goto(f"{address}/viewer/overview")
        expect(page.locator("main")).to_contain_text("No records yet.")
        semel.run("first", lambda: 1, operation="charge", fingerprint=None)
        expect(page.locator("svg.chart").first).to_be_visible()
        page.close()


def test_a_consumer_is_not_said_to_have_no_letters_once_it_has_one(browser: Browser, tmp_path: Path) -> None:
    with Semel(tmp_path / "shop.db") as semel:
        consumer = Consumer(semel, "billing", max_attempts=1, unknown="dead_letter")
        with served(make_app(semel, [consumer])) as address:
            page = browser.new_page()
            page.goto(f"{address}/viewer/events")
            expect(page.locator("main")).to_contain_text("Consumers without letters")
            consumer.handle(Event(type="order.placed", source="/shop", id="e-1", data={}))
            expect(page.get_by_role("group", name="Dead letters by consumer")).to_contain_text("billing")
            expect(page.locator("main")).not_to_contain_text("Consumers without letters")
            page.close()


def test_rows_that_come_to_an_empty_page_can_be_chosen_and_decided_about(reader: Reader) -> None:
    page = reader.opens("/records?scope=late", "operator")
    expect(page.locator("main")).to_contain_text("No record matches.")
    reader.site.in_doubt("late", "late")
    page.locator('input[name="target"]').check()
    page.get_by_label("What to do").select_option("cancel")
    page.get_by_role("button", name="See what would happen").click()
    expect(page.locator("main")).to_contain_text("1 of 1 would be done")


@contextmanager
def doctor_of(url: str, browser: Browser) -> Iterator[Page]:
    """The page of the doctor of a server that lets everybody in."""
    settings = ServerSettings(authentication=False)
    app = make_server_app(AsyncSemel(url), settings, due=lambda now: now + timedelta(hours=1))
    with served(app) as address:
        page = browser.new_page()
        page.goto(f"{address}/doctor")
        yield page
        page.close()


def test_a_promise_that_does_not_hold_is_red(browser: Browser, filled: Path, tmp_path: Path) -> None:
    shutil.copy(filled, tmp_path / "shop.db")
    with doctor_of(f"sqlite:///{tmp_path}/shop.db?synchronous=NORMAL", browser) as page:
        expect(page.get_by_role("status").filter(has_text="before every promise holds here")).to_be_visible()
        row = page.locator("[data-live=promises] tr").filter(has_text="outcome per key")
        expect(row.locator(".badge.bad")).to_have_text("does not hold")
        expect(row).to_contain_text("see: synchronous")
        for is_dark in (False, True):
            page.emulate_media(color_scheme="dark" if is_dark else "light")
            page.screenshot(path=ARTIFACTS / f"doctor-red-{'dark' if is_dark else 'light'}.png", full_page=True)


def test_what_breaks_no_promise_is_red_by_itself(browser: Browser, filled: Path, tmp_path: Path) -> None:
    shutil.copy(filled, tmp_path / "shop.db")
    with doctor_of(f"sqlite:///{tmp_path}/shop.db", browser) as page:
        told = page.get_by_role("status").filter(has_text="to be fixed")
        expect(told).to_have_text("1 thing has to be fixed; every promise holds here.")
        row = page.locator("[data-live=findings] tr").filter(has_text="everybody who reaches it is an admin")
        expect(row.locator(".badge.bad")).to_have_text("fix")
        expect(page.locator("[data-live=promises] .badge.bad")).to_have_count(0)


def test_the_finished_steps_of_a_record_are_in_its_time_line(reader: Reader) -> None:
    semel = reader.site.semel

    def ship() -> None:
        semel.current().step("label", lambda: 1)
        raise Lost("connection reset")

    with suppress(Lost, errors.SemelError):
        semel.run("steps", ship, operation="probe", scope="acme", fingerprint=None, policy=Policy(in_doubt="hold"))
    page = reader.opens(f"/records/{reader.site.read('steps').reference}")
    entry = page.locator(".timeline > li", has_text="Attempt 1 ended without a known outcome")
    expect(entry).to_contain_text("Finished steps: label")
    page.get_by_role("link", name="Cancel it").click()
    page.get_by_label("Reason").fill("gone")
    page.get_by_role("button", name="Cancel it").click()
    expect(page.locator(".timeline")).to_contain_text("Resolved: cancelled")
    expect(entry).to_contain_text("Finished steps: label")


def test_a_page_stays_current_and_pauses_while_nobody_looks(reader: Reader) -> None:
    page = reader.opens("/records?operation=probe&requester=")
    expect(page.locator("#pulse")).to_have_text("Live")
    reader.site.completed("comes later")
    expect(page.locator("tbody")).to_contain_text("comes later", timeout=PATIENCE)
    page.evaluate("window.dispatchEvent(new Event('blur'))")
    expect(page.locator("#pulse")).to_have_text("Paused")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("new Promise(done => setTimeout(done, 2300))")  # longer than between two looks
    assert asked == []
    reader.site.completed("comes last")
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    expect(page.locator("tbody")).to_contain_text("comes last")


def test_what_was_chosen_and_the_place_of_the_keyboard_outlast_a_refresh(reader: Reader) -> None:
    page = reader.opens("/records?operation=charge&status=in_doubt")
    page.locator('input[name="target"]').first.check()
    chosen = page.locator('input[name="target"]').first.input_value()
    link = page.locator("tbody a").first
    link.focus()
    href = link.get_attribute("href")
    reader.site.semel.run("fresh", lambda: 1, operation="charge", scope="acme", fingerprint=None)
    with page.expect_response(lambda answer: "/records" in answer.url):
        pass
    page.wait_for_function("document.activeElement.tagName === 'A'")
    assert page.evaluate("document.activeElement.getAttribute('href')") == href
    expect(page.locator(f'input[value="{chosen}"]')).to_be_checked()


def test_pages_are_read_and_decisions_made_without_javascript(site: Site, browser: Browser) -> None:
    record = site.in_doubt("without script")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for place, _ in PAGES.values():
        answer = page.goto(site.url(place))
        assert answer is not None
        assert page.locator("h1").inner_text()
    page.goto(site.url(f"/records/{record.reference}"))
    page.get_by_role("link", name="Cancel it").click()
    page.get_by_label("Reason").fill("the guest left")
    page.get_by_role("button", name="Cancel it").click()
    expect(page.get_by_role("status").filter(has_text="done")).to_be_visible()
    context.close()
    assert site.read("without script").status == "cancelled"


def test_the_keyboard_is_enough(reader: Reader) -> None:
    record = reader.site.in_doubt("by keyboard")
    page = reader.opens("/records")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()
    expect(page.locator("#find")).to_have_attribute("placeholder", re.compile("^Reference, business key"))  # and no key
    page.keyboard.type(record.reference[:16])
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/records/{record.reference}")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "It did not happen":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("the bank has nothing")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="done")).to_be_visible()
    assert reader.site.read("by keyboard").retryable
