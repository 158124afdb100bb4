"""`semel bulk`: an action on all records that match, from the command line."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from semel import AsyncSemel, Semel
from semel.cli import main
from semel.server import User
from semel.server.actions import make_actions
from semel.server.bulk import BulkActions, BulkRequest
from tests.cli.conftest import Database, Run

MODULE = """
from semel import {engine}

semel = {engine}("{url}")


@semel.once(key="order", operation="charge")
{prefix}def charge(order: str) -> int:
    raise AssertionError
"""


@pytest.fixture(autouse=True)
def doubts(database: Database) -> None:
    for number in range(3):
        database.in_doubt(f"lost {number}")


def test_a_dry_run_only_counts(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bulk", database.url, "--action", "release", "--reason", "seen", "--dry-run"]) == 0
    assert "3 match, 3 are in a state for release" in capsys.readouterr().out


def test_all_that_match_are_released(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bulk", database.url, "--status", "in_doubt", "--action", "release", "--reason", "seen"]
    assert main([*arguments, "--by", "olga", "--yes", "--id", "b"]) == 0
    assert "3 done, 0 refused, 0 failed" in capsys.readouterr().out
    assert main(["count", database.url, "--status", "in_doubt"]) == 0
    assert main([*arguments, "--by", "olga", "--yes", "--id", "b"]) == 0  # the same one, which is over


def test_an_age_is_the_same_request_however_late_the_same_command_runs_again(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["bulk", database.url, "--status", "in_doubt", "--action", "release", "--reason", "seen"]
    arguments += ["--by", "olga", "--yes", "--id", "b", "--after"]
    assert main([*arguments, "2h"]) == 0
    later = datetime.now(UTC) + timedelta(hours=5)
    monkeypatch.setattr("semel.cli.timefmt.now", lambda: later)
    capsys.readouterr()
    assert main([*arguments, "120m"]) == 0
    assert "3 done, 0 refused, 0 failed" in capsys.readouterr().out
    assert main([*arguments, "3h"]) != 0
    assert "stands for another bulk action" in capsys.readouterr().err


def test_what_is_done_to_a_bulk_action_is_in_the_chain_under_the_permission_of_its_action(
    database: Database, call: Run
) -> None:
    async def begin() -> None:
        async with AsyncSemel(database.url) as semel:
            asked = BulkRequest(action="release", reason="seen", records={"status": "in_doubt"}, id="b")
            await BulkActions(make_actions(semel)).start(User("olga", {"operator"}), asked)

    asyncio.run(begin())
    for what in ("pause", "resume"):
        without = call("batch", what, "b", database.url, "--by", "olga")
        assert (without.returncode, "reason" in without.stderr) == (2, True)
    reasons = {"pause": "wait", "resume": "they are back", "cancel": "wrong ones"}
    for words in (["pause"], ["resume"], ["cancel", "--yes"]):
        words += ["--reason", reasons[words[0]]]
        done = call("batch", words[0], "b", database.url, *words[1:], "--by", "olga")
        assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in call("audit", "list", database.url, "--json").stdout.splitlines()]
    begun = [
        (one["action"], one["target"], one["detail"]["what"], one["reason"]) for one in lines if one["phase"] == "begun"
    ]
    assert begun[::-1] == [("release", "bulk:b", what, reason) for what, reason in reasons.items()]


def test_without_a_terminal_it_asks_for_yes(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bulk", database.url, "--status", "in_doubt", "--action", "release", "--reason", "seen"]
    assert main(arguments) == 2
    assert "--dry-run" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["nonsense", "redrive"])
def test_an_action_that_is_none_is_refused(database: Database, capsys: pytest.CaptureFixture[str], action: str) -> None:
    assert main(["bulk", database.url, "--action", action, "--reason", "seen", "--yes"]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("semel: usage: ")
    assert "nothing was done" in complaint


def test_all_that_match_are_resolved_with_the_value_that_is_stated(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bulk", database.url, "--status", "in_doubt", "--action", "resolve", "--reason", "seen", "--yes"]
    assert main([*arguments, "--value", '{"id": 7}']) == 0
    said = capsys.readouterr().out
    assert "3 done, 0 refused, 0 failed" in said
    assert "was not compared" in said
    with Semel(database.path) as semel:
        assert semel.value("lost 1", operation="charge", scope="acme") == {"id": 7}


@pytest.mark.parametrize(
    ("action", "value"), [("resolve", "not json"), ("resolve", "NaN"), ("release", "1"), ("release", "null")]
)
def test_a_value_that_cannot_be_meant_is_refused(
    database: Database, capsys: pytest.CaptureFixture[str], action: str, value: str
) -> None:
    arguments = ["bulk", database.url, "--status", "in_doubt", "--action", action, "--reason", "seen", "--yes"]
    assert main([*arguments, "--value", value]) == 2
    assert "--value" in capsys.readouterr().err
    assert database.read("lost 0").status == "in_doubt"


@pytest.mark.parametrize(("engine", "prefix"), [("Semel", ""), ("AsyncSemel", "async ")])
def test_a_value_is_compared_with_what_the_operation_of_an_app_returns(
    database: Database, call: Run, tmp_path: Path, engine: str, prefix: str
) -> None:
    (tmp_path / "till.py").write_text(MODULE.format(engine=engine, prefix=prefix, url=database.url))
    options = ["--status", "in_doubt", "--action", "resolve", "--reason", "seen", "--yes", "--app", "till:semel"]
    refused = call("bulk", *options, "--value", '"ch_1"')
    assert refused.returncode == 1
    assert "0 done, 3 refused" in refused.stdout
    assert "not what the operation returns" in refused.stdout
    done = call("bulk", *options, "--value", "7")
    assert (done.returncode, "was not compared" in done.stdout) == (0, False), done.stderr
    assert "3 done" in done.stdout
