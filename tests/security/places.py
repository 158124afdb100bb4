"""What puts a secret text into every place where semel stores something, and looks for it there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from semel import Policy, Semel
from semel.batch import Batches
from semel.core.store import Capability
from semel.engine.engine import engine_of
from semel.events import Consumer, Event, Outbox

SECRET: Final = "canary-4929-1234"


class Declined(Exception):
    """A failure whose message is secret."""


def _decline() -> None:
    raise Declined(SECRET)


def use_everything(semel: Semel) -> list[str]:
    """Store the secret in all ways that the store knows; answers which ways there were."""
    can = engine_of(semel).store.capabilities
    used = ["outcome", "error", "step"]
    semel.run("paid", lambda: {"secret": SECRET}, operation="pay", fingerprint=None)
    policies = {"declined": Policy(final_errors=(Declined,)), "again": Policy(retry_errors=(Declined,))}
    for key, policy in policies.items():
        try:
            semel.run(key, _decline, operation="pay", fingerprint=None, policy=policy)
        except Declined:
            continue
        raise AssertionError("it was to fail")

    def with_step() -> None:
        semel.current().step("reserve", lambda: SECRET)
        raise Declined(SECRET)

    try:
        semel.run("stepped", with_step, operation="pay", fingerprint=None)
    except Declined:
        used.append("history")
    if Capability.LETTERS in can:
        _write_letter(semel)
        used.append("letter")
    if Capability.OUTBOX in can and Capability.BATCH in can:  # DynamoDB adds events with a record alone
        event = Event(
            type="t", source="/s", id="e-1", subject="s", data={"secret": SECRET}, extensions={"note": SECRET}
        )
        Outbox(semel).add(event, autonomous=True)
        used.append("event")
    if Capability.BATCH in can:
        items = [{"id": str(number), "secret": SECRET} for number in range(2)]
        batch = Batches(semel).start("b-1", items, operation="bulk", item_id="id")
        batch.run(lambda item: item.data["secret"], wait=False)
        used.append("item")
    return used


def _write_letter(semel: Semel) -> None:
    consumer = Consumer(semel, "billing", max_attempts=1)

    @consumer.on("t")
    def handle(event: Event) -> None:
        raise Declined(SECRET)

    told = consumer.handle(Event(type="t", source="/s", id="e-2", subject="s", data={"secret": SECRET}))
    assert told.action == "dead_letter"


def find(stored: Any, text: bytes) -> Iterator[Any]:
    """Every stored value that holds `text`."""
    if isinstance(stored, dict):
        for name, value in stored.items():
            yield from find(name, text)
            yield from find(value, text)
    elif isinstance(stored, list | tuple | set):
        for value in stored:
            yield from find(value, text)
    elif isinstance(stored, str):
        yield from [stored] if text.decode("utf-8", "replace") in stored else []
    elif isinstance(stored, bytes | bytearray | memoryview):
        yield from [bytes(stored)] if text in bytes(stored) else []
    elif hasattr(stored, "value"):  # the binary type of a client library
        yield from find(stored.value, text)
