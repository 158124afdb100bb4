"""`semel batch start`, `run`, `status`, `pause`, `resume`, `retry`, `cancel` and `results`, on a real file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from semel import Semel
from semel.batch import Batches, Item
from semel.cli.commands.batch.view import MOST_FAILURES, FailureClass, failure_table
from tests.cli.conftest import NASTY, Database, Run

FUNCTIONS = """
import sqlite3
from semel.batch import Item, Skip


def pay(item: Item) -> str:
    if item.data["n"] == 1:
        raise OSError("no route to the bank")
    if item.data["n"] == 2:
        raise Skip("nothing to pay")
    return f"paid {item.id}"


async def pay_awaited(item: Item) -> str:
    return pay(item)


def write(item: Item, session) -> None:
    session.execute("INSERT INTO paid VALUES (?)", (item.id,))


def begin():
    return sqlite3.connect("semel.db")


number = 7
"""


@pytest.fixture
def place(database: Database, tmp_path: Path) -> Database:
    """A database with a schema, a module with functions, and a file with five items."""
    with Semel(database.url) as semel:
        semel.read("nothing", operation="pay")
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    lines = "".join(json.dumps({"id": f"i{n}", "n": n}) + "\n" for n in range(5))
    (tmp_path / "items.jsonl").write_text(lines)
    return database


def start(call: Run, place: Database, *more: str, id_: str = "b", file: str = "items.jsonl") -> Any:
    return call("batch", "start", file, place.url, "--id", id_, "--operation", "pay", "--item-id", "id", *more)


def test_items_are_about_whom_a_column_says(call: Run, place: Database, tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("id,customer\ni0,ann\ni1,\ni2,bob\n")
    loaded = start(call, place, "--subject", "customer", file="items.csv")
    assert loaded.returncode == 0, loaded.stderr
    with Semel(place.url) as semel:
        Batches(semel).get("b").run(lambda item: item.data["customer"])
        assert (Batches(semel).erase(subject="ann", reason="asked to")).erased == 1
        assert [result.value for result in Batches(semel).get("b").results()] == [None, "", "bob"]


def test_a_line_without_the_column_that_items_are_about_is_told(call: Run, place: Database) -> None:
    refused = start(call, place, "--subject", "customer")
    assert refused.returncode == 2
    assert "items.jsonl:1: there is no customer" in refused.stderr


def test_a_file_is_loaded_and_nothing_runs(place: Database, call: Run) -> None:
    done = start(call, place)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["b: 5 items, pending.", "Next: semel batch run MODULE:FUNCTION b"]
    told = json.loads(start(call, place, "--json").stdout)
    assert (told["total"], told["state"], told["completed"]) == (5, "pending", 0)


def test_every_line_that_cannot_be_loaded_is_told_with_its_number(place: Database, call: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "a"}\nnot json\n{"id": "b"}\n{"n": 1}\n{"id": "a"}\n')
    done = start(call, place, file="bad.jsonl")
    assert done.returncode == 2
    assert [line.split(" ")[0] for line in done.stderr.splitlines()] == [
        "bad.jsonl:2:",
        "bad.jsonl:4:",
        "bad.jsonl:5:",
        "semel:",
    ]
    assert "batch_invalid: 3 lines cannot be loaded, so no item runs." in done.stderr
    told = start(call, place, "--json", file="bad.jsonl").stdout
    assert [json.loads(line)["line"] for line in told.splitlines()] == [2, 4, 5]


def test_a_file_of_csv_is_loaded_with_what_was_noted_of_it(place: Database, call: Run, tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("id,n\na,1\nb,2\n")
    done = start(call, place, "--metadata", '{"by": "ann"}', "--json", file="items.csv")
    told = json.loads(done.stdout)
    assert (told["total"], told["metadata"]) == (2, {"by": "ann"})
    assert start(call, place, "--metadata", "{", file="items.csv").returncode == 2


def test_a_batch_of_other_items_is_refused_with_a_sample_of_the_difference(
    place: Database, call: Run, tmp_path: Path
) -> None:
    start(call, place)
    (tmp_path / "items.jsonl").write_text('{"id": "i0", "n": 7}\n')
    done = start(call, place)
    assert done.returncode == 2
    assert "batch_changed" in done.stderr
    assert "i0" in done.stderr


def test_a_file_or_a_batch_that_is_not_there_is_exit_code_3(place: Database, call: Run) -> None:
    assert start(call, place, file="none.jsonl").returncode == 3
    for words in (["status", "b"], ["pause", "b"], ["results", "b"], ["run", "functions:pay", "b"]):
        done = call("batch", *words, place.url)
        assert done.returncode == 3, words
        assert "no batch 'b'" in done.stderr


@pytest.mark.parametrize("function", ["pay", "pay_awaited"])
def test_a_run_tells_its_counts_and_failures_by_class(place: Database, call: Run, function: str) -> None:
    start(call, place)
    done = call("batch", "run", f"functions:{function}", "b", place.url)
    assert done.returncode == 1, "an item failed"
    last, *failures = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    assert last.startswith("state completed  completed 3  failed 1  skipped 1  in doubt 0  remaining 0")
    assert failures[-1].split() == ["builtins.OSError", "1", "i1:", "no", "route", "to", "the", "bank"]


def test_a_run_without_failures_is_exit_code_0_and_told_as_json(place: Database, call: Run, tmp_path: Path) -> None:
    (tmp_path / "items.jsonl").write_text('{"id": "a", "n": 7}\n')
    start(call, place)
    done = call("batch", "run", "functions:pay", "b", place.url, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[-1])["completed"] == 1


def test_a_run_of_a_batch_that_is_not_loaded_to_its_end_is_no_success(place: Database, call: Run) -> None:
    def items() -> Iterator[dict[str, Any]]:
        yield from ({"id": f"i{n}"} for n in range(5000))
        raise ConnectionError

    with Semel(place.url) as semel, pytest.raises(ConnectionError):
        Batches(semel).start("b", items(), operation="pay", item_id="id")
    done = call("batch", "run", "functions:pay", "b", place.url)
    assert (done.returncode, done.stdout.startswith("state loading  completed 0")) == (1, True), done.stdout


def test_effects_commit_with_their_records_in_the_transaction_that_is_named(place: Database, call: Run) -> None:
    start(call, place)
    with closing(sqlite3.connect(place.path)) as connection:
        connection.execute("CREATE TABLE paid (item text)")
        words = ("--transaction", "functions:begin", "--commit", "page", "--concurrency", "1")
        done = call("batch", "run", "functions:write", "b", place.url, *words)
        assert done.returncode == 0, done.stderr
        assert connection.execute("SELECT count(*) FROM paid").fetchone() == (5,)


def test_what_cannot_be_run_is_refused(place: Database, call: Run) -> None:
    start(call, place)
    for words, said in (
        (["functions:number", "b"], "is a int, not a function"),
        (["functions:none", "b"], "has no none"),
        (["functions:pay", "b", place.url, "--in-doubt", "guess"], "--in-doubt is rerun or hold"),
        (["functions:pay", "b", place.url, "--max-failed", "some"], "max_failed is a number"),
    ):
        done = call("batch", "run", *words)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_too_many_failures_pause_the_batch_and_are_told(place: Database, call: Run) -> None:
    start(call, place)
    done = call(
        "batch", "run", "functions:pay", "b", place.url, "--max-failed", "0", "--concurrency", "1", "--page", "1"
    )
    assert done.returncode == 1
    shown = call("batch", "status", "b", place.url)
    assert "paused" in shown.stdout
    assert "reason: 1 items failed, more than max_failed=0" in shown.stdout


def test_the_status_shows_a_bar_counts_and_failures_by_class(place: Database, call: Run) -> None:
    start(call, place)
    call("batch", "run", "functions:pay", "b", place.url)
    lines = call("batch", "status", "b", place.url, COLUMNS="100").stdout.splitlines()
    assert lines[0].startswith("b  pay  completed  began ")
    assert lines[1].split("━")[-1].split() == ["5", "of", "5", "100", "%"]
    assert lines[2] == "completed 3  failed 1  skipped 1  in doubt 0  remaining 0"
    assert any("builtins.OSError" in line and "i1: no route" in line for line in lines)
    told = json.loads(call("batch", "status", "b", place.url, "--json").stdout)
    assert told["failures"] == [
        {"type": "builtins.OSError", "count": 1, "item": "i1", "message": "no route to the bank"}
    ]


@pytest.mark.parametrize(("count", "is_told"), [(MOST_FAILURES - 1, False), (MOST_FAILURES, True)])
def test_that_not_all_failures_were_looked_at_is_told(count: int, is_told: bool) -> None:
    out = Console(file=StringIO(), width=100, record=True)
    out.print(failure_table([FailureClass("builtins.OSError", count, "i1", "no route")]))
    assert ("these are the first 10,000" in out.export_text()) is is_told


def test_all_batches_are_listed_by_state(place: Database, call: Run) -> None:
    start(call, place)
    start(call, place, id_="other")
    call("batch", "cancel", "other", place.url, "--reason", "wrong file", "--yes")
    shown = call("batch", "status", place.url, COLUMNS="100")
    assert shown.returncode == 0
    rows = [line.split()[:3] for line in shown.stdout.splitlines() if " pay " in line]
    assert rows == [["b", "pay", "pending"], ["other", "pay", "cancelled"]]
    told = call("batch", "status", place.url, "--state", "pending", "--json").stdout
    assert [json.loads(line)["id"] for line in told.splitlines()] == ["b"]
    assert call("batch", "status", place.url, "--state", "odd").returncode == 2


def test_a_place_without_batches_says_so(place: Database, call: Run) -> None:
    assert call("batch", "status", place.url).stdout.strip() == "There are no batches."


def test_batches_of_another_scope_are_not_seen(place: Database, call: Run) -> None:
    start(call, place, "--scope", "acme")
    assert call("batch", "status", "b", place.url).returncode == 3
    assert call("batch", "status", "b", place.url, "--scope", "acme").returncode == 0


def test_a_batch_is_paused_and_resumed(place: Database, call: Run) -> None:
    start(call, place)
    paused = json.loads(call("batch", "pause", "b", place.url, "--reason", "look", "--json").stdout)
    assert (paused["state"], paused["reason"]) == ("paused", "look")
    assert call("batch", "run", "functions:pay", "b", place.url).returncode == 1
    assert "pending" in call("batch", "resume", "b", place.url).stdout
    assert json.loads(call("batch", "status", "b", place.url, "--json").stdout)["completed"] == 0


def test_to_cancel_asks_first_and_is_for_good(place: Database, call: Run) -> None:
    start(call, place)
    asked = call("batch", "cancel", "b", place.url, "--reason", "wrong file")
    assert (asked.returncode, "no terminal to ask on" in asked.stderr) == (2, True)
    assert call("batch", "cancel", "b", place.url, "--reason", " ", "--yes").returncode == 2
    done = call("batch", "cancel", "b", place.url, "--reason", "wrong file", "--yes", "--json")
    assert json.loads(done.stdout)["state"] == "cancelled"
    assert call("batch", "resume", "b", place.url).returncode == 2


def test_failed_items_run_again_after_a_retry(place: Database, call: Run) -> None:
    start(call, place)
    call("batch", "run", "functions:pay", "b", place.url)
    done = call("batch", "retry", "b", "failed", place.url)
    assert done.stdout.splitlines()[0] == "1 items run again."
    told = json.loads(call("batch", "status", "b", place.url, "--json").stdout)
    assert (told["state"], told["remaining"], told["failed"]) == ("running", 1, 0)


def test_to_retry_what_is_in_doubt_needs_a_reason_and_a_yes(place: Database, call: Run) -> None:
    start(call, place)
    leave_in_doubt(place)
    assert call("batch", "status", "b", place.url).returncode == 4
    assert "--reason is empty" in call("batch", "retry", "b", "in_doubt", place.url, "--yes").stderr
    assert "no terminal" in call("batch", "retry", "b", "in_doubt", place.url, "--reason", "seen").stderr
    done = call("batch", "retry", "b", "in_doubt", place.url, "--reason", "seen", "--yes", "--json")
    assert json.loads(done.stdout)["retried"] == 1
    assert call("batch", "retry", "b", "odd", place.url).returncode == 2


def leave_in_doubt(place: Database) -> None:
    """Run the batch so that nobody sees the end of its first item."""

    def vanish(item: Item) -> None:
        if item.id == "i0":
            raise GeneratorExit

    with Semel(place.url) as semel, pytest.raises(GeneratorExit):
        Batches(semel).get("b").run(vanish, in_doubt="hold", concurrency=1)
    with Semel(place.url) as semel:
        Batches(semel).get("b").run(lambda: None, in_doubt="hold", concurrency=1)


def test_results_are_lines_that_can_be_gone_on_with(place: Database, call: Run) -> None:
    start(call, place)
    call("batch", "run", "functions:pay", "b", place.url)
    lines = [json.loads(line) for line in call("batch", "results", "b", place.url).stdout.splitlines()]
    assert [(line["position"], line["status"]) for line in lines] == [
        (0, "completed"),
        (1, "failed"),
        (2, "skipped"),
        (3, "completed"),
        (4, "completed"),
    ]
    assert lines[0]["value"] == "paid i0"
    assert lines[1]["error"] == {"type": "builtins.OSError", "message": "no route to the bank"}
    further = call("batch", "results", "b", place.url, "--after", "2", "--limit", "1").stdout.splitlines()
    assert [json.loads(line)["id"] for line in further] == ["i3"]
    failed = call("batch", "results", "b", place.url, "--status", "failed").stdout.splitlines()
    assert [json.loads(line)["id"] for line in failed] == ["i1"]
    assert call("batch", "results", "b", place.url, "--status", "odd").returncode == 2


def test_stored_texts_cannot_reach_the_terminal_as_anything_but_text(place: Database, call: Run) -> None:
    start(call, place)
    call("batch", "pause", "b", place.url, "--reason", NASTY)
    for words in (["status", "b"], ["status", "b", "--json"]):
        shown = call("batch", *words, place.url).stdout
        assert "\x1b[31m" not in shown
        assert "\u202e" not in shown
