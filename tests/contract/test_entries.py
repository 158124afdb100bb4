"""The suite enters the engine in every way its users do: green on memory proves each of them, topic by topic."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from semel.testing.contract import StoreContract
from semel.testing.contract.suite import Contract
from tests.contract.counting import MARK
from tests.contract.engine_rows import WITHOUT_CALLS
from tests.processes import run_bounded

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ENTRIES = {"sync run", "sync decorated", "async run", "async decorated"}
ONLY_ASYNC = {"CancellationContract"}  # a thread cannot be cancelled
TOPICS = {
    topic.__name__ for topic in StoreContract.__mro__ if topic not in (StoreContract, Contract, object)
} - WITHOUT_CALLS
EXPECTED = {
    (topic, entry) for topic in TOPICS for entry in ENTRIES if topic not in ONLY_ASYNC or entry.startswith("async")
}


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    program = [sys.executable, "-m", "tests.contract.counting"]
    ended = run_bounded(program, seconds=100, cwd=ROOT)
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    nothing_to_run = 5  # what pytest says then; the tests say what is missing
    assert ended.returncode in (0, nothing_to_run), (
        f"the suite did not pass:\n{ended.stdout[-3000:]}{ended.stderr[-2000:]}"
    )
    found: dict[str, Any] = json.loads(lines[0].removeprefix(MARK))
    return found


def test_every_topic_enters_the_engine_in_every_colour_and_style(report: dict[str, Any]) -> None:
    entered = {(topic, entry) for topic, entry, _, _ in report["entered"]}
    missing = sorted(EXPECTED - entered)
    assert missing == [], f"topics that no longer enter the engine so: {missing}"


def test_every_method_of_a_decorated_function_is_entered(report: dict[str, Any]) -> None:
    methods: dict[str, int] = defaultdict(int)
    for _, _, method, count in report["entered"]:
        methods[method] += count
    kinds = ("OnceFunction", "BoundOnce", "AsyncOnceFunction", "AsyncBoundOnce")
    missing = [f"{kind}.{name}" for kind in kinds for name in ("__call__", "result") if not methods[f"{kind}.{name}"]]
    assert missing == [], f"methods that nothing entered, of {dict(methods)}"


def test_each_entry_is_used_at_least_as_often_as_there_are_topics(report: dict[str, Any]) -> None:
    counts: dict[str, int] = defaultdict(int)
    for _, entry, _, count in report["entered"]:
        counts[entry] += count
    assert {entry for entry, count in counts.items() if count >= len(TOPICS)} == ENTRIES, f"entered: {dict(counts)}"


def test_stores_that_call_each_scenario_in_one_style_still_call_each_topic_in_all(report: dict[str, Any]) -> None:
    chosen = {(topic, entry) for topic, entry in report["chosen"]}
    missing = sorted(EXPECTED - chosen)
    assert missing == [], f"topics with too few scenarios to be called in every style: {missing}"
