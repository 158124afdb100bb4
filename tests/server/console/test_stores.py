"""The console on every kind of store: each page answers, or says in words why not."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from semel import AsyncSemel, Policy, errors
from semel.batch import Batches
from semel.events import Backoff, Consumer, Event
from semel.server import User, console_app
from semel.server.actions import make_actions
from semel.server.bulk import BulkActions, BulkRunner
from semel.server.console.app import make_console
from semel.stores.admin import Finding
from tests.servers.databases import Databases
from tests.servers.ministack import Tables
from tests.servers.records import emptied
from tests.servers.redis import Keys

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
HOST: Final = "console.example"
SAME: Final = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
ADMIN: Final = User("adam", {"admin"})
HOLD: Final = Policy(in_doubt="hold")
FINAL: Final = Policy(final_errors=(ValueError,))
ABOUT: Final[dict[str, Any]] = {"business_key": "order-1", "subject": "guest-3", "process_instance": "proc-7"}
WITHOUT_CHAIN: Final = ("redis", "dynamodb")
PAGES: Final = (
    "/",
    "/overview",
    "/records",
    "/records?order=oldest",
    "/records?status=in_doubt",
    "/records?status=stuck",
    "/records?operation=charge",
    "/records?business_key=order-1",
    "/records?subject=guest-3&scan=1",
    "/records?scope=acme",
    "/find?q=order-1",
    "/process?instance=proc-7",
    "/process?instance=proc-7&scan=1",
    "/batches",
    "/batch?scope=&batch=payroll",
    "/events",
    "/events/letters?consumer=billing",
    "/events/parked",
    "/doctor",
    "/audit",
    "/bulk",
    "/bulk?id=nothing",
)
_BY_READING_ALL: Final = {
    "/records?business_key=order-1": 400,
    "/find?q=order-1": 400,
    "/process?instance=proc-7": 303,
}
_WITHOUT_CHAIN: Final = {"/batch?scope=&batch=payroll": 409, "/audit": 409}
_NOTHING: Final = {"/bulk?id=nothing": 404}
REFUSED: Final[dict[str, dict[str, int]]] = {
    "sqlite": _NOTHING,
    "postgresql": _NOTHING,
    "mariadb": _NOTHING,
    "redis": _NOTHING | _BY_READING_ALL | _WITHOUT_CHAIN | {"/events/parked": 409},
    "dynamodb": _NOTHING | _BY_READING_ALL | _WITHOUT_CHAIN,
    "memory": _NOTHING | {"/doctor": 409},
}
"""What a store cannot show, by its address: it says so in words, and never with an internal error."""


@pytest.fixture(params=REFUSED)
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of store."""
    return str(request.param)


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of it."""
    match kind:
        case "sqlite":
            return f"sqlite:///{tmp_path}/shop.db"
        case "redis":
            keys: Keys = request.getfixturevalue("redis_keys")
            keys.empty()
            return keys.url
        case "dynamodb":
            tables: Tables = request.getfixturevalue("dynamodb")
            return tables.new_table()
        case "memory":
            return "memory://"
        case name:
            databases: Databases = request.getfixturevalue(name)
            return emptied(databases, databases.url)


@pytest.fixture
async def semel(url: str) -> AsyncIterator[AsyncSemel]:
    async with AsyncSemel(url) as semel:
        await _fill(semel)
        yield semel


async def _fill(semel: AsyncSemel) -> None:
    async def fail() -> None:
        raise ValueError("no funds")

    async def lose() -> None:
        raise OSError("read timed out")

    async def pay() -> str:
        return "paid"

    for key, work, policy in (("failed", fail, FINAL), ("doubt", lose, HOLD), ("paid", pay, FINAL)):
        with suppress(ValueError, OSError, errors.SemelError):
            await semel.run(key, work, operation="charge", scope="acme", fingerprint=None, policy=policy, about=ABOUT)
    consumer = Consumer(semel, "billing", max_attempts=1, backoff=Backoff(first=timedelta(0)))

    @consumer.on("order.placed")
    async def placed(event: Event) -> None:
        raise ValueError("no account")

    await consumer.handle(Event(type="order.placed", source="/shop", id="e-1", subject="order-1", data={"n": 1}))
    with suppress(errors.UsageError):
        await Batches(semel).start("payroll", [{"id": "1"}], operation="pay", item_id="id")


@pytest.fixture
async def client(semel: AsyncSemel) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(console_app(semel, user=lambda _: ADMIN))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        yield client


async def test_every_page_answers_or_says_why_not(client: httpx.AsyncClient, kind: str) -> None:
    refused = REFUSED[kind]
    for place in PAGES:
        answer = await client.get(place)
        assert answer.status_code == refused.get(place, 303 if place.startswith("/find") else 200), (place, answer.text)
        assert answer.is_success or answer.is_redirect or 'role="alert"' in answer.text, place


async def test_a_store_without_an_audit_chain_is_looked_at_and_nothing_more(
    client: httpx.AsyncClient, semel: AsyncSemel, kind: str
) -> None:
    record = await semel.read("doubt", operation="charge", scope="acme")
    assert record is not None
    needs = (await client.get("/")).text
    page = (await client.get(f"/records/{record.reference}")).text
    letters = (await client.get("/events/letters?consumer=billing")).text
    asked = await client.get(f"/act?do=cancel&target={record.reference}")
    if kind in WITHOUT_CHAIN:
        assert "Nothing needs a person" not in needs
        assert "could find records in doubt only by reading all of its records" in needs
        assert record.reference in (await client.get("/records?status=in_doubt")).text
        assert "This store keeps no audit chain, so nothing can be changed here." in page
        assert "order-1" in letters
        assert "discarded" not in letters
        assert asked.status_code == 403
        search = await client.get("/process?instance=proc-7", follow_redirects=True)
        assert "so all records would have to be read" in search.text
        assert 'name="scan"' in search.text
        for place in ("/bulk", "/batches"):
            assert "This store keeps no " in (await client.get(place)).text
    else:
        assert "In doubt: charge" in needs
        assert "Dead letters of billing" in needs
        assert "do=cancel" in page
        assert "discarded" in letters
        assert asked.status_code == 200


@pytest.mark.parametrize("kind", [kind for kind in REFUSED if kind not in WITHOUT_CHAIN])
async def test_a_decision_is_made_with_its_reason_and_written_down(
    client: httpx.AsyncClient, semel: AsyncSemel, kind: str
) -> None:
    del kind
    record = await semel.read("doubt", operation="charge", scope="acme")
    assert record is not None
    asked = (await client.get(f"/act?do=cancel&target={record.reference}")).text
    form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', asked)) | {"reason": "no money left"}
    done = await client.post("/act", data=form, headers=SAME)
    assert done.headers["location"] == f"/records/{record.reference}?done=cancel"
    page = (await client.get(done.headers["location"])).text
    assert "Resolved: cancelled" in page
    assert "no money left" in page
    assert "no money left" in (await client.get(f"/audit?target={record.reference}")).text
    assert "In doubt: charge" not in (await client.get("/")).text
    letters = (await client.get("/events/letters?consumer=billing")).text
    (letter,) = set(re.findall(r'name="letter" value="(\w+)"', letters))
    asked = (await client.get(f"/act?do=discard&consumer=billing&letter={letter}")).text
    form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', asked)) | {"reason": "a test"}
    assert "1 of 1 done" in (await client.post("/act", data=form, headers=SAME)).text
    assert "Nothing needs a person." in (await client.get("/")).text


async def test_what_nobody_has_to_fix_and_does_not_hold_is_not_called_held(tmp_path: Path) -> None:
    found = Finding("within", "it cannot join a transaction", breaks=("joins",))  # as on Redis
    async with AsyncSemel(tmp_path / "shop.db") as semel:
        actions = make_actions(semel)
        many = BulkActions(actions)
        app = make_console(actions, many, BulkRunner(many), user=lambda _: ADMIN, findings=[found])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{HOST}") as client:
            await client.get("/")  # the first question makes the tables
            page = (await client.get("/doctor")).text
    assert "Every promise holds here." not in page
    assert "Nothing has to be fixed, but 2 promises do not hold here." in page
