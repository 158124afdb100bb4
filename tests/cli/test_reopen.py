"""`semel reopen` on a real file."""

from __future__ import annotations

import pytest

from semel import Policy, Semel
from tests.cli.conftest import Broken, Database, Run

FINAL = Policy(final_errors=(Broken,))


def answer(database: Database) -> object:
    with Semel(database.path) as semel:
        return semel.run("o-1", lambda: "ran again", operation="charge", fingerprint=None, scope="acme").value


def test_what_failed_for_good_runs_again(database: Database, run: Run) -> None:
    record = database.failed("o-1", FINAL)
    done = run("reopen", record.reference[:8], database.url, "--reason", "our fault", "--by", "jane", "--yes")
    assert done.returncode == 0, done.stderr
    assert "Reopened  by jane" in done.stdout
    assert answer(database) == "ran again"


def test_what_was_cancelled_runs_again(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    named = (record.reference, database.url, "--reason", "no", "--yes")
    assert call("cancel", *named).returncode == 0
    assert call("reopen", *named).returncode == 0
    assert database.read("o-1").attempts == 0


@pytest.mark.parametrize("kind", ["completed", "running", "in_doubt"])
def test_nothing_else_is_reopened(database: Database, call: Run, kind: str) -> None:
    record = getattr(database, kind)("o-1")
    done = call("reopen", record.reference, database.url, "--reason", "x", "--yes")
    assert done.returncode == 2
    assert done.stderr.startswith("semel: not_resolvable: ")
    assert kind in done.stderr
    assert database.read("o-1").status == kind


def test_what_was_erased_is_not_reopened(database: Database, call: Run) -> None:
    record = database.failed("o-1", FINAL)
    assert call("erase", record.reference, database.url, "--reason", "x", "--yes").returncode == 0
    done = call("reopen", record.reference, database.url, "--reason", "x", "--yes")
    assert done.returncode == 2
    assert "was erased" in done.stderr


def test_a_record_that_is_not_there_is_not_found(database: Database, call: Run) -> None:
    database.completed("o-1")
    named = ("--operation", "charge", "--scope", "acme")
    assert call("reopen", "o-2", database.url, *named, "--reason", "x", "--yes").returncode == 3


@pytest.mark.parametrize("reason", [[], ["--reason", ""], ["--reason", "  "]])
def test_it_needs_a_reason(database: Database, call: Run, reason: list[str]) -> None:
    record = database.failed("o-1", FINAL)
    assert call("reopen", record.reference, database.url, "--yes", *reason).returncode == 2
    assert database.read("o-1") == record


def test_without_a_terminal_and_yes_nothing_is_changed(database: Database, call: Run) -> None:
    record = database.failed("o-1", FINAL)
    done = call("reopen", record.reference, database.url, "--reason", "no")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert database.read("o-1") == record
