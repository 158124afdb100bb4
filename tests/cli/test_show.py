"""`semel show` on a real file."""

import json
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from semel import Semel
from semel.cli import main
from semel.cli.app import build_app
from tests.cli.conftest import Database, Run


def test_a_record_is_found_by_a_piece_of_its_reference(database: Database, call: Run) -> None:
    record = database.completed("o-1")
    for length in (8, 12, 64):
        done = call("show", record.reference[:length].upper(), database.url)
        assert done.returncode == 0
        assert record.reference in done.stdout


def test_a_record_is_found_by_its_key(database: Database, call: Run) -> None:
    record = database.completed("o-1")
    done = call("show", "o-1", database.url, "--operation", "charge", "--scope", "acme")
    assert done.returncode == 0
    assert record.reference in done.stdout


def test_the_life_of_a_record_is_shown(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    record = database.with_steps("o-1")
    assert main(["show", record.reference, database.url]) == 0
    shown = capsys.readouterr().out
    for words in (
        "in_doubt",
        "policy hold",
        "claimed",
        "lease over",
        "✔ reserve",
        "Broken",
        "not before it is settled",
    ):
        assert words in shown


def test_a_running_record_shows_its_lease(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    record = database.running("o-1", timedelta(minutes=30))
    assert main(["show", record.reference, database.url]) == 0
    assert "lease until" in capsys.readouterr().out


def test_json_holds_the_steps_and_no_outcome(database: Database) -> None:
    record = database.with_steps("o-1")
    done = CliRunner().invoke(build_app("show"), ["show", record.reference, database.url, "--json"])
    found = json.loads(done.stdout)
    assert found["steps"] == ["reserve"]
    assert found["reference"] == record.reference
    assert "a step's value" not in done.stdout


def test_an_outcome_is_never_shown(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    record = database.completed("o-1", "the secret value")
    assert main(["show", record.reference, database.url]) == 0
    shown = capsys.readouterr().out
    assert "secret value" not in shown
    (nonce,) = database.nonces()
    assert nonce.hex() not in shown


def test_stored_texts_cannot_command_the_terminal(database: Database, run: Run) -> None:
    record = database.in_doubt("o-1")
    done = run("show", record.reference, database.url, FORCE_COLOR="1", COLUMNS="100")
    assert "\x1b[31mred" not in done.stdout
    assert "\\x1b[31mred\\x1b[0m \\x9b2J \\u202eabc [bold]x[/bold]" in done.stdout
    assert "second line" in done.stdout


def test_an_unknown_reference_is_not_found(database: Database, call: Run) -> None:
    database.completed("o-1")
    done = call("show", "0" * 12, database.url)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("semel: not_found: ")
    assert done.stderr.count("\n") == 1


def test_an_unknown_key_is_not_found(database: Database, call: Run) -> None:
    database.completed("o-1")
    done = call("show", "o-1", database.url, "--operation", "charge")
    assert done.returncode == 3
    assert "--scope" in done.stderr


@pytest.mark.parametrize("which", ["o-1", "abcdefg", "abc", "", "0" * 65])
def test_what_can_be_no_reference_is_refused(database: Database, which: str) -> None:
    database.completed("o-1")
    assert main(["show", which, database.url]) == 2


def test_an_ambiguous_reference_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Two digests with eight equal digits cannot be had by trying, so the shortest length is lowered.
    monkeypatch.setattr("semel.cli.lookup.SHORTEST", 1)
    with Semel(database.path) as semel:
        for number in range(17):
            semel.run(f"k-{number}", lambda: None, operation="o", fingerprint=None)
        references = [record.reference for record in semel.records()]
    digit = next(letter for letter in "0123456789abcdef" if sum(name[0] == letter for name in references) > 1)
    assert main(["show", digit, database.url]) == 2
    assert capsys.readouterr().err.startswith(f"semel: ambiguous: {digit} is ambiguous")
