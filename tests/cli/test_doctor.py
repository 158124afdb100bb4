"""`semel doctor` on real files, and the rows of the promise that it prints."""

import json
import re
from datetime import timedelta

import pytest

from semel import Policy, Semel
from semel.stores.admin import promises
from tests.cli.conftest import Database, Run
from tests.docs.pages import page, table


def test_a_file_in_use_is_fine(database: Database, run: Run) -> None:
    database.completed("o-1")
    done = run("doctor", database.url)
    assert done.returncode == 0
    assert "nothing pending" in done.stdout
    assert "outcome per key" in done.stdout


def test_what_must_be_fixed_is_the_exit_code(database: Database, call: Run) -> None:
    database.completed("o-1")
    done = call("doctor", f"{database.url}?synchronous=NORMAL")
    assert done.returncode == 1
    assert "see: synchronous" in done.stdout


def test_records_that_do_not_outlive_the_retries_are_found(database: Database, call: Run) -> None:
    with Semel(database.path, policy=Policy(keep_for=timedelta(hours=2))) as semel:
        semel.run("o-1", lambda: None, operation="charge", fingerprint=None)
    assert call("doctor", database.url, "--retry-horizon", "2h").returncode == 0
    assert call("doctor", database.url, "--retry-horizon", "3h").returncode == 1


def test_json_tells_the_same(database: Database, call: Run) -> None:
    database.in_doubt("o-1")
    done = call("doctor", database.url, "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["fine"]
    assert {finding["topic"]: finding["found"] for finding in told["findings"]}["in doubt"] == "1"
    assert len(told["promises"]) == 9


@pytest.mark.parametrize(("mode", "told"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_file_that_others_can_read_is_told(database: Database, call: Run, mode: int, told: bool) -> None:
    database.completed("o-1")
    database.path.chmod(mode)
    done = call("doctor", database.url)
    assert done.returncode == 0
    assert ("chmod 600" in done.stdout) is told


def test_looking_makes_no_file(database: Database, call: Run) -> None:
    assert call("doctor", database.url).returncode == 3
    assert not database.path.exists()


def test_an_empty_file_has_no_schema(database: Database, call: Run) -> None:
    database.path.touch()
    done = call("doctor", database.url)
    assert done.returncode == 1
    assert "semel migrate" in done.stdout


def test_the_rows_are_those_of_the_promise() -> None:
    told = [
        tuple(re.sub(r"[`*]", "", cell).strip() for cell in row[:2]) for row in table(page("README.md"), "boundary")
    ]
    assert [(row.boundary, row.promise) for row in promises([])] == told


def test_events_are_promised_only_where_there_is_an_outbox() -> None:
    held = {row.boundary: row for row in promises([], outbox=False)}
    assert held["event in the outbox"].holds is None
    assert {row.boundary: row for row in promises([])}["event in the outbox"].holds
