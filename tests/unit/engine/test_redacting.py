"""What `redact` keeps out of a store, at each door: the first caller has the value, and nothing else has it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from semel import AsyncSemel, Happened, Policy, Semel
from semel.batch import Batches
from semel.core import codec
from semel.core.observer import Observer
from semel.errors import PolicyInvalid, ResultNotKept, UsageError
from semel.events import Consumer, Event
from semel.http.response import Response
from semel.http.route import Settings as RouteSettings
from semel.settings import read_settings
from semel.telemetry.logs import LogObserver
from semel.telemetry.opentelemetry import OpenTelemetryObserver
from semel.telemetry.prometheus import PrometheusObserver
from semel.telemetry.several import Observers
from semel.workflow import Completed, Delegate

PAN = "4111-canary-1111"
PAID = {"receipt": "r-1", "card": {"number": PAN, "brand": "visa"}}
KEPT = {"receipt": "r-1", "card": {"number": "[redacted]", "brand": "visa"}}
REDACT = ("card.number",)


class Crashed(Exception):
    """Ends an attempt between two steps."""


def files_of(folder: Path) -> bytes:
    """All bytes of a database: its pages, what waits in its log, and its rows as text."""
    (database,) = folder.glob("*.db")
    with sqlite3.connect(database) as connection:
        rows = "\n".join(connection.iterdump())
    connection.close()
    return rows.encode() + b"".join(path.read_bytes() for path in folder.iterdir())


def is_stored(folder: Path, text: str) -> bool:
    """Whether a text is in a database, as it is or as the hexadecimal digits of a dump."""
    found = files_of(folder).lower()
    return text.encode() in found or text.encode().hex().encode() in found


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/semel.db"


@pytest.fixture
def semel(url: str) -> Iterator[Semel]:
    with Semel(url) as engine:
        yield engine


def test_the_canary_would_be_found(semel: Semel, tmp_path: Path) -> None:
    semel.run("o-1", lambda: PAID, operation="charge", fingerprint=None)
    assert is_stored(tmp_path, PAN)


def test_a_redacted_member_is_in_no_row_line_metric_or_span(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry, spans, provider = CollectorRegistry(), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    observer: Observer = Observers(
        LogObserver(level=logging.DEBUG), PrometheusObserver(registry), OpenTelemetryObserver(provider)
    )
    with caplog.at_level(logging.DEBUG), Semel(url, observer=observer) as semel:

        @semel.once(key="order", operation="charge", redact=REDACT)
        def charge(order: str) -> dict[str, Any]:
            return semel.current().step("pay", lambda: PAID)

        @semel.once(key="order", redact=REDACT)
        def refund(order: str) -> Any:
            return {"card": PAN}  # a text, where the path expects an object

        assert charge("o-1") == PAID
        assert charge("o-1") == KEPT
        assert refund("o-1") == {"card": PAN}
        with pytest.raises(ResultNotKept) as refused:
            refund("o-1")
        record = semel.read("o-1", operation="charge")
        assert record is not None
        assert not is_stored(tmp_path, PAN)
        assert is_stored(tmp_path, "[redacted]")
    assert PAN not in f"{refused.value} {refused.value.facts} {record!r}"
    assert caplog.records
    assert PAN not in "".join(f"{line.getMessage()} {line.__dict__}" for line in caplog.records)
    assert b"semel_" in generate_latest(registry)
    assert PAN.encode() not in generate_latest(registry)
    assert spans.get_finished_spans()
    assert PAN not in "".join(span.to_json() for span in spans.get_finished_spans())


def test_a_step_that_is_finished_gives_its_redacted_value_to_the_next_attempt(semel: Semel, tmp_path: Path) -> None:
    seen: list[Any] = []

    @semel.once(key="order", redact=REDACT, retry_errors=(Crashed,))
    def charge(order: str) -> str:
        attempt = semel.current()
        reference = attempt.step("reserve", lambda: "ref-1")
        seen.append((reference, attempt.step("pay", lambda: PAID)))
        if len(seen) == 1:
            raise Crashed
        return reference

    with pytest.raises(Crashed):
        charge("o-1")
    assert charge("o-1") == "ref-1"
    assert seen == [("ref-1", PAID), ("ref-1", KEPT)]
    assert not is_stored(tmp_path, PAN)


def test_what_a_hook_says_is_redacted(semel: Semel, tmp_path: Path) -> None:
    policy = Policy(in_doubt="reconcile", reconcile=lambda _: Happened(PAID), reconcile_after=0, redact=REDACT)

    def crash() -> dict[str, Any]:
        raise Crashed

    with pytest.raises(Crashed):
        semel.run("o-1", crash, operation="charge", fingerprint=None, policy=policy)
    found = [semel.run("o-1", crash, operation="charge", fingerprint=None, policy=policy).value for _ in range(2)]
    assert found == [PAID, KEPT]
    assert not is_stored(tmp_path, PAN)


def test_an_awaited_result_is_redacted() -> None:
    async def main() -> list[Any]:
        async with AsyncSemel("memory://") as semel:

            @semel.once(key="order", redact=REDACT)
            async def charge(order: str) -> dict[str, Any]:
                return PAID

            return [await charge("o-1"), await charge("o-1")]

    assert asyncio.run(main()) == [PAID, KEPT]


def test_steps_of_a_consumer_are_redacted(semel: Semel, tmp_path: Path) -> None:
    consumer = Consumer(semel, "billing", redact=REDACT)
    seen: list[Any] = []

    @consumer.on("paid")
    def paid(data: Any) -> None:
        seen.append(semel.current().step("pay", lambda: PAID))

    consumer.handle(Event(type="paid", source="/shop", id="e-1"))
    assert seen == [PAID]
    assert not is_stored(tmp_path, PAN)


def test_the_result_of_a_delegate_is_redacted(semel: Semel, tmp_path: Path) -> None:
    class Charge(Delegate[Semel]):
        """Charges an order."""

        operation = "CHARGE"
        key = ("order",)
        redact = REDACT

        def execute(self, order: str) -> dict[str, Any]:
            return PAID

        def outputs(self, value: dict[str, Any], v: Mapping[str, Any]) -> dict[str, Any]:
            return {"number": value["card"]["number"]}

    found = [Charge(semel).run({"order": "o-1"}) for _ in range(2)]
    assert [one.variables["number"] for one in found if isinstance(one, Completed)] == [PAN, "[redacted]"]
    assert not is_stored(tmp_path, PAN)


def test_results_of_items_are_redacted(semel: Semel, tmp_path: Path) -> None:
    def pay(data: int) -> dict[str, Any]:
        return PAID

    Batches(semel).start("b-1", range(2), operation="bulk").run(pay, redact=REDACT)
    assert is_stored(tmp_path, "[redacted]")
    assert not is_stored(tmp_path, PAN)


def test_results_of_a_page_that_commits_as_a_whole_are_redacted(semel: Semel, tmp_path: Path) -> None:
    @contextmanager
    def begin() -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(tmp_path / "semel.db", isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def pay(data: int, session: Any) -> dict[str, Any]:
        return PAID

    batch = Batches(semel).start("b-1", range(2), operation="bulk")
    batch.run(pay, redact=REDACT, transaction=begin, commit="page")
    assert is_stored(tmp_path, "[redacted]")
    assert not is_stored(tmp_path, PAN)


def test_a_file_can_say_what_is_redacted(tmp_path: Path) -> None:
    (tmp_path / "semel.toml").write_text('store = "memory://"\n[operations.charge]\nredact = ["card.number"]\n')
    settings = read_settings(tmp_path / "semel.toml", {})
    assert settings.operations.declared["charge"]["redact"] == REDACT


def test_a_path_that_is_none_is_refused_at_decoration(semel: Semel) -> None:
    with pytest.raises(PolicyInvalid, match="redact takes"):
        semel.once(key="order", redact=("card..number",))


def test_a_route_that_keeps_its_responses_does_not_take_paths() -> None:
    with pytest.raises(UsageError, match="keep_response=False"):
        RouteSettings(policy=Policy(redact=REDACT))
    assert not RouteSettings(policy=Policy(redact=REDACT), keep_response=False).keep_response


def test_a_response_is_not_kept_where_its_policy_has_paths() -> None:
    response = Response(200, (), b'{"card": {"number": "' + PAN.encode() + b'"}}')
    kept = codec.encode(response, codec.shape_of(Response), 10_000, REDACT)
    assert PAN.encode() not in kept
    with pytest.raises(ResultNotKept, match="HTTP response"):
        codec.decode(kept, codec.shape_of(Response))
