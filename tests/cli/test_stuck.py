"""`semel list --stuck`: what waits for somebody, and an exit code that says so."""

import json
from datetime import timedelta

import pytest

from semel.cli import main
from tests.cli.conftest import Database


def _keys(output: str) -> list[str]:
    return [json.loads(line)["key"] for line in output.splitlines()]


def test_stuck_are_those_in_doubt_and_those_whose_lease_is_over(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    database.running("crashed", timedelta(microseconds=1))
    database.completed("done")
    database.in_doubt("held")
    database.running("alive")
    code = main(["list", database.url, "--stuck", "--json"])
    assert _keys(capsys.readouterr().out) == ["crashed", "held"]
    assert code == 4


def test_nothing_stuck_ends_with_0_and_says_so(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    database.completed("done")
    assert main(["list", database.url, "--stuck"]) == 0
    assert capsys.readouterr().out.strip() == "No records."


def test_stuck_can_be_narrowed_by_operation_and_limit(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    database.in_doubt("first")
    database.in_doubt("second")
    assert main(["list", database.url, "--stuck", "--operation", "charge", "--limit", "1", "--json"]) == 4
    assert _keys(capsys.readouterr().out) == ["first"]
    assert main(["list", database.url, "--stuck", "--operation", "other", "--json"]) == 0


def test_stuck_and_a_status_are_not_given_together(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    database.completed("done")
    assert main(["list", database.url, "--stuck", "--status", "running"]) == 2
    assert "--stuck" in capsys.readouterr().err


def test_a_plain_listing_of_what_is_in_doubt_ends_with_0(database: Database) -> None:
    database.in_doubt("held")
    assert main(["list", database.url, "--status", "in_doubt"]) == 0


def test_a_sweep_that_leaves_records_held_ends_with_4(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    database.completed("done")
    assert main(["sweep", database.url]) == 0
    database.in_doubt("held")
    assert main(["sweep", database.url]) == 4
    assert "semel list --stuck" in capsys.readouterr().out
