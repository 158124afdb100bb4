"""`semel list` on a real file."""

import json
import subprocess

import pytest
from typer.testing import CliRunner

from semel import Policy, Semel
from semel.cli import main
from semel.cli.app import build_app
from semel.cli.commands.list import fitted
from tests.cli.conftest import NASTY, Broken, Database, Run, command, environment
from tests.processes import child


def objects(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def keys(output: str) -> list[object]:
    return [found["key"] for found in objects(output)]


@pytest.fixture
def filled(database: Database) -> Database:
    database.completed("o-1")
    database.in_doubt("o-2")
    database.failed("o-3", Policy(retry_errors=(Broken,)))
    database.failed("o-4", Policy(final_errors=(Broken,)))
    database.running("o-5")
    return database


def test_every_record_is_on_a_line_of_its_own_in_a_pipe(filled: Database, run: Run) -> None:
    done = run("list", filled.url)
    assert done.returncode == 0
    assert done.stderr == ""
    rows = done.stdout.splitlines()
    expected = {
        "o-1": "completed",
        "o-2": "in_doubt",
        "o-3": "failed retryable",
        "o-4": "failed",
        "o-5": "running",
    }
    for key, status in expected.items():
        [row] = [row for row in rows if key in row.split()]
        assert status in row
        assert filled.read(key).reference[:12] in row


def test_newest_first_turns_the_order_round(filled: Database, call: Run) -> None:
    assert keys(call("list", filled.url, "--json", "--newest").stdout) == ["o-5", "o-4", "o-3", "o-2", "o-1"]


def test_json_is_one_object_per_line_and_never_holds_an_outcome(filled: Database, call: Run) -> None:
    done = call("list", filled.url, "--json")
    found = objects(done.stdout)
    assert [item["key"] for item in found] == ["o-1", "o-2", "o-3", "o-4", "o-5"]
    assert found[0]["scope"] == "acme"
    assert found[0]["status"] == "completed"
    assert found[0]["about"]["business_key"] == "inv-1"  # type: ignore[index]
    assert found[1]["error"] == {"type": "tests.cli.conftest.Broken", "message": NASTY}
    assert found[1]["expires_at"] is None
    assert "secret value" not in done.stdout
    record = filled.read("o-1")
    for hidden in (*filled.nonces(), record.fingerprint, record.outcome or b""):
        assert hidden.hex() not in done.stdout


def test_json_is_safe_to_show_on_a_terminal(filled: Database, call: Run) -> None:
    assert call("list", filled.url, "--json").stdout.isascii()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--status", "in_doubt"], ["o-2"]),
        (["--status", "running"], ["o-5"]),
        (["--operation", "charge"], ["o-1", "o-2", "o-3", "o-4", "o-5"]),
        (["--operation", "refund"], []),
        (["--scope", "acme", "--limit", "2"], ["o-1", "o-2"]),
        (["--scope", ""], []),
        (["--business-key", "inv-1"], ["o-1"]),
        (["--process", "p-1"], ["o-5"]),
        (["--before", "1h"], []),
        (["--after", "1h", "--status", "failed"], ["o-3", "o-4"]),
        (["--after", "2100-01-01"], []),
        (["--before", "2100-01-01T00:00Z", "--status", "completed"], ["o-1"]),
    ],
)
def test_a_listing_can_be_narrowed(filled: Database, options: list[str], expected: list[str]) -> None:
    done = CliRunner().invoke(build_app("list"), ["list", filled.url, "--json", *options])
    assert done.exit_code == 0
    assert keys(done.stdout) == expected


def test_the_url_comes_from_the_environment(filled: Database, call: Run) -> None:
    assert keys(call("list", "--json", SEMEL_URL=filled.url).stdout) == ["o-1", "o-2", "o-3", "o-4", "o-5"]


def test_a_path_will_do(filled: Database, call: Run) -> None:
    assert len(keys(call("list", filled.path.name, "--json").stdout)) == 5


def test_a_cut_listing_says_so(filled: Database, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", filled.url, "--limit", "2"]) == 0
    assert "more than these 2" in capsys.readouterr().out
    assert main(["list", filled.url, "--limit", "5"]) == 0
    assert "more than" not in capsys.readouterr().out


def test_an_empty_listing_says_so(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    main(["migrate", database.url])
    capsys.readouterr()
    assert main(["list", database.url]) == 0
    assert capsys.readouterr().out.strip() == "No records."


@pytest.mark.parametrize("columns", ["60", "80", "119", "200"])
def test_a_table_never_breaks_out_of_the_terminal(filled: Database, call: Run, columns: str) -> None:
    filled.completed("a-very-long-key " * 15)
    done = call("list", filled.url, COLUMNS=columns)
    assert max(map(len, done.stdout.splitlines())) <= int(columns)
    for word in ("completed", "in_doubt", "hold", "expires", "attempts"):
        assert word in done.stdout


def test_records_of_many_pages_are_all_listed(database: Database, call: Run) -> None:
    with Semel(database.path) as semel:
        for number in range(450):
            semel.run(f"k-{number}", lambda: None, operation="o", fingerprint=None)
    assert len(keys(call("list", database.url, "--json").stdout)) == 450


def test_a_reader_that_ends_early_is_no_error(filled: Database) -> None:
    with child(
        command(["list", filled.url, "--json"]),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_widths_are_cut_from_the_largest() -> None:
    assert fitted([5, 6, 7], 30) == [5, 6, 7]
    assert fitted([5, 100, 100], 30) == [5, 12, 12]
    assert fitted([50, 100, 100], 30) == [10, 10, 10]
    assert fitted([2, 9, 100], 30) == [2, 9, 19]
