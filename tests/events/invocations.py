"""What AWS Lambda invokes a function with, in the form that its documentation shows; and a context with a set time."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from semel.events import Event

QUEUE = "arn:aws:sqs:eu-west-1:000000000000:orders"
FIFO = f"{QUEUE}.fifo"
STREAM = "arn:aws:kinesis:eu-west-1:000000000000:stream/orders"


@dataclass
class Context:
    """An invocation that may run for so many milliseconds more, each time that it is asked."""

    left: int = 60_000
    each: int = 0

    def get_remaining_time_in_millis(self) -> int:
        left, self.left = self.left, self.left - self.each
        return left


def sqs_record(event: Event | str, number: int = 1, *, queue: str = QUEUE, group: str | None = None) -> dict[str, Any]:
    """One record of SQS."""
    text = event if isinstance(event, str) else event.to_json().decode()
    attributes = {"ApproximateReceiveCount": "1", **({} if group is None else {"MessageGroupId": group})}
    return {
        "messageId": f"m-{number}",
        "receiptHandle": f"r-{number}",
        "body": text,
        "attributes": attributes,
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": queue,
        "awsRegion": "eu-west-1",
    }


def kinesis_record(event: Event | bytes, number: int, *, key: str = "a", shard: int = 0) -> dict[str, Any]:
    """One record of Kinesis."""
    data = event if isinstance(event, bytes) else event.to_json()
    return {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": key,
            "sequenceNumber": str(4959 + number),
            "data": base64.b64encode(data).decode(),
            "approximateArrivalTimestamp": 1545084650.987,
        },
        "eventSource": "aws:kinesis",
        "eventID": f"shardId-{shard:012}:{4959 + number}",
        "eventSourceARN": STREAM,
    }


def batch(*records: dict[str, Any]) -> dict[str, Any]:
    """An invocation with these records."""
    return {"Records": list(records)}


def eventbridge(detail: Any, **changes: Any) -> dict[str, Any]:
    """An event of EventBridge."""
    given = {
        "version": "0",
        "id": "put-1",
        "detail-type": "asset.registered",
        "source": "plant",
        "account": "000000000000",
        "time": "2026-03-01T08:00:00Z",
        "region": "eu-west-1",
        "resources": [],
        "detail": detail,
    }
    return json.loads(json.dumps({**given, **changes}))  # type: ignore[no-any-return]  # as Lambda hands it over


def failures(answer: Any) -> list[str]:
    """What Lambda was told to deliver again."""
    return [one["itemIdentifier"] for one in answer["batchItemFailures"]]
