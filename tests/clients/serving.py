"""A service for the browser client in a real browser, and how a page sends to it.

What always holds: it runs a key once. A lost reply is lost after the work was done.
"""

import http.server
import json
import threading
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import BrowserContext, Page

TABS: Final = 4
LONGEST: Final = 30.0
SOURCES: Final = Path(__file__).parents[2] / "clients" / "js" / "src"
STRICT: Final = b'<!doctype html><title>client</title><script type="module" src="/page.js"></script>'
PAGE: Final = b"""<!doctype html><title>client</title><script type="module">
import * as client from "/src/once.js";
Object.assign(window, client);
</script>"""
PAGES: Final = {
    "/": (PAGE, "text/html"),
    "/strict": (STRICT, "text/html"),
    "/page.js": (b'import * as client from "/src/once.js"; Object.assign(window, client);', "text/javascript"),
}
ALARM: Final = "() => ({ signal: new AbortController().signal, cancel() {} })"
"""An alarm that never rings: however slow the machine is, turns are waited for, and answers come or are cut off."""
SEND: Final = f"""async ([storage, intent]) => {{
  const send = window.send ??= once(fetch, {{ storage, tries: 2, giveUpAfter: 60_000, alarm: {ALARM} }});
  const answer = await send("/effects", {{ method: "POST", body: "{{}}" }}, {{ intent }});
  return answer.json();
}}"""


class Service(http.server.ThreadingHTTPServer):
    """Serves the client, and does one thing per key; a reply is lost where it is told so."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.keys: list[str] = []
        self.paths: list[str] = []
        self.lose = 0
        self.policy = ""
        self.gate = threading.Barrier(TABS)
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"

    def effects(self) -> int:
        """How many keys ran."""
        return len(set(self.keys))


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection to the service."""

    server: Service

    def do_GET(self) -> None:
        """The page, and the client."""
        name = self.path.removeprefix("/src/")
        if self.path == "/gate":
            self.server.gate.wait(LONGEST)
            self._answer(200, b"", "text/plain")
        elif name != self.path and (SOURCES / name).is_file():
            self._answer(200, (SOURCES / name).read_bytes(), "text/javascript")
        elif self.path in PAGES:
            self._answer(200, *PAGES[self.path])
        else:
            self._answer(404, b"", "text/plain")

    def do_POST(self) -> None:
        """One effect for each key."""
        self.rfile.read(int(self.headers["Content-Length"]))
        service = self.server
        with service.lock:
            service.keys.append(self.headers["Idempotency-Key"])
            service.paths.append(self.path)
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
        if self.server.policy:
            self.send_header("Content-Security-Policy", self.server.policy)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Say nothing."""


def opened(context: BrowserContext, url: str) -> Page:
    """A tab in which the client is there."""
    page = context.new_page()
    page.goto(url)
    page.wait_for_function("'once' in window")
    return page


def begin_together(context: BrowserContext, url: str, storage: str) -> None:
    """Four tabs send for the same intent in the same moment: the service lets them go when all are there."""
    pages = [opened(context, url) for _ in range(TABS)]
    for page in pages:
        going = f"""(given) => {{
          window.done = fetch("/gate", {{ cache: "no-store" }}).then(() => ({SEND})(given)).catch(() => null);
        }}"""
        page.evaluate(going, [storage, "pay"])
    for page in pages:
        page.evaluate("window.done")
