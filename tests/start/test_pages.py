"""The start page without its services: what a press does, and what is shown of it."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from examples.launching import postgresql
from examples.launching.children import Child, DidNotStart
from examples.launching.folders import locked_folder
from examples.launching.postgresql import ServerMissing, find_programs
from examples.start import stores
from examples.start.console import make_app
from examples.start.folders import own_folder
from examples.start.operations import LATEST_PATH, Operation, Operations, ServiceSummary
from examples.start.pages import Pages
from examples.start.runs import Button, Outcome, Runs, Service, Tell
from examples.start.stores import PostgresqlStores, SqliteStores, check_clients
from examples.start.troubles import hospital, sending
from examples.start.troubles.hospital import HospitalTroubles
from examples.start.troubles.payments import Shop
from examples.start.troubles.sending import describe_answers
from semel import AsyncSemel
from tests.processes import child

pytestmark = pytest.mark.anyio


class Desk:
    """A service with one button, which waits until it is let go on."""

    def __init__(self, outcome: Outcome | Exception, console: dict[str, str] | None = None) -> None:
        self.summaries: dict[str, ServiceSummary] = {}
        self._outcome = outcome
        self.go_on = asyncio.Event()
        button = Button("fifty", "Send it fifty times", "It does.", self._press)
        self.service = Service("hotel", "The hotel", "A hotel.", "http://hotel", [button])
        self.runs = Runs([self.service])
        app = Pages(self.runs, "SQLite", console or {}, self._look).make_app()
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://start")

    async def _look(self) -> dict[str, ServiceSummary]:
        return self.summaries

    async def _press(self, tell: Tell) -> Outcome:
        tell("It is <on> its way.")
        await self.go_on.wait()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    async def press(self, **headers: str) -> httpx.Response:
        """Press the button."""
        return await self.client.post("/press/hotel/fifty", headers=headers)

    async def finish(self) -> str:
        """Let what was pressed come to its end; the page after that."""
        self.go_on.set()
        while self.service.running:  # noqa: ASYNC110 - the page has no event for it, and the next turn ends it
            await asyncio.sleep(0)
        return (await self.client.get("/")).text


async def test_a_press_shows_how_far_it_is_and_then_what_happened() -> None:
    desk = Desk(Outcome("50 asked, 1 made.", 50, 1, 1))
    assert (await desk.press()).headers["location"] == "/#hotel"
    await asyncio.sleep(0)
    during = (await desk.client.get("/")).text
    assert "It is &lt;on&gt; its way." in during
    assert 'aria-disabled="true"' in during
    after = await desk.finish()
    assert "50 asked, 1 made." in after
    assert "This must not happen" not in after
    assert "aria-disabled" not in after


async def test_a_line_whose_figures_are_wrong_says_so() -> None:
    desk = Desk(Outcome("50 asked, 2 made.", 50, 1, 2))
    await desk.press()
    page = await desk.finish()
    assert "This must not happen" in page
    assert 'class="bad"' in page


async def test_what_did_not_come_to_its_end_is_no_success() -> None:
    desk = Desk(RuntimeError("sold out"))
    await desk.press()
    page = await desk.finish()
    assert "It did not come to its end (RuntimeError): sold out." in page
    assert "This must not happen" in page


async def test_a_second_press_while_one_runs_does_nothing() -> None:
    desk = Desk(Outcome("done", 1, 1, 1))
    await desk.press()
    await desk.press()
    await desk.finish()
    assert desk.runs.totals.asked == 1


@pytest.mark.parametrize("headers", [{"origin": "http://elsewhere"}, {"sec-fetch-site": "cross-site"}])
async def test_a_page_of_another_site_presses_nothing(headers: dict[str, str]) -> None:
    desk = Desk(Outcome("done", 1, 1, 1))
    assert (await desk.press(**headers)).status_code == 403
    assert desk.service.running is None


@pytest.mark.parametrize("path", ["/press/hotel/none", "/press/none/fifty"])
async def test_a_button_that_is_not_there_is_not_found(path: str) -> None:
    assert (await Desk(Outcome("done")).client.post(path)).status_code == 404


async def test_without_a_console_nothing_leads_to_one() -> None:
    desk, other = Desk(Outcome("done")), Desk(Outcome("done"), {"hotel": "http://console/hotel/"})
    assert "onsole" not in (await desk.client.get("/")).text
    assert 'href="http://console/hotel/"' in (await other.client.get("/")).text


async def test_what_runs_ends_with_the_page() -> None:
    desk = Desk(Outcome("done", 1, 1, 1))
    await desk.press()
    await asyncio.sleep(0)
    await desk.runs.close()
    assert desk.service.running is None
    assert not desk.service.said


async def test_a_stopped_file_takes_no_writes_until_the_block_is_left(tmp_path: Path) -> None:
    import sqlite3

    files = SqliteStores(tmp_path)
    other = sqlite3.connect(files.url("hotel").removeprefix("sqlite:///"), timeout=0, isolation_level=None)
    async with files.stop("hotel"):
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
    other.execute("BEGIN IMMEDIATE")
    other.close()


def test_a_folder_that_a_killed_run_left_is_removed_and_one_in_use_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    left = tmp_path / ".start" / "run-left"
    left.mkdir(parents=True)
    (left / "hotel.db").write_text("")
    with own_folder() as first, own_folder() as second:
        assert not left.exists()
        assert first.exists()
        assert second.exists()
    assert list((tmp_path / ".start").glob("run-*")) == []


def test_a_server_that_was_left_by_a_kill_is_ended_and_its_folder_removed(tmp_path: Path) -> None:
    data = tmp_path / "server-left" / "data"
    data.mkdir(parents=True)
    with child([sys.executable, "-c", "print(flush=True); input()", str(data)], stdin=PIPE, stdout=PIPE) as left:
        assert left.stdout is not None
        left.stdout.readline()  # while a program is put into a process, nobody sees its command line
        (data / "postmaster.pid").write_text(f"{left.pid}\n{data}\n")
        with locked_folder(tmp_path, "server-", end=postgresql.end_left) as own:
            assert left.wait() == -signal.SIGKILL
            assert not data.parent.exists()
            assert own.exists()


def test_a_process_that_only_has_the_number_of_a_server_is_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "server-left" / "data"
    data.mkdir(parents=True)
    with child([sys.executable, "-c", "print(flush=True); input()"], stdin=PIPE, stdout=PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        (data / "postmaster.pid").write_text(f"{other.pid}\n{data}\n")
        with locked_folder(tmp_path, "server-", end=postgresql.end_left):
            assert other.poll() is None


async def test_a_server_that_two_have_stopped_comes_back_when_both_let_it() -> None:
    sent: list[signal.Signals] = []
    server = PostgresqlStores(cast("Child", SimpleNamespace(send=sent.append)), "postgresql://127.0.0.1:1/{}")
    async with server.stop("hotel"):
        async with server.stop("payments"):
            pass
        assert sent == [signal.SIGUSR1]
    assert sent == [signal.SIGUSR1, signal.SIGUSR2]


async def test_a_bulk_is_followed_although_its_service_has_no_store_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "_PAUSE", 0)
    answers = iter([httpx.Response(503), httpx.Response(500), httpx.Response(200, json={"state": "completed"})])
    transport = httpx.MockTransport(lambda _: next(answers))
    async with httpx.AsyncClient(transport=transport, base_url="http://payments") as client:
        assert await Shop(client).follow("/bulk/7") == {"state": "completed"}


async def test_a_process_is_started_although_its_service_has_no_store_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "_PAUSE", 0)
    answers = iter([httpx.Response(500), httpx.Response(303, headers={"location": "/instances/7"})])
    transport = httpx.MockTransport(lambda _: next(answers))
    monkeypatch.setattr(
        hospital, "make_client", lambda _: httpx.AsyncClient(transport=transport, base_url="http://hospital")
    )
    settings = SimpleNamespace(insurer="http://insurer", database="sqlite://")
    troubles = HospitalTroubles("http://hospital", cast("Any", SimpleNamespace(settings=settings)), cast("Any", None))
    try:
        assert await troubles._begin() == "7"
    finally:
        troubles.close()


async def test_the_console_answers_to_its_own_name_alone() -> None:
    transport = httpx.ASGITransport(make_app({}, {}))
    async with httpx.AsyncClient(transport=transport, base_url="http://rebound.example") as client:
        assert (await client.get(LATEST_PATH)).status_code == 400
        assert (await client.get(LATEST_PATH, headers={"host": "127.0.0.1:8001"})).status_code == 200


async def test_a_long_key_shows_that_it_goes_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'hotel.db'}"
    async with AsyncSemel(url) as semel:
        for key in ("k" * 40, "l" * 41):
            await semel.run(key, _do_nothing, operation="charge", fingerprint=None)
    app = make_app({"hotel": url}, {})
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")
    async with app.router.lifespan_context(app), client:
        told = (await client.get(LATEST_PATH)).json()
    assert [one["key"] for one in told["hotel"]["latest"]] == ["l" * 40 + "…", "k" * 40]


async def _do_nothing() -> None:
    """Stands for a charge."""


def test_a_machine_without_postgresql_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql, "PLACES", (tmp_path,))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerMissing, match="scripts/setup-system postgresql"):
        find_programs()


def test_a_missing_client_of_postgresql_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "NEEDED", ("a_client_that_nobody_has",))
    with pytest.raises(DidNotStart, match="a_client_that_nobody_has is missing"):
        check_clients()


@pytest.mark.parametrize(
    ("statuses", "text"),
    [
        ([200], "200"),
        ([None, 200], "no answer, then 200"),
        ([None, 503, 503, 200], "no answer, 503 twice, then 200"),
        ([503] * 8 + [201], "503 8 times, then 201"),
    ],
)
def test_answers_are_told_in_their_order(statuses: list[int | None], text: str) -> None:
    assert describe_answers([None if status is None else httpx.Response(status) for status in statuses]) == text


SEEN = Operation("in doubt", "?", "hotel.charge", "<b>R001</b>", 49, "http://console/hotel/records/ab")


async def test_the_page_shows_what_the_console_shows_of_each_service() -> None:
    desk = Desk(Outcome("done"), {"hotel": "http://console/hotel/"})
    assert "What needs a person" in (await desk.client.get("/")).text  # nobody has looked yet, so nothing is claimed
    desk.summaries = {"hotel": ServiceSummary((SEEN,), 1)}
    page = (await desk.client.get("/")).text
    assert 'href="http://console/hotel/records/ab"' in page
    assert "&lt;b&gt;R001&lt;/b&gt;" in page
    assert "49 duplicates answered" in page
    assert "1 needs a person" in page
    desk.summaries = {"hotel": ServiceSummary()}
    assert "Nothing needs a person" in (await desk.client.get("/")).text


async def test_a_console_that_does_not_answer_leaves_what_was_seen_last(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"status": "completed", "operation": "charge", "key": "k", "replays": 2, "reference": "cd"}
    answers = [httpx.Response(200, json={"hotel": {"needs": 3, "latest": [told]}}), httpx.Response(503)]
    passed = iter((0.0, 0.0, 0.1, 9.0, 9.0))
    operations = Operations("http://console", lambda: next(passed))

    def answer(request: httpx.Request) -> httpx.Response:
        return answers.pop(0)

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://console")
    monkeypatch.setattr(operations, "_client", client)
    wanted = ServiceSummary((Operation("completed", "✔", "charge", "k", 2, "http://console/hotel/records/cd"),), 3)
    for _ in range(3):
        assert await operations.look() == {"hotel": wanted}
    assert answers == []  # asked twice: in between what was seen is new enough
    await operations.close()
