"""Tabs of a real browser that begin in the same moment. Their storage is kept apart: the arbiter alone decides."""

from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.clients.serving import ALARM, TABS, Service, opened

ROUNDS: Final = 3
APART: Final = f"""() => {{
  const items = new Map();
  const storage = {{
    getItem: (name) => items.get(name) ?? null,
    setItem: (name, value) => items.set(name, value),
    removeItem: (name) => items.delete(name),
    key: (index) => [...items.keys()][index] ?? null,
    get length() {{ return items.size; }},
  }};
  window.send = once(fetch, {{ storage, indexedDB, tries: 1, alarm: {ALARM} }});
}}"""
PAY: Final = """async () => {
  try { return (await send("/effects", { method: "POST", body: "{}" }, { intent: "pay" })).status; }
  catch (error) { return error.name; }
}"""
NOTES: Final = """() => new Promise((resolve) => {
  const asked = indexedDB.open("semel.once");
  asked.onsuccess = () => {
    const found = asked.result.transaction("notes").objectStore("notes").getAll();
    found.onsuccess = () => { asked.result.close(); resolve(found.result.map(({ note }) => note)); };
  };
})"""

pytestmark = pytest.mark.slow


def _tab(context: BrowserContext, service: Service) -> Page:
    page = opened(context, service.url)
    page.evaluate(APART)
    return page


def test_tabs_that_see_nothing_of_each_others_storage_take_one_key(browser: Browser, service: Service) -> None:
    for number in range(1, ROUNDS + 1):
        context = browser.new_context()
        pages = [_tab(context, service) for _ in range(TABS)]
        service.lose = 99
        for page in pages:
            page.evaluate(f"() => {{ window.done = fetch('/gate', {{ cache: 'no-store' }}).then({PAY}); }}")
        assert [page.evaluate("window.done") for page in pages] == ["Unfinished"] * TABS
        context.close()
        assert service.effects() == number


def test_a_key_that_another_tab_let_go_is_not_taken(context: BrowserContext, service: Service) -> None:
    first, second = (_tab(context, service) for _ in range(2))
    service.lose = 2
    assert [page.evaluate(PAY) for page in (first, second)] == ["Unfinished"] * 2
    assert [page.evaluate(PAY) for page in (first, second)] == [201, 201]
    assert service.keys[0] == service.keys[1] == service.keys[2] != service.keys[3]


def test_what_is_noted_holds_for_a_minute(context: BrowserContext, service: Service) -> None:
    service.lose = 1
    _tab(context, service).evaluate(PAY)
    later = _tab(context, service)
    later.evaluate("send = once(fetch, { storage: sessionStorage, indexedDB, now: () => Date.now() + 61_000 })")
    assert later.evaluate(PAY) == 201
    assert service.effects() == 2


def test_notes_of_more_than_a_minute_ago_are_thrown_away(context: BrowserContext, service: Service) -> None:
    _tab(context, service).evaluate(PAY)
    later = _tab(context, service)
    later.evaluate("""async () => {
      const send = once(fetch, { storage: sessionStorage, indexedDB, now: () => Date.now() + 61_000 });
      await send("/effects", { method: "POST", body: "{}" }, { intent: "other" });
    }""")
    assert len(later.evaluate(NOTES)) == 1


def test_nothing_but_the_key_that_was_let_go_stays_noted(context: BrowserContext, service: Service) -> None:
    page = _tab(context, service)
    page.evaluate(PAY)
    assert page.evaluate(NOTES) == [{"gone": service.keys[0].strip('"')}]


def test_an_error_of_the_page_while_it_has_its_turn_is_told(context: BrowserContext, service: Service) -> None:
    page = _tab(context, service)
    page.evaluate("""() => {
      const newKey = () => { throw new RangeError("no more keys"); };
      send = once(fetch, { storage: sessionStorage, indexedDB, newKey });
    }""")
    assert page.evaluate(PAY) == "RangeError"
    assert service.keys == []


def test_a_database_that_is_thrown_away_is_opened_again(context: BrowserContext, service: Service) -> None:
    page = _tab(context, service)
    page.evaluate(PAY)
    page.evaluate(
        "() => new Promise((done) => { indexedDB.deleteDatabase('semel.once').onsuccess = done; }).then(() => 1)"
    )
    assert [page.evaluate(PAY), page.evaluate(PAY)] == [201, 201]
    assert len(page.evaluate(NOTES)) == 1
