"""The start page in a real browser: every button, Ctrl-C, and a start after it."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from playwright.sync_api import Browser, Page, expect

from examples.launching.postgresql import ServerMissing, find_programs
from examples.start.everything import NAMES
from tests.effort import FULL
from tests.servers import server
from tests.servers.plugin import verdict
from tests.start.conftest import ARTIFACTS, PATIENCE, ROOT, Launched, is_gone, launched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FIFTY = {
    "hotel": "50 payments of R001 with one key: 1 ran, 49 were answered from the record.",
    "payments": "50 payments with one key: 1 ran, 49 were answered from the record.",
    "assets": "50 deliveries of one event: 1 processed, 49 recognised as duplicates.",
    "hospital": "50 processes of one claim asked for 150 tasks: 3 ran, 147 were answered from the record.",
}
ONE = {
    "hotel": "1 charge in the gateway’s ledger.",
    "payments": "charge",
    "assets": "kWh",
    "hospital": "1 payment in the books.",
}


@pytest.fixture
def port() -> str:
    """A port from which on the next ones are free, too."""
    return str(server.free_port())


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE * 1000)
    page, errors = context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def press_all(page: Page, wanted: set[str] | None = None) -> dict[str, str]:
    """Press every button, those of different services side by side; gives the line that each left."""
    buttons = {
        name: [str(one.get_attribute("id")) for one in page.locator(f"#{name} .troubles button").all()]
        for name in NAMES
    }
    lines: dict[str, str] = {}
    for turn in range(max(map(len, buttons.values()))):
        pressed = [each[turn] for each in buttons.values() if turn < len(each)]
        pressed = [name for name in pressed if wanted is None or name.partition("-")[2] in wanted]
        for name in pressed:
            page.locator(f"#{name}").click()
        lines |= {name: _wait_for_line(page, name) for name in pressed}
    return lines


def _wait_for_line(page: Page, name: str) -> str:
    service, _, button = name.partition("-")
    line = page.locator(f'#{service} .line[data-button="{button}"]:not(.old)')
    expect(line).to_be_visible(timeout=PATIENCE * 1000)
    expect(line).to_have_class(re.compile("good"))
    return " ".join(line.inner_text().split())


def _end(run: Launched, number: signal.Signals) -> None:
    """End the launcher by a signal, and see that all it started has ended."""
    processes = run.processes()
    assert len(processes) > len(NAMES)
    run.process.send_signal(number)
    run.process.wait(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while left := {pid: what for pid, what in processes.items() if not is_gone(pid)}:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def _take_pictures(browser: Browser, address: str) -> None:
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    for name, options in {
        "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
        "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
        "page": {"viewport": {"width": 1120, "height": 1010}, "color_scheme": "light"},
        "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    }.items():
        context = browser.new_context(**options)  # type: ignore[arg-type]  # a table of options has no one type
        page = context.new_page()
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert Axe().run(page).violations_count == 0
        page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=name != "page")
        context.close()
    if os.environ.get("SEMEL_PICTURES"):  # draws the one in README and tutorial anew
        (ROOT / "docs" / "images" / "start-page.png").write_bytes((ARTIFACTS / "page.png").read_bytes())


def _follow_operations(page: Page) -> None:
    """See that the page shows what the consoles show, and that it leads there."""
    for name in NAMES:
        expect(page.locator(f"#{name} .latest li").first).to_be_visible()
    expect(page.locator("#hotel .latest")).to_contain_text("hotel.charge")
    shown = page.locator("#hotel .latest li a").first
    with page.context.expect_page() as opened:
        shown.click(modifiers=["ControlOrMeta"])
    expect(opened.value.locator(".timeline")).to_be_visible()
    opened.value.close()
    page.goto(str(page.locator("#hospital .operations").get_attribute("href")) + "?status=completed")
    page.locator("tbody a").first.click()
    back = page.get_by_role("link", name="The process")
    expect(back).to_have_attribute("href", re.compile(r"/instances/\S+$"))
    back.click()
    expect(page.locator("main")).to_contain_text("claim", ignore_case=True)
    page.go_back()
    page.go_back()
    page.go_back()


def test_every_button_says_what_happened_and_ctrl_c_leaves_nothing_for_the_next_start(
    tmp_path: Path, port: str, browser: Browser, page: Page
) -> None:
    with launched(tmp_path, "--port", port) as run:
        page.goto(run.address)
        expect(page.get_by_role("heading", level=1)).to_contain_text("Click Send it fifty times")
        lines = press_all(page)
        assert len(lines) == 17
        for service in NAMES:
            assert FIFTY[service] in lines[f"{service}-fifty"]
            assert all(ONE[service] in line for name, line in lines.items() if name.startswith(f"{service}-"))
        made, wanted = (page.locator("#totals dd").nth(place).inner_text() for place in (2, 1))
        assert made == wanted != "0 effects"
        _follow_operations(page)
        for link in page.locator(".links a, .latest a").all():
            assert httpx.get(str(link.get_attribute("href")), timeout=PATIENCE).status_code == 200
        page.goto(str(page.locator("#hotel .operations").get_attribute("href")))
        expect(page.locator("main")).to_contain_text("hotel.charge")
        _take_pictures(browser, run.address)
        _end(run, signal.SIGINT)
        assert run.process.returncode == 0
    assert sorted(path.name for path in (tmp_path / ".start").iterdir()) == [".gitignore", ".run-lock"]
    with socket.create_server(("127.0.0.1", int(port))):
        pass
    with launched(tmp_path, "--port", port) as again:
        assert again.address.endswith(f":{port}")
        page.goto(again.address)
        expect(page.locator("#totals dd").first).to_have_text("0 times")
        _end(again, signal.SIGKILL)


def test_on_postgresql_the_server_is_stopped_and_nothing_is_left_of_it(tmp_path: Path, port: str, page: Page) -> None:
    try:
        find_programs()
    except ServerMissing as missing:
        raise verdict(f"NOT TESTED: the start page on PostgreSQL, because {missing}") from None
    with launched(tmp_path, "--port", port, "--on", "postgresql") as run:
        page.goto(run.address)
        expect(page.get_by_role("contentinfo")).to_contain_text("PostgreSQL")
        lines = press_all(page, None if FULL else {"stop"})
        assert all("The PostgreSQL server was stopped as by a crash" in lines[f"{name}-stop"] for name in NAMES)
        (data,) = re.findall(r"postgres -D (\S+)", " ".join(run.processes().values()))
        assert Path(data).exists()
        _end(run, signal.SIGINT)
    assert not Path(data).parent.exists()
