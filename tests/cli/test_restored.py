"""`semel restored`: what it takes, and where it does not work."""

import pytest

from tests.cli.conftest import Database, Run


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--at", "2h"],
        ["--for", "24h"],
        ["--end", "--at", "2h", "--for", "24h"],
        ["--end", "--operation", "charge"],
        ["--operation", "charge"],
    ],
    ids=" ".join,
)
def test_half_of_a_mark_is_refused(database: Database, call: Run, arguments: list[str]) -> None:
    database.completed("o-1")
    done = call("restored", database.url, *arguments)
    assert done.returncode == 2
    assert "Give --at and --for" in done.stderr


def test_a_file_takes_no_mark(database: Database, call: Run) -> None:
    database.completed("o-1")
    done = call("restored", database.url, "--at", "2h", "--for", "24h")
    assert done.returncode == 2
    assert "only servers do" in done.stderr


@pytest.mark.parametrize("option", [["--half", "pre"], ["--search"], ["--partitions", "2"]], ids=" ".join)
def test_what_is_for_servers_is_refused_for_a_file(database: Database, call: Run, option: list[str]) -> None:
    done = call("migrate", database.url, *option)
    assert done.returncode == 2
    assert not database.path.exists()
