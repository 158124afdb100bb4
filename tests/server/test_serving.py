"""The application of `semel serve`, in this process: console, metrics, relay, hooks, and the command itself."""

from __future__ import annotations

import asyncio
import re
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

from semel import AsyncSemel, Policy, Semel
from semel.cli import main
from semel.cli.commands.serve import count_calls, make_relay
from semel.core.observer import Logging
from semel.engine.engine import engine_of
from semel.errors import UsageError
from semel.server.app import find_attention
from semel.server.attention import AttentionFinder
from semel.server.engines import run_sweep
from semel.server.process import make_first_token, make_server_app
from semel.server.settings import ServerSettings
from semel.server.tokens import Tokens
from semel.settings import read_settings
from semel.stores.memory import MemoryStore
from semel.telemetry import Observers
from semel.telemetry.attention import GAUGES
from semel.telemetry.prometheus import PrometheusObserver
from tests.server.desk import Desk
from tests.server.test_matrix import fill
from tests.server.test_process import write_settings


def later(now: datetime) -> datetime:
    return now + timedelta(minutes=15)


def client_of(app: Starlette) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8787")


@pytest.mark.anyio
async def test_a_browser_that_is_not_signed_in_is_sent_to_the_page_for_it(desk: Desk) -> None:
    client = client_of(make_server_app(desk.semel, ServerSettings(), due=later))
    answer = await client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    assert "<form" in (await client.get("/sign-in")).text


@pytest.mark.anyio
async def test_a_browser_that_is_signed_in_sees_what_needs_a_person(desk: Desk) -> None:
    await desk.in_doubt()
    secret = await make_first_token(Tokens(desk.semel))
    assert secret is not None
    client = client_of(make_server_app(desk.semel, ServerSettings(), due=later))
    origin = {"origin": "http://127.0.0.1:8787"}
    assert (await client.post("/sign-in", data={"token": secret}, headers=origin)).status_code == 303
    page = await client.get("/")
    assert page.status_code == 200
    assert "charge" in page.text


@pytest.mark.anyio
async def test_the_page_of_the_doctor_shows_a_server_that_knows_no_users(tmp_path: Path) -> None:
    async with AsyncSemel(f"sqlite:///{tmp_path}/s.db") as semel:
        await semel.sweep()  # makes the tables
        client = client_of(make_server_app(semel, ServerSettings(authentication=False), due=later))
        assert "everybody who reaches it is an admin" in (await client.get("/doctor")).text


@pytest.mark.anyio
async def test_there_is_one_first_token(desk: Desk) -> None:
    tokens = Tokens(desk.semel)
    assert await make_first_token(tokens) is not None
    assert await make_first_token(tokens) is None


@pytest.mark.anyio
async def test_metrics_tell_what_needs_a_person_and_no_key_scope_or_subject(desk: Desk) -> None:
    await desk.in_doubt("canary-key", scope="canary-scope")
    settings = ServerSettings(open_metrics=True, console=False)
    text = (await client_of(make_server_app(desk.semel, settings, due=later)).get("/metrics")).text
    assert 'semel_in_doubt{operation="charge",policy="hold"} 1.0' in text
    assert "semel_attention_up 1.0" in text
    assert "canary" not in text


@pytest.mark.anyio
async def test_metrics_tell_of_leases_that_are_over_and_that_no_sweep_has_marked(desk: Desk) -> None:
    for key in ("first", "second"):
        await desk.running(key)
        desk.clock.advance(3600)
    await desk.in_doubt("swept", policy=Policy(in_doubt="hold"))
    for key in ("third", "fourth"):
        await desk.running(key)
        desk.clock.advance(600)
    settings = ServerSettings(open_metrics=True, console=False)
    text = (await client_of(make_server_app(desk.semel, settings, due=later)).get("/metrics")).text
    assert 'semel_lapsed_leases{operation="charge"} 2.0' in text
    (age,) = re.findall(r'semel_lapsed_leases_oldest_seconds{operation="charge"} (\S+)', text)
    assert 600 < float(age) < 1200
    assert 'semel_in_doubt{operation="charge",policy="hold"} 3.0' in text


@pytest.mark.anyio
async def test_every_gauge_that_rules_ask_for_is_filled_by_the_server(desk: Desk) -> None:
    await fill(desk, "acme")
    await desk.running()
    desk.clock.advance(3600)
    told = await find_attention(AttentionFinder(desk.semel), lambda: datetime.now(UTC))
    assert {one.kind for one in told} == set(GAUGES)


@pytest.mark.anyio
async def test_metrics_are_not_for_users_of_some_scopes(desk: Desk) -> None:
    tokens = Tokens(desk.semel)
    made = await tokens.create("anna", roles=["viewer"], scopes=["acme"], expires_in=timedelta(days=1), by="test")
    client = client_of(make_server_app(desk.semel, ServerSettings(console=False), due=later))
    assert (await client.get("/metrics")).status_code == 401
    answer = await client.get("/metrics", headers={"authorization": f"Bearer {made.secret}"})
    assert answer.status_code == 403


