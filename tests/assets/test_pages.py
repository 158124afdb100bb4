"""The asset service over HTTP: events, the page and its buttons."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from examples.assets.serving import MOST_BYTES, make_app
from semel.events import Event

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = make_app(f"sqlite:///{tmp_path / 'assets.db'}")
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://plant", follow_redirects=True) as client,
    ):
        yield client


async def _press(client: httpx.AsyncClient, **form: str) -> str:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    return (await client.post("/send", content=urlencode(form), headers=headers)).text


async def _register(client: httpx.AsyncClient) -> str:
    page = await _press(client, do="register")
    return str(re.findall(r'data-asset="([^"]+)"', page)[0])


async def _find(client: httpx.AsyncClient, pump: str) -> dict[str, object]:
    return next(asset for asset in (await client.get("/assets")).json() if asset["asset"] == pump)


async def test_energy_that_is_metered_fifty_times_is_added_once(client: httpx.AsyncClient) -> None:
    pump = await _register(client)
    page = await _press(client, do=f"meter:{pump}", deliver="often")
    assert "50 deliveries of 1 event;" in page
    assert "1 processed" in page
    assert "49 duplicate" in page
    assert (await _find(client, pump))["kwh"] == 5.0


async def test_a_pump_moves_and_changes_its_state(client: httpx.AsyncClient) -> None:
    pump = await _register(client)
    await _press(client, do=f"move:{pump}")
    await _press(client, do=f"update:{pump}", deliver="often")
    found = await _find(client, pump)
    assert (found["facility"], found["state"], found["load_kw"]) == ("south", "running", 32.5)


async def test_a_life_out_of_order_ends_as_in_order(client: httpx.AsyncClient) -> None:
    page = await _press(client, do="life")
    assert "out of order" in page
    (found,) = (await client.get("/assets")).json()
    assert (found["facility"], found["load_kw"], found["kwh"]) == ("south", 45.5, 20.0)


@pytest.mark.parametrize("do", ["move:none", "paint:none", ""])
async def test_a_button_that_is_not_there_sends_nothing(client: httpx.AsyncClient, do: str) -> None:
    assert "What happened" not in await _press(client, do=do)


async def test_a_page_of_another_site_sends_nothing(client: httpx.AsyncClient) -> None:
    answer = await client.post("/send", content="do=register", headers={"origin": "http://elsewhere"})
    assert answer.status_code == 403
    assert (await client.get("/assets")).json() == []


async def test_an_event_is_answered_by_what_became_of_it(client: httpx.AsyncClient) -> None:
    event = Event(type="asset.energy_metered", source="/s", subject="pump-1", data={"kwh": 1.0})
    lost = Event(type="asset.energy_metered", source="/s", data={"kwh": 1.0})
    unknown = Event(type="asset.painted", source="/s", subject="pump-1")
    answers = [await client.post("/events", content=one.to_json()) for one in (event, event, lost, unknown)]
    told = [(answer.status_code, answer.json()["status"]) for answer in answers]
    assert told == [(200, "processed"), (200, "duplicate"), (422, "rejected"), (503, "unknown_type")]


@pytest.mark.parametrize(("body", "status"), [(b"no event", 400), (b"x" * (MOST_BYTES + 1), 413)])
async def test_what_is_no_event_is_refused(client: httpx.AsyncClient, body: bytes, status: int) -> None:
    assert (await client.post("/events", content=body)).status_code == status


async def test_faults_that_are_not_there_are_refused(client: httpx.AsyncClient) -> None:
    assert (await client.post("/faults", json={"delay": 0})).status_code == 200
    assert (await client.post("/faults", json={"explode": 1})).status_code == 400


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("asset.energy_metered", '{"kwh": 1e308}'),
        ("asset.energy_metered", '{"kwh": -1}'),
        ("asset.state_changed", '{"state": "idle", "load_kw": 1e308, "version": 1}'),
        ("asset.state_changed", '{"state": "idle", "load_kw": 1, "version": 1e30}'),
        ("asset.state_changed", '{"state": "idle", "load_kw": 1, "version": 9223372036854775808}'),
        ("asset.registered", '{"facility": "n", "type": "pump", "capacity_kw": -1}'),
        ("asset.capacity_changed", '{"capacity_kw": 1e308, "expected": 1}'),
    ],
)
async def test_an_amount_that_no_asset_has_is_kept_as_a_dead_letter_and_changes_nothing(
    client: httpx.AsyncClient, type_: str, data: str
) -> None:
    pump = await _register(client)
    before = await _find(client, pump)
    for number in range(2):
        envelope = f'"specversion": "1.0", "id": "e-{number}", "source": "/s", "subject": "{pump}", "type": "{type_}"'
        answer = await client.post("/events", content=f'{{{envelope}, "data": {data}}}')
        assert answer.status_code == 422, answer.text
    assert await _find(client, pump) == before
