"""`semel cancel`, `release` and `fail`: forms of resolving, which also end a live lease where --force is given."""

from __future__ import annotations

import json
import os
import pty
import select
from datetime import timedelta

import pytest

from semel import Policy, Semel
from semel.errors import FailedBefore
from tests.cli.conftest import Database, Run, command, environment
from tests.processes import child

HOLD = Policy(in_doubt="hold")
# command and what it may be told besides; the note, the status, and whether it may be tried again, as recorded then
FORMS = [
    (["cancel"], ("Cancelled", "cancelled", False)),
    (["release"], ("DidNotHappen", "failed", True)),
    (["fail"], ("Failed", "failed", False)),
    (["fail", "--error", "the bank is gone"], ("Failed", "failed", False)),
    (["resolve", "--cancelled"], ("Cancelled", "cancelled", False)),
    (["resolve", "--failed", "the bank is gone"], ("Failed", "failed", False)),
]
COMMANDS = [form[0] for form in FORMS]


def arguments(form: list[str], which: str, url: str, *more: str) -> list[str]:
    name, *options = form
    return [name, which, url, *options, "--reason", "asked the bank", *more]


@pytest.mark.parametrize(("form", "recorded"), FORMS)
def test_a_doubt_is_ended(database: Database, call: Run, form: list[str], recorded: tuple[str, str, bool]) -> None:
    record = database.in_doubt("o-1")
    done = call(*arguments(form, record.reference, database.url, "--by", "jane", "--yes"))
    assert done.returncode == 0, done.stderr
    ended = database.read("o-1")
    assert ended.note is not None
    assert (ended.note.resolution, ended.status, ended.retryable) == recorded
    assert (ended.note.reason, ended.note.by, ended.note.forced) == ("asked the bank", "jane", False)


@pytest.mark.parametrize("form", COMMANDS)
def test_a_live_lease_is_left_alone_and_force_is_named(database: Database, call: Run, form: list[str]) -> None:
    record = database.running("o-1")
    done = call(*arguments(form, record.reference, database.url, "--yes"))
    assert done.returncode == 2
    assert done.stderr.startswith("semel: not_resolvable: ")
    assert "--force" in done.stderr
    assert database.read("o-1").status == "running"


@pytest.mark.parametrize("form", COMMANDS)
def test_force_ends_a_live_lease_and_show_says_so(database: Database, call: Run, form: list[str]) -> None:
    record = database.running("o-1")
    done = call(*arguments(form, record.reference, database.url, "--force", "--yes"))
    assert done.returncode == 0, done.stderr
    ended = database.read("o-1")
    assert ended.fence == record.fence + 1
    assert "forced: a live lease was ended" in call("show", record.reference, database.url).stdout
    told = json.loads(call("show", record.reference, database.url, "--json").stdout)
    assert told["resolution"]["forced"] is True


@pytest.mark.parametrize("form", COMMANDS)
def test_what_is_completed_is_refused_with_force_too(database: Database, call: Run, form: list[str]) -> None:
    record = database.completed("o-1")
    done = call(*arguments(form, record.reference, database.url, "--force", "--yes"))
    assert done.returncode == 2
    assert database.read("o-1") == record


@pytest.mark.parametrize("form", COMMANDS)
@pytest.mark.parametrize("reason", [[], ["--reason", " "]])
def test_a_decision_needs_a_reason(database: Database, call: Run, form: list[str], reason: list[str]) -> None:
    record = database.in_doubt("o-1")
    name, *options = form
    assert call(name, record.reference, database.url, *options, "--yes", *reason).returncode == 2
    assert database.read("o-1") == record


@pytest.mark.parametrize(
    ("options", "told"), [([], "asked the bank"), (["--error", "the bank is gone"], "the bank is gone")]
)
def test_duplicates_of_what_failed_are_told_why(database: Database, call: Run, options: list[str], told: str) -> None:
    record = database.in_doubt("o-1")
    assert call(*arguments(["fail", *options], record.reference, database.url, "--yes")).returncode == 0
    with Semel(database.path, policy=HOLD) as semel, pytest.raises(FailedBefore) as failed:
        semel.run("o-1", lambda: "ran again", operation="charge", fingerprint=None, scope="acme")
    assert failed.value.error_message == told


def test_the_question_says_what_force_ends(database: Database) -> None:
    record = database.running("o-1", timedelta(minutes=30))
    code, output = on_a_terminal(["cancel", record.reference, database.url, "--reason", "gone", "--force"], "n\n")
    assert code == 1
    assert "A live lease is ended" in output
    assert "attempt 1 runs for" in output
    assert "may still have its effect" in output
    assert database.read("o-1").status == "running"


def test_the_question_about_a_doubt_names_no_lease(database: Database) -> None:
    record = database.in_doubt("o-1")
    code, output = on_a_terminal(["cancel", record.reference, database.url, "--reason", "gone", "--force"], "y\n")
    assert code == 0
    assert "live lease" not in output
    assert database.read("o-1").status == "cancelled"


def on_a_terminal(words: list[str], answer: str) -> tuple[int, str]:
    """The command on a terminal, on which somebody answers its question."""
    controller, terminal = pty.openpty()
    with child(
        command(words),
        env=environment(TERM="xterm", COLUMNS="160"),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        output, answered = "", False
        for _ in range(200):
            if not select.select([controller], [], [], 1)[0]:
                continue
            try:
                output += os.read(controller, 4096).decode(errors="replace")
            except OSError:  # the other end is closed
                break
            if "it so?" in output and not answered:
                os.write(controller, answer.encode())
                answered = True
        os.close(controller)
        return process.wait(60), output
