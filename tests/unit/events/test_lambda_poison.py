"""What Lambda decoded may hold what UTF-8 cannot: it is a dead letter, and ends no invocation."""

from __future__ import annotations

from typing import Any

import pytest

from semel import Semel
from semel.events import Consumer, Event
from semel.events.brokers import aws_lambda
from semel.stores.memory import MemoryStore

HALF = "\ud83d"
ATTRIBUTES = {f"ce-{name}": {"stringValue": "x"} for name in ("id", "source", "type")}
SQS = {"eventSource": "aws:sqs", "messageId": "m-1", "receiptHandle": "r-1", "eventSourceARN": "a:b:c:d:e:orders"}


@pytest.mark.parametrize(
    "invocation",
    [
        {"id": "e-1", "source": "/s", "detail-type": "registered", "detail": {"name": HALF}},
        {"id": "e-1", "source": "/s", "detail-type": "registered", "detail": {}, "time": HALF},
        {"Records": [{**SQS, "body": HALF}]},
        {"Records": [{**SQS, "body": HALF, "messageAttributes": ATTRIBUTES}]},
        {"Records": [{"eventSource": "aws:kinesis", "kinesis": {"sequenceNumber": "1", "data": HALF}}]},
    ],
    ids=["eventbridge", "time of eventbridge", "sqs", "sqs with headers", "kinesis"],
)
def test_half_a_character_is_a_dead_letter(invocation: dict[str, Any]) -> None:
    consumer: Consumer[Semel] = Consumer(Semel(MemoryStore()), "billing")
    seen: list[Event] = []

    @consumer.on("registered", "x")
    def registered(event: Event) -> None:
        seen.append(event)

    assert aws_lambda.handler(consumer)(invocation) in (None, {"batchItemFailures": []})
    assert [(letter.reason, letter.event, seen) for letter in consumer.dead_letters()] == [("invalid", None, [])]
