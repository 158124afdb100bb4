"""Errors at the edge: one line with a code, the right exit code, no traceback, no secret."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from semel import errors
from semel.cli import exit_codes, main
from tests.cli.conftest import Database, Run


def test_without_a_url_the_error_names_the_variable(call: Run) -> None:
    for name in ("list", "sweep", "migrate"):
        done = call(name)
        assert done.returncode == 2
        assert "SEMEL_URL" in done.stderr


def test_a_mistyped_path_is_not_made_into_a_database(call: Run, tmp_path: Path) -> None:
    done = call("list", "sqlite:///typo.db")
    assert done.returncode == 3
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_one_line(call: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but long enough to be read as one " * 50)
    done = call("list", "notes.txt")
    assert done.returncode == 1
    assert done.stderr.startswith("semel: record_unreadable: ")
    assert done.stderr.count("\n") == 1


def test_a_locked_database_says_try_later(database: Database, call: Run) -> None:
    record = database.in_doubt("o-1")
    other = sqlite3.connect(database.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        url = f"{database.url}?busy_for=0.2"
        done = call("resolve", record.reference, url, "--cancelled", "--reason", "x", "--yes")
    finally:
        other.close()
    assert done.returncode == 75
    assert done.stderr.startswith("semel: store_unavailable: ")


def test_a_password_in_a_url_is_not_printed(call: Run) -> None:
    done = call("list", "postgresql://user:hunter2@127.0.0.1:1/db?connect_timeout=2")
    assert done.returncode == 75
    assert "hunter2" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["attention"],
        ["bulk", "--action", "cancel", "--status", "in_doubt", "--reason", "x", "--dry-run"],
        ["events", "discard", "billing", "--all", "--reason", "x", "--dry-run"],
    ],
)
def test_commands_that_act_as_the_server_does_say_try_later_too(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEMEL_URL", "postgresql://a@127.0.0.1:1/db?connect_timeout=2")
    assert main(arguments) == 75
    assert capsys.readouterr().err.startswith("semel: store_unavailable: ")


def test_an_entry_that_does_not_exist_is_not_found(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    database.completed("o-1")
    assert main(["audit", "redact", "17", database.url, "--reason", "x"]) == 3
    assert "entry 17" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nonsense"], ["list", "--bogus"], ["show"], ["list", "x", "--limit", "many"]])
def test_a_wrong_command_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("semel: usage: ")
    assert complaint.count("\n") == 1


def test_a_line_of_error_cannot_command_the_terminal(call: Run, database: Database) -> None:
    database.completed("o-1")
    done = call("show", "\x1b[31mx", database.url)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr


def test_semel_alone_shows_the_help(call: Run) -> None:
    done = call()
    assert done.returncode == 2
    assert done.stderr == ""
    for name in ("list", "show", "resolve", "migrate", "sweep", "demo", "verify", "Exit codes", "75 try later"):
        assert name in done.stdout


def test_both_modules_are_the_command(run: Run) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "semel.cli", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == run("--version").stdout
    assert done.stdout.startswith("semel ")


def test_a_command_that_is_named_is_imported_alone() -> None:
    program = (
        "import sys; from semel.cli import main; code = main(['doctor', 'memory://']); "
        "print(code, *(name for name in sys.modules if name.startswith(('semel.cli.commands.', 'semel_lab'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["2", "semel.cli.commands.doctor"]


@pytest.mark.parametrize("before", [["--settings", "list"], ["--settings=list"]])
def test_the_word_after_the_settings_file_is_the_command(call: Run, before: list[str]) -> None:
    done = call(*before, "show", "--no-such")
    assert done.returncode == 2
    assert "No such option" in done.stderr
    assert done.stderr.rstrip().endswith("Try: semel show --help")


def test_a_missing_extra_is_named(call: Run, tmp_path: Path) -> None:
    program = "import sys; sys.modules['typer'] = None; from semel.cli import main; sys.exit(main(['list']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "semel[cli]" in done.stderr


def all_errors(kind: type[errors.SemelError]) -> list[type[errors.SemelError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in all_errors(below))]


@pytest.mark.parametrize("kind", [kind for kind in all_errors(errors.SemelError) if kind.__module__ == "semel.errors"])
def test_every_error_of_the_tree_has_an_exit_code(kind: type[errors.SemelError]) -> None:
    error = kind("it failed", reference="x") if issubclass(kind, errors.InDoubt) else kind("it failed")
    expected = (
        3
        if isinstance(error, errors.RecordNotFound)
        else 2
        if isinstance(error, errors.UsageError | errors.StoreMisconfigured)
        else 75
        if isinstance(error, errors.TryLater)
        else 4
        if isinstance(error, errors.InDoubt)
        else 1
    )
    assert exit_codes.exit_code(error) == expected


def test_a_fault_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch, database: Database) -> None:
    database.completed("o-1")
    monkeypatch.setattr("semel.cli.commands.list.now", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["list", database.url])


@pytest.mark.parametrize(
    ("arguments", "helps"),
    [
        (["resolve"], "semel resolve --help"),
        (["resolve", "abcdef12", "--happend", "1"], "semel resolve --help"),
        (["list", "--limit", "many"], "semel list --help"),
        (["lst"], "semel --help"),
    ],
)
def test_a_mistyped_command_names_its_own_help(call: Run, arguments: list[str], helps: str) -> None:
    done = call(*arguments)
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith(f"Try: {helps}")


@pytest.mark.parametrize("command", [["show"], ["resolve", "--cancelled", "--reason", "x"], ["erase", "--reason", "x"]])
def test_a_url_in_the_place_of_the_record_is_explained(call: Run, database: Database, command: list[str]) -> None:
    database.completed("o-1")
    done = call(*command, database.url)
    assert done.returncode == 2
    assert "A record has to be named before the database" in done.stderr
    assert f"semel list {database.url}" in done.stderr
