"""`semel bulk`: an action on all records that match, from the command line."""

import pytest

from semel.cli import main
from tests.cli.conftest import Database


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


def test_without_a_terminal_it_asks_for_yes(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bulk", database.url, "--status", "in_doubt", "--action", "release", "--reason", "seen"]
    assert main(arguments) == 2
    assert "--dry-run" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["resolve", "nonsense", "redrive"])
def test_an_action_that_is_none_is_refused(database: Database, capsys: pytest.CaptureFixture[str], action: str) -> None:
    assert main(["bulk", database.url, "--action", action, "--reason", "seen", "--yes"]) != 0
    assert "nothing was done" in capsys.readouterr().err
