"""Invocations of a Lambda function that are killed at every position and delivered again: each effect is there once."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from semel import Semel
from semel.events import Event
from tests.effort import FULL
from tests.events.invocations import batch, failures, sqs_record
from tests.processes import child
from tests.servers.ministack import REGION, Tables

KILLS = 200 if FULL else 1
"""At least so many, and at least one at every position."""
FIRST = 0 if FULL else 1
"""The small effort kills invocations of one event, which adds energy."""
ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if FULL else 300)]


def events_of(pump: str) -> list[Event]:
    """A registration, and energy that must not be added twice."""
    registered = {"facility": "north", "type": "pump", "capacity_kw": 50.0}
    made = [("asset.registered", registered), ("asset.energy_metered", {"kwh": 12.5})]
    return [
        Event(id=f"{pump}-{number}", type=type_, source="/plant", subject=pump, data=data)
        for number, (type_, data) in enumerate(made)
    ]


class Runtime:
    """Where invocations run."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def invoke(self, events: list[Event], end_at: int | None = None) -> dict[str, Any]:
        """Invoke the function; how its process ended, and what it told."""
        records = [sqs_record(event, number) for number, event in enumerate(events)]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"invocation": batch(*records), "end_at": end_at}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@pytest.fixture
def runtime(dynamodb: Tables) -> Iterator[Runtime]:
    dynamodb.empty(dynamodb.shared_url)
    variables = {**os.environ, "TABLE_NAME": urlsplit(dynamodb.shared_url).netloc, "AWS_DEFAULT_REGION": REGION}
    if dynamodb.endpoint.url:
        variables["AWS_ENDPOINT_URL_DYNAMODB"] = dynamodb.endpoint.url
    pipe = subprocess.PIPE
    with child(
        [sys.executable, "-m", "tests.kill.invocations"], cwd=ROOT, env=variables, stdin=pipe, stdout=pipe
    ) as process:
        yield Runtime(process)


def test_an_invocation_that_is_killed_anywhere_has_each_effect_once(
    runtime: Runtime, dynamodb: Tables, record_property: Callable[[str, object], None]
) -> None:
    kills: Counter[int] = Counter()
    pumps = 0
    while kills.total() < KILLS:
        for end_at in itertools.count():
            pumps += 1
            events = events_of(f"pump-{pumps}")[FIRST:]
            ended = runtime.invoke(events, end_at)
            if ended["status"] == 0:
                # Fewer than in an invocation before that a slow machine had renew its lease.
                assert 0 < ended["told"]["positions"] <= end_at, "it passed the position it was to be killed at"
                break
            assert ended["status"] == signal.SIGKILL
            kills[end_at] += 1
            again = runtime.invoke(events)
            assert failures(again["told"]["answer"]) == []
    record_property("kills", f"{kills.total()} at {len(kills)} positions")
    items = dynamodb.items(dynamodb.shared_url)
    energy = [item["kwh"]["N"] for item in items if item["sk"]["S"] == "energy"]
    assert (len(energy), set(energy)) == (pumps, {"12.5"}), "an effect is missing, or was repeated"
    with Semel(dynamodb.shared_url) as semel:
        assert semel.count(operation="event:assets", status="completed", scan=True) == pumps * (2 - FIRST)


def test_a_batch_that_is_killed_in_between_goes_on_where_it_was(runtime: Runtime, dynamodb: Tables) -> None:
    """Killed after the first event was written, the second delivery finds its mark."""
    events = events_of("pump-a")
    whole = runtime.invoke(events)["told"]["positions"]
    others = events_of("pump-b")
    assert runtime.invoke(others, whole - 4)["status"] == signal.SIGKILL
    marked = [item for item in dynamodb.items(dynamodb.shared_url) if item["sk"]["S"] == "asset"]
    assert len(marked) == 2, "the first event of the second batch was written"
    assert failures(runtime.invoke(others)["told"]["answer"]) == []
