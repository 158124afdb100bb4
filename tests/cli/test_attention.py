"""`semel attention`: what needs a person, from the command line."""

import asyncio
import json

import pytest

from semel import AsyncSemel
from semel.batch import Batches
from semel.cli import main
from tests.cli.conftest import Database


def test_what_needs_a_person_is_shown_with_what_to_do(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    record = database.in_doubt("lost")
    assert main(["attention", database.url]) == 4
    said = capsys.readouterr().out
    assert "in_doubt hold" in said
    assert record.reference[:12] in said
    assert "then resolve" in " ".join(said.split())


def test_it_is_told_to_machines_as_the_api_tells_it(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    record = database.in_doubt("lost")
    assert main(["attention", database.url, "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    (need,) = told["needs"]
    assert (need["target"], need["policy"], need["scope"]) == (record.reference, "hold", "acme")
    assert (told["number"], told["cut"]) == (1, [])


def test_nothing_needs_a_person_where_there_is_nothing(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    database.completed("done")
    assert main(["attention", database.url]) == 0
    assert capsys.readouterr().out == "Nothing needs a person.\n"


def test_what_is_in_another_scope_is_left_out(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    database.in_doubt("lost")
    assert main(["attention", database.url, "--scope", "globex"]) == 0
    assert main(["attention", database.url, "--scope", "acme"]) == 4


def test_where_not_all_was_looked_at_nothing_is_not_said(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semel.server.attention.MOST_ON_A_PAGE", 1)

    async def start() -> None:
        async with AsyncSemel(database.url) as semel:
            for name in ("a", "b"):
                batch = await Batches(semel).start(name, [{"id": "1"}], operation="charge", item_id="id")
                await batch.pause("wait")

    asyncio.run(start())
    assert main(["attention", database.url]) == 4
    said = " ".join(capsys.readouterr().out.split())
    assert "1 or more" in said
    assert "There is so much of paused_batch that not all was looked at" in said
