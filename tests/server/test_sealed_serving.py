"""`semel serve`, `semel bulk` and relays on a store whose values are sealed, and behind the cache that is named."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, Self

import pytest
import uvicorn

from semel import AsyncSemel, Policy, Semel
from semel.batch import Batches
from semel.cli import main
from semel.cli.commands.events.relays import _open_new
from semel.cli.store_option import open_async_engine
from semel.core.record import Happened
from semel.core.sealing.values import is_sealed
from semel.engine.engine import engine_of
from semel.errors import FailedBefore
from semel.events import Event, Outbox
from semel.security import Keyring
from semel.server.actions import Actions, make_actions
from semel.server.bulk import BulkActions, BulkRequest
from semel.stores.cache import TieredStore
from tests.server.desk import ADMIN, WHY
from tests.server.test_serving import served

assert served is not None  # a fixture
KEY = bytes(range(32))
RING = Keyring(active="2026-11", keys={"2026-11": KEY})
SECRET = "canary-4929-1234"


class Broken(Exception):
    """What a handler raises here."""


def _break() -> None:
    raise Broken


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A settings file with keys, and a store with a sealed record, one in doubt, and an event."""
    (tmp_path / "keys.toml").write_text(f'"2026-11" = "{KEY.hex()}"\n')
    path = tmp_path / "semel.toml"
    path.write_text(
        f'store = "sqlite:///{tmp_path}/semel.db"\n[security]\nactive_key = "2026-11"\n'
        f'key_file = "{tmp_path}/keys.toml"\naccept_plain = false\n'
    )
    with Semel(tmp_path / "semel.db", seal=RING) as semel:
        semel.run("paid", lambda: SECRET, operation="charge", fingerprint=None)
        with pytest.raises(Broken):
            semel.run("lost", _break, operation="charge", fingerprint=None, policy=Policy(in_doubt="hold"))
        Outbox(semel).add(
            Event(type="paid", source="/shop", id="e-1", data={"note": SECRET}, extensions={"note": SECRET}),
            autonomous=True,
        )
    return path


def stored(settings: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(settings.parent / "semel.db")) as connection:
        return [row[0] for row in connection.execute(statement)]


def every_file(folder: Path) -> list[bytes]:
    """What the files of the database hold, the log of a transaction that was not merged yet with them."""
    return [file.read_bytes() for file in folder.glob("semel.db*")]


def actions_of(settings: Path, configs: list[uvicorn.Config]) -> Actions:
    assert main(["serve", str(settings)]) == 0
    app: Any = configs[-1].app
    actions: Actions = app.state.api.actions
    return actions


def test_the_server_opens_what_is_sealed(settings: Path, served: list[uvicorn.Config]) -> None:
    actions = actions_of(settings, served)

    async def show() -> str | None:
        (record,) = (await actions.list(ADMIN, status="completed")).records
        return (await actions.body(ADMIN, record.reference)).text

    assert SECRET in (asyncio.run(show()) or "")


def test_the_server_seals_a_value_that_an_operator_states(settings: Path, served: list[uvicorn.Config]) -> None:
    actions = actions_of(settings, served)

    async def resolve() -> None:
        (record,) = (await actions.list(ADMIN, status="in_doubt")).records
        await actions.resolve(ADMIN, record.reference, Happened(SECRET), reason=WHY)

    asyncio.run(resolve())
    assert all(map(is_sealed, stored(settings, "SELECT outcome FROM semel_record WHERE outcome IS NOT NULL")))
    with Semel(settings.parent / "semel.db", seal=RING) as semel:
        assert semel.value("lost", str, operation="charge") == SECRET


def test_items_of_a_bulk_action_of_the_server_are_sealed(settings: Path, served: list[uvicorn.Config]) -> None:
    actions = actions_of(settings, served)

    async def release() -> int:
        bulk = BulkActions(actions)
        asked = BulkRequest(action="release", reason=WHY, records={"status": "in_doubt"}, id="b")
        await bulk.start(ADMIN, asked)
        return (await bulk.run("", "b")).completed

    assert asyncio.run(release()) == 1
    assert all(map(is_sealed, stored(settings, "SELECT data FROM semel_item")))


def test_the_command_for_bulk_actions_seals_their_items(settings: Path) -> None:
    arguments = ["bulk", str(settings), "--status", "in_doubt", "--action", "release", "--reason", WHY]
    assert main([*arguments, "--id", "b", "--yes"]) == 0
    items = stored(settings, "SELECT data FROM semel_item")
    assert items
    assert all(map(is_sealed, items))