@pytest.mark.anyio
async def test_without_authentication_everybody_is_an_admin(desk: Desk) -> None:
    settings = ServerSettings(authentication=False, console=False)
    client = client_of(make_server_app(desk.semel, settings, due=later))
    assert (await client.get("/api/v1/me")).json()["roles"] == ["admin"]
    assert (await client.get("/sign-in")).status_code == 404


def test_a_store_that_keeps_no_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    monkeypatch.setattr(type(store), "capabilities", frozenset())
    with pytest.raises(UsageError, match="keeps no tokens"):
        make_server_app(AsyncSemel(store), ServerSettings(), due=later)


PROGRAM = textwrap.dedent(
    """
    from semel import DidNotHappen, {kind}
    from semel.events import Consumer

    semel = {kind}({url!r})
    billing = Consumer(semel, "billing")


    {define} ask_bank(attempt):
        return DidNotHappen()


    @semel.once(key="order", in_doubt="reconcile", reconcile=ask_bank)
    {define} charge(order: str) -> str:
        return "paid"
    """
)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[uvicorn.Config]:
    """What the command would serve."""
    kept: list[uvicorn.Config] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server: kept.append(server.config))
    return kept


@pytest.mark.parametrize("kind", [("Semel", "def"), ("AsyncSemel", "async def")], ids=lambda kind: kind[0])
def test_an_application_brings_its_hooks_and_consumers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    served: list[uvicorn.Config],
    kind: tuple[str, str],
) -> None:
    write_settings(tmp_path)
    name = f"shop_{kind[0].lower()}"
    url = f"sqlite:///{tmp_path}/semel.db"
    (tmp_path / f"{name}.py").write_text(PROGRAM.format(kind=kind[0], define=kind[1], url=url))
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--app", f"{name}:semel", "--consumer", f"{name}:billing", "--port", "8790"]) == 0
    (config,) = served
    app: Any = config.app
    actions = app.state.api.actions
    assert list(actions.consumers) == ["billing"]
    assert (config.host, config.port) == ("127.0.0.1", 8790)
    assert f"{name}.charge" in capsys.readouterr().out


@pytest.mark.parametrize("kind", [("Semel", "def"), ("AsyncSemel", "async def")], ids=lambda kind: kind[0])
def test_sweeps_with_an_application_are_in_the_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: list[uvicorn.Config], kind: tuple[str, str]
) -> None:
    """Else the alert for sweeps that are overdue goes off while it sweeps."""
    write_settings(tmp_path)
    name = f"swept_{kind[0].lower()}"
    url = f"sqlite:///{tmp_path}/semel.db"
    (tmp_path / f"{name}.py").write_text(PROGRAM.format(kind=kind[0], define=kind[1], url=url))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMEL_SERVER__OPEN_METRICS", "true")
    assert main(["--settings", "semel.toml", "serve", "--app", f"{name}:semel"]) == 0
    app: Any = served[-1].app

    async def sweep_and_look() -> str:
        await run_sweep(app.state.api.actions.given, None)
        return (await client_of(app).get("/metrics")).text

    text = asyncio.run(sweep_and_look())
    assert "semel_sweeps_total 1.0" in text
    assert "semel_last_sweep_timestamp_seconds 1" in text


def test_an_application_that_counts_is_counted_once() -> None:
    counting = PrometheusObserver()
    engine = engine_of(Semel(MemoryStore(), observer=Observers(Logging(), counting)))
    assert count_calls(engine) is counting.registry
    assert isinstance(engine.observer, Observers)


def test_a_proxy_is_believed_about_those_it_stands_for_where_it_is_named(
    tmp_path: Path, served: list[uvicorn.Config]
) -> None:
    assert main(["serve", str(write_settings(tmp_path))]) == 0
    assert not served[-1].proxy_headers
    assert main(["serve", str(write_settings(tmp_path, "[server]", 'proxies = ["127.0.0.1"]'))]) == 0
    assert (served[-1].proxy_headers, served[-1].forwarded_allow_ips) == (True, ["127.0.0.1"])


def test_without_an_application_it_says_that_no_hook_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], served: list[uvicorn.Config]
) -> None:
    assert main(["serve", str(write_settings(tmp_path))]) == 0
    assert "no reconcile hook is known here" in capsys.readouterr().out
    assert not served[0].access_log


def test_an_address_that_others_reach_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], served: list[uvicorn.Config]
) -> None:
    settings = str(write_settings(tmp_path))
    assert main(["serve", settings, "--host", "0.0.0.0"]) == 2  # noqa: S104 - the point
    assert "public = true" in capsys.readouterr().err
    assert served == []


def test_the_relay_is_made_by_choice(tmp_path: Path) -> None:
    lines = ("[relay]", 'publisher = "rabbitmq://guest:secret@127.0.0.1/"', 'exchange = "events"', 'outbox = "shop"')
    semel = AsyncSemel(MemoryStore())
    relay = make_relay(read_settings(write_settings(tmp_path, *lines), {}), semel)
    assert relay is not None
    assert relay.outbox.stream == "shop"
    assert make_relay(read_settings(write_settings(tmp_path), {}), semel) is None
