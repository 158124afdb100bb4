"""The browser client in a real browser: its storage, its tabs and its refresh are the browser's own."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

SOURCES: Final = Path(__file__).parents[2] / "clients" / "js" / "src"
PAGE: Final = b"""<!doctype html><title>client</title><script type="module">
import * as client from "/src/once.js";
Object.assign(window, client);
</script>"""
SEND: Final = """async ([storage, intent]) => {
  const send = window.send ??= once(fetch, { storage, tries: 2, giveUpAfter: 2000 });
  const answer = await send("/effects", { method: "POST", body: "{}" }, { intent });
  return answer.json();
}"""
FULL: Final = """() => {
  Storage.prototype.setItem = () => { throw new DOMException("full", "QuotaExceededError"); };
}"""

pytestmark = pytest.mark.slow


class Service(http.server.ThreadingHTTPServer):
    """Serves the client, and does one thing per key; a reply is lost where it is told so."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.keys: list[str] = []
        self.lose = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def effects(self) -> int:
        return len(set(self.keys))


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        name = self.path.removeprefix("/src/")
        if name != self.path and (SOURCES / name).is_file():
            self._answer(200, (SOURCES / name).read_bytes(), "text/javascript")
        elif self.path == "/":
            self._answer(200, PAGE, "text/html")
        else:
            self._answer(404, b"", "text/plain")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        service = self.server
        with service.lock:
            service.keys.append(self.headers["Idempotency-Key"])
            service.lose -= 1
            lost = service.lose >= 0
        if lost:
            self.close_connection = True
            return
        self._answer(201, json.dumps({"effects": service.effects()}).encode(), "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield service
        service.shutdown()
        thread.join()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context()
    yield context
    context.close()


def _opened(context: BrowserContext, service: Service) -> Page:
    page = context.new_page()
    page.goto(service.url)
    page.wait_for_function("'once' in window")
    return page


@pytest.mark.parametrize("storage", ["tab", "shared"])
def test_a_key_outlives_a_refresh(context: BrowserContext, service: Service, storage: str) -> None:
    page = _opened(context, service)
    service.lose = 99
    failure = page.evaluate(f"(given) => ({SEND})(given).catch((error) => error.name)", [storage, "pay"])
    service.lose = 0
    page.reload()
    page.wait_for_function("'once' in window")
    assert (failure, page.evaluate(SEND, [storage, "pay"])) == ("Unfinished", {"effects": 1})


def test_a_key_of_a_tab_is_not_that_of_another_tab(context: BrowserContext, service: Service) -> None:
    for page in (_opened(context, service), _opened(context, service)):
        service.lose = 99
        page.evaluate(f"(given) => ({SEND})(given).catch(() => null)", ["tab", "pay"])
    assert service.effects() == 2


def test_a_shared_key_is_that_of_every_tab(context: BrowserContext, service: Service) -> None:
    for page in (_opened(context, service), _opened(context, service)):
        service.lose = 99
        page.evaluate(f"(given) => ({SEND})(given).catch(() => null)", ["shared", "pay"])
    assert service.effects() == 1


def test_tabs_that_begin_at_the_same_moment_agree_on_a_key(context: BrowserContext, service: Service) -> None:
    pages = [_opened(context, service) for _ in range(4)]
    service.lose = 99
    for page in pages:  # nothing is awaited in between: the four begin together
        page.evaluate(f"(given) => {{ window.done = ({SEND})(given).catch(() => null); }}", ["shared", "pay"])
    for page in pages:
        page.evaluate("window.done")
    assert service.effects() == 1


def test_fifty_calls_at_once_are_one_request(context: BrowserContext, service: Service) -> None:
    page = _opened(context, service)
    every = f"(given) => Promise.all(Array.from({{ length: 50 }}, () => ({SEND})(given)))"
    assert page.evaluate(every, ["tab", "pay"]) == [{"effects": 1}] * 50
    assert len(service.keys) == 1


def test_behind_an_outcome_the_next_call_has_a_new_key(context: BrowserContext, service: Service) -> None:
    page = _opened(context, service)
    for number in (1, 2):
        assert page.evaluate(SEND, ["shared", "pay"]) == {"effects": number}
    assert page.evaluate("send.pending()") == []


def test_without_storage_it_still_sends_one_key_for_all_tries(context: BrowserContext, service: Service) -> None:
    page = _opened(context, service)
    page.evaluate(FULL)
    service.lose = 1
    assert page.evaluate(SEND, ["shared", "pay"]) == {"effects": 1}
    assert len(service.keys) == 2