@pytest.mark.parametrize(
    ("action", "stated"),
    [("resolve", {"value": {"iban": SECRET}}), ("fail", {"error": SECRET})],
    ids=["value", "error"],
)
def test_what_a_bulk_action_states_for_all_is_stored_nowhere_in_the_clear(
    settings: Path, action: Any, stated: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asked = BulkRequest(action=action, reason=WHY, records={"status": "in_doubt"}, id="b", **stated)
    files: list[bytes] = []

    async def carry_out() -> tuple[int, str]:
        async with AsyncSemel(settings.parent / "semel.db", seal=RING) as semel:
            actions = make_actions(semel)
            bulk = BulkActions(actions)
            assert actions.audit is not None
            await bulk.start(ADMIN, asked)
            files.extend(every_file(settings.parent))  # all is noted, and nothing carried out
            done = (await bulk.run("", "b")).completed
            files.extend(every_file(settings.parent))
            return done, repr([await bulk.list(ADMIN), [entry async for entry in actions.audit.entries()]])

    done, shown = asyncio.run(carry_out())
    files += every_file(settings.parent)
    assert done == 1
    assert any(WHY.encode() in content for content in files), "what is not sealed is found"
    assert not [content for content in files if SECRET.encode() in content]
    assert SECRET not in shown + caplog.text
    with Semel(settings.parent / "semel.db", seal=RING) as semel:
        if action == "resolve":
            replayed = semel.run("lost", lambda: {"iban": ""}, operation="charge", fingerprint=None)
            assert (replayed.replayed, replayed.value) == (True, {"iban": SECRET})
        else:
            with pytest.raises(FailedBefore, match=SECRET):
                semel.run("lost", _break, operation="charge", fingerprint=None)


def test_a_refusal_that_quotes_the_value_is_sealed(settings: Path) -> None:
    asked = BulkRequest(action="resolve", reason=WHY, records={"status": "in_doubt"}, value=SECRET, id="b")
    files: list[bytes] = []

    async def carry_out() -> str:
        async with AsyncSemel(settings.parent / "semel.db", seal=RING) as semel:

            @semel.once(key="order", operation="charge", in_doubt="hold")
            async def charge(order: str) -> Literal["paid", "declined"]:
                raise Broken

            bulk = BulkActions(make_actions(semel))
            await bulk.start(ADMIN, asked)
            await bulk.run("", "b")
            files.extend(every_file(settings.parent))
            (refusal,) = await bulk.refusals(ADMIN, "", "b")
            return "" if refusal.error is None else refusal.error.message

    assert SECRET in asyncio.run(carry_out()), "the operator is told what does not fit"
    assert not [content for content in files if SECRET.encode() in content]


def test_a_relay_of_the_command_line_publishes_what_is_sealed(settings: Path) -> None:
    published: list[Event] = []

    class Broker:
        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
            published.extend(events)
            return [None] * len(events)

    async def relay() -> None:
        async with _open_new(str(settings), "default", 1, Broker()) as running:
            await running.run_once()

    asyncio.run(relay())
    assert [(event.data, event.extensions) for event in published] == [({"note": SECRET}, {"note": SECRET})]


def test_items_that_are_sealed_are_run_by_the_command(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payroll.py").write_text("def pay(item):\n    return item.data['note']\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with Semel(tmp_path / "semel.db", seal=RING) as semel:
        Batches(semel).start("b-1", [{"id": "1", "note": SECRET}], operation="pay", item_id="id")
    assert main(["batch", "run", "payroll:pay", "b-1", str(settings)]) == 0
    with Semel(tmp_path / "semel.db", seal=RING) as semel:
        (result,) = Batches(semel).get("b-1").results(type=str)
    assert result.value == SECRET


@pytest.mark.parametrize("command", [["serve", "--check"], ["doctor"]])
def test_a_key_that_does_not_open_what_it_sealed_has_to_be_fixed(
    command: list[str], settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, str(settings)]) == 0
    assert "2026-11 seals" in capsys.readouterr().out
    (settings.parent / "keys.toml").write_text(f'"2026-11" = "{bytes(32).hex()}"\n')
    assert main([*command, str(settings)]) == 1
    said = capsys.readouterr().out
    assert "fix" in said
    assert "2026-11 seals" not in said


def test_a_check_of_tables_that_are_not_there_yet_says_so(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in settings.parent.glob("semel.db*"):
        file.unlink()
    (settings.parent / "semel.db").touch()
    assert main(["serve", str(settings), "--check"]) == 1
    assert "semel migrate" in capsys.readouterr().out


def test_a_check_says_whether_the_keys_can_be_read(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(settings), "--check"]) == 0
    assert "seal keys" in capsys.readouterr().out
    (settings.parent / "keys.toml").unlink()
    assert main(["serve", str(settings), "--check"]) == 1


def test_the_cache_that_the_environment_names_stands_in_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: list[uvicorn.Config]
) -> None:
    """Erasing has to reach it: entries of a cache that the server knows nothing of would be replayed on."""
    url = f"sqlite:///{tmp_path}/semel.db"
    with Semel(url) as semel:
        assert semel.count() == 0  # makes the file
    monkeypatch.setenv("SEMEL_CACHE", "redis://127.0.0.1:1/0")
    assert main(["serve", url]) == 0
    app: Any = served[-1].app
    assert isinstance(engine_of(app.state.api.actions.semel).store, TieredStore)


def test_an_engine_for_loops_has_the_tiers_of_one_for_threads(settings: Path) -> None:
    made = open_async_engine(str(settings))
    assert isinstance(made, AsyncSemel)
    assert type(engine_of(made).store).__name__ == "SealedStore"
