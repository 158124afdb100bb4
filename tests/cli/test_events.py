"""`semel events`: what a consumer takes, and what it could not process, on a real file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from semel import Semel
from semel.batch import Batches
from semel.events import Consumer, Event
from tests.cli.conftest import NASTY, Database, Run

ALL = ("--because", "the bank is back", "--yes")
MODULE = """
from pathlib import Path

from semel import {engine}
from semel.events import Consumer, Event

semel = {engine}("{url}")
consumer = Consumer(semel, "billing", max_attempts=1)


@consumer.on("invoice.sent", "invoice.paid")
{prefix}def book(event: Event, data: dict[str, int]) -> None:
    if not Path("mended").exists():
        raise OSError("no route to the ledger")
    with Path("booked").open("a") as book:
        book.write(event.id + "\\n")
"""


@pytest.fixture(autouse=True)
def forget_module() -> Iterator[None]:
    yield
    sys.modules.pop("billing", None)


def write_module(folder: Path, database: Database, *, is_async: bool) -> None:
    engine, prefix = ("AsyncSemel", "async ") if is_async else ("Semel", "")
    (folder / "billing.py").write_text(MODULE.format(engine=engine, prefix=prefix, url=database.url))


def fail_events(database: Database, *ids: str) -> list[str]:
    """Dead letters of events with these ids; gives the ids of the letters."""

    def broken(event: Event) -> None:
        raise OSError(NASTY)

    with Semel(database.url) as semel:
        consumer = Consumer(semel, "billing", max_attempts=1)
        consumer.on("invoice.sent")(broken)
        for id_ in ids:
            consumer.handle(Event(id=id_, type="invoice.sent", source="/shop", subject="c-7", data={"cents": 5}))
        return [letter.id for letter in consumer.dead_letters()]


def test_the_types_of_a_consumer_are_a_table_with_its_functions(database: Database, call: Run, tmp_path: Path) -> None:
    write_module(tmp_path, database, is_async=False)
    done = call("events", "types", "billing:consumer", COLUMNS="120")
    assert done.returncode == 0
    for words in ("consumer billing", "invoice.paid", "invoice.sent", "billing.book", "dict[str, int]"):
        assert words in done.stdout


def test_what_is_no_consumer_is_refused(database: Database, call: Run, tmp_path: Path) -> None:
    write_module(tmp_path, database, is_async=False)
    done = call("events", "types", "billing:semel")
    assert done.returncode == 2
    assert "is a Semel, not a Consumer; nothing was done" in done.stderr


def test_dead_letters_are_listed_without_what_is_in_their_events(database: Database, call: Run) -> None:
    (letter,) = fail_events(database, "e-1")
    done = call("events", "dead", "billing", database.url, COLUMNS="200")
    assert done.returncode == 4
    for words in (letter[:12], "invoice.sent", "c-7", "exhausted", "OSError"):
        assert words in done.stdout
    assert "cents" not in done.stdout
    assert "\x1b" not in done.stdout


def test_dead_letters_as_json_hold_the_event(database: Database, call: Run) -> None:
    (letter,) = fail_events(database, "e-1")
    done = call("events", "dead", "billing", database.url, "--json")
    (line,) = done.stdout.splitlines()
    shown = json.loads(line)
    assert (shown["id"], shown["reason"], shown["seen"]) == (letter, "exhausted", 1)
    assert shown["event"]["data"] == {"cents": 5}


def test_a_consumer_without_dead_letters_says_so(database: Database, call: Run) -> None:
    fail_events(database, "e-1")
    done = call("events", "dead", "shipping", database.url)
    assert (done.returncode, done.stdout.strip()) == (0, "No dead letters.")


def test_whoever_names_the_object_and_not_the_consumer_is_told_so(database: Database, call: Run) -> None:
    fail_events(database, "e-1")
    done = call("events", "dead", "billing:consumer", database.url)
    assert (done.returncode, done.stdout.strip()) == (0, "No dead letters.")
    assert done.stderr == "billing:consumer is taken for the name that Consumer(…) was given, not for MODULE:CONSUMER\n"


def test_dead_letters_are_chosen_by_what_they_are(database: Database, call: Run) -> None:
    fail_events(database, "e-1", "e-2")
    for option, value in (("--reason", "rejected"), ("--type", "other"), ("--subject", "c-8"), ("--before", "1h")):
        assert call("events", "dead", "billing", database.url, option, value).returncode == 0, option
    assert call("events", "dead", "billing", database.url, "--subject", "c-7", "--json").stdout.count("\n") == 2


def test_a_reason_that_does_not_exist_is_refused_with_those_that_do(database: Database, call: Run) -> None:
    fail_events(database, "e-1")
    done = call("events", "dead", "billing", database.url, "--reason", "sad")
    assert done.returncode == 2
    assert "rejected, exhausted, reused, invalid, unknown_type, in_doubt" in done.stderr


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "loop"])
def test_redriven_letters_run_their_handler_once_and_are_gone(
    database: Database, call: Run, tmp_path: Path, *, is_async: bool
) -> None:
    fail_events(database, "e-1", "e-2")
    write_module(tmp_path, database, is_async=is_async)
    (tmp_path / "mended").touch()
    done = call("events", "redrive", "billing:consumer", *ALL, "--id", "b")
    assert done.returncode == 0, done.stderr
    assert "2 done, 0 refused, 0 failed" in done.stdout
    assert sorted((tmp_path / "booked").read_text().split()) == ["e-1", "e-2"]
    assert call("events", "dead", "billing", database.url).returncode == 0
    with Semel(database.url) as semel:
        status = Batches(semel).get("b").status()
    assert (status.operation, status.state, status.completed) == ("semel:bulk", "completed", 2)
    again = call("events", "redrive", "billing:consumer", *ALL, "--id", "b")
    assert "2 done" in again.stdout, "the same one, which is over"


def test_letters_are_redriven_one_after_the_other_and_the_oldest_first(
    database: Database, call: Run, tmp_path: Path
) -> None:
    ids = [f"e-{number}" for number in range(12)]
    fail_events(database, *ids)
    write_module(tmp_path, database, is_async=False)
    (tmp_path / "mended").touch()
    assert call("events", "redrive", "billing:consumer", *ALL).returncode == 0
    assert (tmp_path / "booked").read_text().split() == ids


@pytest.mark.parametrize(("before", "code"), [("2000-01-01T00:00", "0 match"), ("2100-01-01T00:00", "1 done")])
def test_letters_are_redriven_that_were_dead_before(
    database: Database, call: Run, tmp_path: Path, before: str, code: str
) -> None:
    fail_events(database, "e-1")
    write_module(tmp_path, database, is_async=False)
    (tmp_path / "mended").touch()
    assert code in call("events", "redrive", "billing:consumer", *ALL, "--before", before).stdout


def test_letters_older_than_an_age_are_the_same_ones_when_the_command_runs_again_later(
    database: Database, call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_events(database, "e-1")
    write_module(tmp_path, database, is_async=False)
    (tmp_path / "mended").touch()
    began = datetime.now(UTC)
    for hours in (3, 9):
        monkeypatch.setattr("semel.cli.timefmt.now", lambda hours=hours: began + timedelta(hours=hours))
        done = call("events", "redrive", "billing:consumer", *ALL, "--before", "2h", "--id", "b")
        assert "1 done, 0 refused, 0 failed" in done.stdout, done.stderr
    assert (tmp_path / "booked").read_text().split() == ["e-1"]
    other = call("events", "redrive", "billing:consumer", *ALL, "--before", "1h", "--id", "b")
    assert (other.returncode == 0, "another bulk action" in other.stderr) == (False, True)


def test_without_batches_letters_are_handed_over_in_a_loop(database: Database, call: Run, tmp_path: Path) -> None:
    fail_events(database, "e-1", "e-2")
    (tmp_path / "billing.py").write_text(
        MODULE.format(engine="Semel", prefix="", url=database.url)
        + "\nfrom semel.core.store import Capability\nfrom semel.engine.engine import engine_of\n"
        + "store = engine_of(semel).store\n"
        + "store.capabilities = store.capabilities - {Capability.BATCH}\n"
    )
    (tmp_path / "mended").touch()
    refused = call("events", "redrive", "billing:consumer", *ALL, "--id", "b")
    assert refused.returncode == 2
    assert "keeps no batches" in refused.stderr
    done = call("events", "redrive", "billing:consumer", *ALL)
    assert (done.returncode, done.stdout.strip()) == (0, "2 processed")


def test_all_that_match_are_not_redriven_without_a_reason(database: Database, call: Run, tmp_path: Path) -> None:
    fail_events(database, "e-1")
    write_module(tmp_path, database, is_async=False)
    (tmp_path / "mended").touch()
    done = call("events", "redrive", "billing:consumer", "--yes")
    assert done.returncode == 2
    assert "--because" in done.stderr
    assert not (tmp_path / "booked").exists()


def chain_of(database: Database, call: Run) -> list[dict[str, str]]:
    return [json.loads(line) for line in call("audit", "list", database.url, "--json").stdout.splitlines()]


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "loop"])
def test_a_redrive_is_in_the_chain_in_the_words_of_the_server(
    database: Database, call: Run, tmp_path: Path, *, is_async: bool
) -> None:
    (letter,) = fail_events(database, "e-1")
    write_module(tmp_path, database, is_async=is_async)
    (tmp_path / "mended").touch()
    done = call("events", "redrive", "billing:consumer", "--because", "the bank is back", "--by", "jane", "--yes")
    assert done.returncode == 0
    begun = chain_of(database, call)[-1]
    told = {name: begun[name] for name in ("action", "actor", "target")}
    assert told == {"action": "redrive", "actor": "jane", "target": f"letter:billing:{letter[:16]}"}
    assert begun["reason"].startswith("the bank is back (bulk action ")


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "loop"])
def test_a_redrive_of_one_letter_that_fails_again_is_not_done_in_the_chain(
    database: Database, call: Run, tmp_path: Path, *, is_async: bool
) -> None:
    (letter,) = fail_events(database, "e-1")
    write_module(tmp_path, database, is_async=is_async)
    done = call("events", "redrive", "billing:consumer", letter, "--because", "another try", "--yes")
    assert (done.returncode, done.stdout.strip()) == (1, "1 exhausted")
    assert [entry["outcome"] for entry in chain_of(database, call)] == ["failed: exhausted", ""]


def test_a_dry_run_of_a_redrive_only_counts(database: Database, call: Run, tmp_path: Path) -> None:
    fail_events(database, "e-1", "e-2")
    write_module(tmp_path, database, is_async=False)
    (tmp_path / "mended").touch()
    done = call("events", "redrive", "billing:consumer", "--dry-run")
    assert (done.returncode, done.stdout.strip()) == (0, "2 match, 2 are in a state for redrive")
    assert not (tmp_path / "booked").exists()
    assert chain_of(database, call) == []


def test_letters_of_the_scope_that_is_named_are_redriven_and_no_others(
    database: Database, call: Run, tmp_path: Path
) -> None:
    fail_events(database, "e-1", "e-2")
    write_module(tmp_path, database, is_async=False)
    (tmp_path / "mended").touch()
    assert "0 match" in call("events", "redrive", "billing:consumer", *ALL, "--scope", "acme").stdout
    assert "2 done" in call("events", "redrive", "billing:consumer", *ALL, "--scope", "").stdout


def test_one_letter_is_redriven_by_the_beginning_of_its_id(database: Database, call: Run, tmp_path: Path) -> None:
    first, _ = fail_events(database, "e-1", "e-2")
    write_module(tmp_path, database, is_async=False)
    (tmp_path / "mended").touch()
    assert call("events", "redrive", "billing:consumer", first[:12], "--yes").stdout.strip() == "1 processed"
    assert call("events", "dead", "billing", database.url, "--json").stdout.count("\n") == 1


def test_what_fails_again_stays_and_is_told_by_the_exit_code(database: Database, call: Run, tmp_path: Path) -> None:
    fail_events(database, "e-1")
    write_module(tmp_path, database, is_async=False)
    done = call("events", "redrive", "billing:consumer", *ALL)
    assert done.returncode == 1
    assert "0 done, 1 refused, 0 failed" in done.stdout
    assert "exhausted: The event is exhausted again." in done.stdout
    assert "failed: exhausted" in [entry["outcome"] for entry in chain_of(database, call)]
    assert call("events", "dead", "billing", database.url).returncode == 4


def test_many_letters_are_not_redriven_without_a_question_or_a_yes(
    database: Database, call: Run, tmp_path: Path
) -> None:
    fail_events(database, "e-1")
    write_module(tmp_path, database, is_async=False)
    (tmp_path / "mended").touch()
    done = call("events", "redrive", "billing:consumer", "--because", "the bank is back")
    assert done.returncode == 2
    assert "add --yes" in done.stderr
    assert not (tmp_path / "booked").exists()


def test_a_discarded_letter_is_gone_and_its_event_is_not_processed(
    database: Database, call: Run, tmp_path: Path
) -> None:
    (letter,) = fail_events(database, "e-1")
    done = call("events", "discard", "billing", letter[:8], database.url, "--reason", "test data")
    assert done.returncode == 0
    assert done.stdout.startswith(f"discarded {letter[:16]}")
    assert call("events", "dead", "billing", database.url).returncode == 0


DISCARD = ["--all", "--reason", "test data", "--by", "jane"]


def test_all_letters_that_match_are_discarded_as_a_bulk_action(database: Database, call: Run, tmp_path: Path) -> None:
    fail_events(database, "e-1", "e-2")
    done = call("events", "discard", "billing", database.url, *DISCARD, "--yes", "--id", "b")
    assert done.returncode == 0, done.stderr
    assert "2 done, 0 refused, 0 failed" in done.stdout
    assert call("events", "dead", "billing", database.url).returncode == 0
    ended = [one for one in chain_of(database, call) if one["phase"] == "begun"]
    assert [(one["action"], one["actor"]) for one in ended] == [("discard", "jane")] * 2
    again = call("events", "discard", "billing", database.url, *DISCARD, "--yes", "--id", "b")
    assert "2 done" in again.stdout  # the same one, which is over


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--dry-run"], "2 match, 2 are in a state for discard"),
        (["--dry-run", "--letter-reason", "rejected"], "0 match"),
        (["--dry-run", "--subject", "nobody"], "0 match"),
        (["--dry-run", "--scope", "acme"], "0 match"),
    ],
)
def test_a_dry_run_of_discarding_all_only_counts(database: Database, call: Run, options: list[str], words: str) -> None:
    fail_events(database, "e-1", "e-2")
    done = call("events", "discard", "billing", database.url, *DISCARD, *options)
    assert (done.returncode, words in done.stdout) == (0, True), done.stdout
    assert call("events", "dead", "billing", database.url).returncode == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--reason", "test data"], "--all"),
        (["--reason", "test data", "--yes", "--subject", "pump-1"], "--all"),
        (["0" * 16, "--reason", "test data", "--dry-run"], "--all"),
        (["--all", "--reason", " "], "--reason is empty"),
        (["--all", "--reason", "test data"], "add --yes"),
        (["--all", "--reason", "test data", "--letter-reason", "bad luck"], "--letter-reason"),
        (["0" * 16, "sqlite:///x.db", "--all", "--reason", "test data"], "none is named"),
    ],
)
def test_letters_are_not_discarded_that_were_not_chosen(
    database: Database, call: Run, arguments: list[str], words: str
) -> None:
    fail_events(database, "e-1")
    done = call("events", "discard", "billing", *arguments, SEMEL_URL=database.url)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert call("events", "dead", "billing", database.url).returncode == 4


@pytest.mark.parametrize("letter", ["abc", "0" * 16])
def test_a_letter_that_is_not_there_is_refused(database: Database, call: Run, letter: str) -> None:
    fail_events(database, "e-1")
    done = call("events", "discard", "billing", letter, database.url, "--reason", "test data")
    assert done.returncode == 2
    assert "nothing was done" in done.stderr
