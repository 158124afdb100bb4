"""`semel history`, and the history in `semel show`, on a real file."""

import json
import os
import socket

from typer.testing import CliRunner

from semel import Policy, Semel
from semel.cli.app import build_app
from semel.core.record import Record
from tests.cli.conftest import Database, Run

PLACE = ("--operation", "charge", "--scope", "acme")


def _tried_twice(database: Database) -> Record:
    """A record whose first attempt failed, and whose second one completed."""

    def broken() -> str:
        message = "\x1b[31mno route to the bank"
        raise OSError(message)

    with Semel(database.url, policy=Policy(retry_errors=(OSError,))) as semel:
        try:
            semel.run("o-1", broken, operation="charge", scope="acme", fingerprint=None)
        except OSError:
            semel.run("o-1", lambda: "secret value", operation="charge", scope="acme", fingerprint=None)
        record = semel.read("o-1", operation="charge", scope="acme")
    assert record is not None
    return record


def test_the_history_of_a_record_is_a_table_of_its_attempts(database: Database, call: Run) -> None:
    _tried_twice(database)
    done = call("history", "o-1", database.url, *PLACE, COLUMNS="160")
    assert done.returncode == 0
    for words in (
        "attempt 1",
        "retryable",
        "OSError",
        "no route to the bank",
        "attempt 2",
        "completed",
        str(os.getpid()),
    ):
        assert words in done.stdout
    assert "\x1b[31m" not in done.stdout


def test_the_history_as_json_is_one_object_per_entry(database: Database) -> None:
    record = _tried_twice(database)
    done = CliRunner().invoke(build_app("history"), ["history", record.reference, database.url, "--json"])
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert (first["kind"], first["number"], first["ending"]) == ("attempt", 1, "retryable")
    assert first["error"]["message"] == "\x1b[31mno route to the bank"
    assert (second["number"], second["ending"], second["error"]) == (2, "completed", None)
    assert second["holder"]["host"] == socket.gethostname()
    assert second["started"] <= second["ended"]


def test_a_record_is_shown_with_its_history(database: Database, call: Run) -> None:
    record = _tried_twice(database)
    done = call("show", record.reference, database.url, COLUMNS="160")
    assert "history" in done.stdout
    assert "no route to the bank" in done.stdout
    assert "secret value" not in done.stdout


def test_a_record_as_json_has_its_history(database: Database) -> None:
    record = _tried_twice(database)
    done = CliRunner().invoke(build_app("show"), ["show", record.reference, database.url, "--json"])
    assert [entry["ending"] for entry in json.loads(done.stdout)["history"]] == ["retryable", "completed"]


def test_an_entry_without_a_known_holder_says_so(database: Database, call: Run) -> None:
    record = database.running("o-1")
    done = call("history", record.reference, database.url)
    assert "unknown" in done.stdout


def test_the_history_of_an_unknown_key_is_not_found(database: Database, call: Run) -> None:
    database.completed("o-1")
    done = call("history", "o-2", database.url, *PLACE)
    assert done.returncode == 3
