"""`semel list`, `semel count` and `semel counts` by what records are about."""

import json

import pytest

from semel import Semel
from semel.cli import main
from tests.cli.conftest import Database
from tests.servers.redis import Keys as RedisKeys

Captured = pytest.CaptureFixture[str]
SEARCHES = {
    "subject": ("--subject", "ann"),
    "requester": ("--requester", "web"),
    "business key": ("--business-key", "inv-9"),
    "process": ("--process", "p-9"),
    "tag": ("--tag", "tenant=acme=co"),
    "tag and scope": ("--tag", "till=", "--scope", "acme"),
}


@pytest.fixture
def filled(database: Database) -> Database:
    """Three records about nothing of interest, and one that is wanted."""
    database.completed("o-1")
    database.in_doubt("o-2")
    database.running("o-3")
    about = {
        "subject": "ann",
        "requester": "web",
        "business_key": "inv-9",
        "process_instance": "p-9",
        "tags": {"tenant": "acme=co", "till": ""},
    }
    with Semel(database.path) as semel:
        semel.run("wanted", lambda: 1, operation="refund", fingerprint=None, scope="acme", about=about)
    return database


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_records_are_listed_by_what_they_are_about(
    filled: Database, options: tuple[str, ...], capsys: Captured
) -> None:
    assert main(["list", filled.url, *options, "--json"]) == 0
    assert [json.loads(line)["key"] for line in capsys.readouterr().out.splitlines()] == ["wanted"]


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_records_are_counted_by_what_they_are_about(
    filled: Database, options: tuple[str, ...], capsys: Captured
) -> None:
    assert main(["count", filled.url, *options]) == 0
    assert capsys.readouterr().out == "1\n"


def test_what_belongs_to_another_scope_is_not_listed(filled: Database, capsys: Captured) -> None:
    assert main(["list", filled.url, "--subject", "ann", "--scope", "zenith"]) == 0
    assert capsys.readouterr().out.strip() == "No records."


def test_count_prints_the_number_alone(filled: Database, capsys: Captured) -> None:
    assert main(["count", filled.url, "--status", "completed"]) == 0
    assert capsys.readouterr().out == "2\n"


def test_count_of_what_is_stuck_says_so_by_its_exit_code(filled: Database, capsys: Captured) -> None:
    assert main(["count", filled.url, "--stuck"]) == 4
    assert capsys.readouterr().out == "1\n"
    assert main(["count", filled.url, "--stuck", "--operation", "refund"]) == 0


def test_counts_are_a_table_of_operations_and_statuses(filled: Database, capsys: Captured) -> None:
    assert main(["counts", filled.url]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip() and "─" not in line]
    assert rows == [
        ["operation", "status", "number"],
        ["charge", "completed", "1"],
        ["charge", "in_doubt", "1"],
        ["charge", "running", "1"],
        ["refund", "completed", "1"],
    ]


def test_counts_as_json_are_an_object_per_line(filled: Database, capsys: Captured) -> None:
    assert main(["counts", filled.url, "--operation", "refund", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"operation": "refund", "status": "completed", "number": 1}


def test_where_there_are_no_records_counts_says_so(database: Database, capsys: Captured) -> None:
    database.completed("o-1")
    assert main(["counts", database.url, "--operation", "other"]) == 0
    assert capsys.readouterr().out.strip() == "No records."


@pytest.mark.parametrize("command", ["list", "count", "counts"])
@pytest.mark.parametrize("options", [("--tag", "tenant"), ("--stuck", "--status", "running")], ids=str)
def test_options_that_cannot_be_understood_are_a_mistake_of_usage(
    filled: Database, command: str, options: tuple[str, ...], capsys: Captured
) -> None:
    assert main([command, filled.url, *options]) == 2
    assert "nothing was done" in capsys.readouterr().err


def test_a_store_that_would_read_all_records_does_so_only_with_scan(redis_keys: RedisKeys, capsys: Captured) -> None:
    redis_keys.empty()
    with Semel(redis_keys.url) as semel:
        semel.run("wanted", lambda: 1, operation="refund", fingerprint=None, about={"subject": "ann"})
    for command in (["list", "--subject", "ann"], ["count"], ["counts"]):
        assert main([command[0], redis_keys.url, *command[1:]]) == 2
        assert "--scan" in capsys.readouterr().err
        assert main([command[0], redis_keys.url, *command[1:], "--scan"]) == 0
        assert capsys.readouterr().out
