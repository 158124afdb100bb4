"""`semel events lag`, `peek` and `erase`: what waits in an outbox and what is parked, on a real file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Self

import pytest

from semel import AsyncSemel, Semel
from semel.events import Event, Outbox, Relay
from tests.cli.conftest import NASTY, Database, Run

WHY = ["--reason", "the broker is back"]


def add(database: Database, *ids: str, stream: str = "default", key: str | None = None) -> None:
    with Semel(database.url) as semel:
        for id_ in ids:
            event = Event(id=id_, type="asset.moved", source="/plant", subject="pump-1", data={"secret": 7})
            Outbox(semel, stream).add(event, ordering_key=key, autonomous=True)


def publish(database: Database, *, refuses: Sequence[str] = ()) -> int:
    class Broker:
        async def publish(self, events: Sequence[Event]) -> list[Exception | None]:
            return [ValueError(NASTY) if event.id in refuses else None for event in events]

    async def run() -> int:
        async with AsyncSemel(database.url) as semel:
            return await Relay(Outbox(semel), Broker(), max_attempts=1).run_once()

    return asyncio.run(run())


def test_the_lag_of_each_stream_is_a_row(database: Database, call: Run) -> None:
    add(database, "a", "b")
    add(database, "c", stream="audit")
    done = call("events", "lag", database.url)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()[3:] if line.split()}
    assert rows == {"audit": "1", "default": "2"}
    assert "no relay yet" in done.stdout


def test_what_could_not_be_published_is_told_by_the_exit_code(database: Database, call: Run) -> None:
    add(database, "a", "bad", key="k")
    add(database, "c")
    publish(database, refuses=["a"])
    done = call("events", "lag", database.url, "--json")
    assert done.returncode == 4
    told = json.loads(done.stdout)
    assert (told["stream"], told["waiting"], told["parked"], told["failed"]) == ("default", 0, 2, 1)
    assert [(part["part"], part["parts"]) for part in told["parts"]] == [(0, 1)]
    assert told["is_exact"]


def test_the_age_of_the_oldest_is_told(database: Database, call: Run) -> None:
    add(database, "a")
    told = json.loads(call("events", "lag", database.url, "--stream", "default", "--json").stdout)
    assert 0 <= told["oldest_age_s"] < 60
    assert told["oldest"].endswith("Z") or "+00:00" in told["oldest"]


def test_an_outbox_that_was_never_used_says_so(database: Database, call: Run) -> None:
    database.completed("o-1")
    done = call("events", "lag", database.url)
    assert (done.returncode, done.stdout.strip()) == (0, "No events, and no relay has run.")
    assert call("events", "peek", database.url).stdout.strip() == "Nothing waits."
    assert call("events", "peek", database.url, "--parked").stdout.strip() == "Nothing is parked."


def test_looking_at_what_waits_shows_no_data_and_moves_nothing(database: Database, call: Run) -> None:
    add(database, "a", "b", key="pump-1")
    for _ in range(2):
        done = call("events", "peek", database.url, COLUMNS="120")
        assert done.returncode == 0
        assert [line.split()[-1] for line in done.stdout.splitlines() if "asset.moved" in line] == ["a", "b"]
        assert "secret" not in done.stdout
    assert publish(database) == 2
    assert call("events", "peek", database.url).stdout.strip() == "Nothing waits."


def test_what_waits_as_json_holds_the_event(database: Database, call: Run) -> None:
    add(database, "a", "b")
    (line,) = call("events", "peek", database.url, "--json", "--limit", "1").stdout.splitlines()
    told = json.loads(line)
    assert (told["event"]["id"], told["event"]["data"], told["ordering_key"]) == ("a", {"secret": 7}, None)
    assert told["scope"] is None


def test_what_is_parked_is_shown_with_its_cause(database: Database, call: Run) -> None:
    add(database, "a", "b", key="k")
    publish(database, refuses=["a"])
    done = call("events", "peek", database.url, "--parked", COLUMNS="160")
    assert "ValueError" in done.stdout
    assert "waits behind another" in done.stdout
    assert "\x1b" not in done.stdout
    first, second = map(json.loads, call("events", "peek", database.url, "--parked", "--json").stdout.splitlines())
    assert (first["event"]["id"], first["attempts"], first["error"]["type"]) == ("a", 1, "builtins.ValueError")
    assert (second["event"]["id"], second["error"]) == ("b", None)


def test_looking_again_and_again_ends_when_asked_to(
    database: Database, call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(database, "a")

    class Twice:
        asked = False
        waits = 0

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def wait(self, seconds: float) -> None:
            assert seconds == 5
            self.waits += 1
            self.asked = self.waits == 3

    monkeypatch.setattr("semel.cli.commands.events.outboxes.Ending", Twice)
    done = call("events", "lag", database.url, "--watch", "--every", "5s", "--json")
    assert done.returncode == 0
    assert done.stdout.count('"stream"') == 3


def test_events_are_erased_by_subject_in_every_stream(database: Database, call: Run) -> None:
    add(database, "a", "b")
    add(database, "c", stream="audit")
    done = call("events", "erase", database.url, "--subject", "pump-1", *WHY, "--yes")
    assert done.returncode == 0, done.stderr
    assert "erased 3 rows" in done.stdout
    assert publish(database) == 0


def test_only_the_events_that_are_named_are_erased(database: Database, call: Run) -> None:
    add(database, "a")
    add(database, "c", stream="audit")
    for option in (["--subject", "nobody"], ["--scope", "acme"], ["--subject", "pump-1", "--stream", "audit"]):
        assert call("events", "erase", database.url, *option, *WHY, "--yes").returncode == 0
    assert publish(database) == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--yes", *WHY], "Neither --subject nor --scope"),
        (["--subject", "pump-1", *WHY], "no terminal to ask on"),
        (["--subject", "pump-1", "--yes"], "--reason"),
        (["--subject", "pump-1", "--yes", "--reason", " "], "--reason is empty"),
    ],
)
def test_nothing_is_erased_without_a_choice_or_a_yes(
    database: Database, call: Run, options: list[str], told: str
) -> None:
    add(database, "a")
    done = call("events", "erase", database.url, *options)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert publish(database) == 1


def test_a_released_event_is_published_with_what_waits_behind_it(database: Database, call: Run) -> None:
    add(database, "bad", "behind", key="k")
    publish(database, refuses=["bad"])
    (position,) = [one["position"] for one in parked(call, database) if one["error"]]
    done = call("events", "release", database.url, "--position", str(position), *WHY)
    assert (done.returncode, done.stdout.strip()) == (0, "released 1 events of default")
    assert publish(database) == 2
    assert parked(call, database) == []


def test_all_that_failed_is_released_at_once(database: Database, call: Run) -> None:
    add(database, "a", "b", "c")
    publish(database, refuses=["a", "c"])
    assert call("events", "release", database.url, "--all", *WHY).stdout.strip() == "released 2 events of default"
    assert publish(database) == 2


@pytest.mark.parametrize(
    ("options", "action"),
    [(["release", "--all"], "redrive"), (["erase", "--subject", "pump-1", "--yes"], "erase")],
)
def test_why_events_were_released_or_erased_is_in_the_chain(
    database: Database, call: Run, options: list[str], action: str
) -> None:
    add(database, "a")
    publish(database, refuses=["a"])
    assert call("events", options[0], database.url, *options[1:], *WHY).returncode == 0
    lines = call("audit", "list", database.url, "--json").stdout.splitlines()
    begun = json.loads(lines[-1])
    assert (begun["action"], begun["reason"]) == (action, "the broker is back")


def test_a_dropped_event_is_never_published_and_what_waits_behind_it_is(database: Database, call: Run) -> None:
    add(database, "bad", "behind", key="k")
    publish(database, refuses=["bad"])
    (position,) = [one["position"] for one in parked(call, database) if one["error"]]
    assert call("events", "drop", str(position), database.url, "--reason", "sent by hand").returncode == 0
    assert publish(database, refuses=["bad"]) == 1
    assert parked(call, database) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["release", *WHY], 2, "--position N, or --all"),
        (["release", "--position", "5", "--all", *WHY], 2, "--position N, or --all"),
        (["release", "--position", "5", *WHY], 1, "No event at position 5"),
        (["release", "--position", "5"], 2, "--reason"),
        (["release", "--all", "--reason", " "], 2, "--reason is empty"),
        (["drop", "5", "--reason", "why"], 1, "No event at position 5"),
        (["drop", "5", "--reason", " "], 2, "--reason is empty"),
    ],
)
def test_what_cannot_be_released_or_dropped_is_said(
    arguments: list[str], code: int, words: str, database: Database, call: Run
) -> None:
    add(database, "a")
    done = call("events", *arguments, SEMEL_URL=database.url)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert publish(database) == 1, "nothing was changed"


def parked(call: Run, database: Database) -> list[dict[str, Any]]:
    lines = call("events", "peek", database.url, "--parked", "--json").stdout.splitlines()
    return [json.loads(line) for line in lines]
