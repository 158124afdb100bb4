"""The browser client in a real browser: its storage, its tabs and its refresh are the browser's own."""

from typing import Final

import pytest
from playwright.sync_api import BrowserContext

from tests.clients.serving import SEND, Service, begin_together, opened

FULL: Final = """() => {
  Storage.prototype.setItem = () => { throw new DOMException("full", "QuotaExceededError"); };
}"""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("storage", ["tab", "shared"])
def test_a_key_outlives_a_refresh(context: BrowserContext, service: Service, storage: str) -> None:
    page = opened(context, service.url)
    service.lose = 99
    failure = page.evaluate(f"(given) => ({SEND})(given).catch((error) => error.name)", [storage, "pay"])
    service.lose = 0
    page.reload()
    page.wait_for_function("'once' in window")
    assert (failure, page.evaluate(SEND, [storage, "pay"])) == ("Unfinished", {"effects": 1})


def test_a_key_of_a_tab_is_not_that_of_another_tab(context: BrowserContext, service: Service) -> None:
    for page in (opened(context, service.url), opened(context, service.url)):
        service.lose = 99
        page.evaluate(f"(given) => ({SEND})(given).catch(() => null)", ["tab", "pay"])
    assert service.effects() == 2


def test_a_shared_key_is_that_of_every_tab(context: BrowserContext, service: Service) -> None:
    for page in (opened(context, service.url), opened(context, service.url)):
        service.lose = 99
        page.evaluate(f"(given) => ({SEND})(given).catch(() => null)", ["shared", "pay"])
    assert service.effects() == 1


def test_tabs_that_begin_at_the_same_moment_agree_on_a_key(context: BrowserContext, service: Service) -> None:
    service.lose = 99
    begin_together(context, service.url, "shared")
    assert service.effects() == 1


def test_fifty_calls_at_once_are_one_request(context: BrowserContext, service: Service) -> None:
    page = opened(context, service.url)
    every = f"(given) => Promise.all(Array.from({{ length: 50 }}, () => ({SEND})(given)))"
    assert page.evaluate(every, ["tab", "pay"]) == [{"effects": 1}] * 50
    assert len(service.keys) == 1


def test_behind_an_outcome_the_next_call_has_a_new_key(context: BrowserContext, service: Service) -> None:
    page = opened(context, service.url)
    for number in (1, 2):
        assert page.evaluate(SEND, ["shared", "pay"]) == {"effects": number}
    assert page.evaluate("send.pending()") == []


def test_without_storage_it_still_sends_one_key_for_all_tries(context: BrowserContext, service: Service) -> None:
    page = opened(context, service.url)
    page.evaluate(FULL)
    service.lose = 1
    assert page.evaluate(SEND, ["shared", "pay"]) == {"effects": 1}
    assert len(service.keys) == 2


def test_a_page_that_goes_elsewhere_while_waiting_retries_the_first_address(
    context: BrowserContext, service: Service
) -> None:
    page = opened(context, service.url)
    service.lose = 1
    page.evaluate("""async () => {
      const observe = ({ type }) => type === "waiting" && history.pushState({}, "", "/far/away/");
      await once(fetch, { observe })("effects", { method: "POST", body: "{}" });
    }""")
    assert service.paths == ["/effects", "/effects"]


def test_a_response_says_what_the_browsers_own_would_say(context: BrowserContext, service: Service) -> None:
    page = opened(context, service.url)
    told = """async (send) => {
      const answer = await send("/effects", { method: "POST", body: "{}" });
      const { status, statusText, ok, url, redirected, type } = answer;
      const names = [...answer.headers.keys()].sort();
      const clone = answer.clone();
      return { status, statusText, ok, url, redirected, type, names, bodies: [await answer.json(), await clone.json()],
        used: answer.bodyUsed, clone: [clone.url, clone.type], kind: answer instanceof Response };
    }"""
    assert page.evaluate(f"async () => ({told})(once((...given) => fetch(...given)))") == {
        **page.evaluate(f"async () => ({told})(fetch)"),
        "bodies": [{"effects": 1}, {"effects": 1}],
    }


def test_a_key_that_the_page_gives_is_one_effect_even_behind_an_outcome(
    context: BrowserContext, service: Service
) -> None:
    given = """async (key) => {
      const headers = { "Idempotency-Key": key };
      const send = window.send ??= once(fetch, { storage: "shared" });
      return (await send("/effects", { method: "POST", body: "{}", headers }, { intent: `reserve:${key}` })).json();
    }"""
    for page in (opened(context, service.url), opened(context, service.url)):
        assert page.evaluate(given, "visit-17") == {"effects": 1}
    assert service.keys == ["visit-17", "visit-17"]


def test_a_policy_that_allows_no_inline_code_is_enough(context: BrowserContext, service: Service) -> None:
    service.policy = "default-src 'none'; script-src 'self'; connect-src 'self'; require-trusted-types-for 'script'"
    page = opened(context, f"{service.url}/strict")
    assert page.evaluate(SEND, ["shared", "pay"]) == {"effects": 1}
