"""The handler for AWS Lambda with messages of a real queue (ministack): they are visible again when they are due."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import boto3
import pytest

from semel import Semel
from semel.events import Backoff, Consumer, Event
from semel.events.brokers import aws_lambda
from semel.stores.memory import MemoryStore
from tests.events.invocations import Context, batch, failures
from tests.servers.ministack import REGION, Tables

pytestmark = pytest.mark.slow
LONG = 60.0


@dataclass
class Queue:
    """A queue whose messages stay invisible for ten minutes unless somebody says otherwise."""

    client: Any
    url: str
    arn: str

    def send(self, event: Event) -> None:
        self.client.send_message(QueueUrl=self.url, MessageBody=event.to_json().decode())

    def poll(self) -> list[dict[str, Any]]:
        """Messages in the form in which Lambda's poller hands them over."""
        found = self.client.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages", [])
        return [
            {
                "messageId": one["MessageId"],
                "receiptHandle": one["ReceiptHandle"],
                "body": one["Body"],
                "attributes": {},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": self.arn,
            }
            for one in found
        ]

    def invoke(self, handler: aws_lambda.LambdaHandler, records: list[dict[str, Any]]) -> list[str]:
        """Invoke the function, and delete what it acknowledged, as the poller does; what has to come again."""
        again = failures(handler(batch(*records), Context()))
        for record in records:
            if record["messageId"] not in again:
                self.client.delete_message(QueueUrl=self.url, ReceiptHandle=record["receiptHandle"])
        return again

    def poll_until_there(self) -> list[dict[str, Any]]:
        """Messages, as soon as some are visible: a queue tells nobody."""
        deadline = time.monotonic() + LONG
        while time.monotonic() < deadline:
            if records := self.poll():
                return records
            time.sleep(0.05)
        pytest.fail("the message did not become visible")


@pytest.fixture
def queue(dynamodb: Tables) -> Iterator[Queue]:
    client = boto3.session.Session().client("sqs", endpoint_url=dynamodb.endpoint.url or None, region_name=REGION)
    name = f"semel-{secrets.token_hex(6)}"
    url = client.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
    asked = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    yield Queue(client, url, asked["Attributes"]["QueueArn"])
    client.delete_queue(QueueUrl=url)


def test_a_message_that_failed_is_visible_again_when_it_is_due(queue: Queue) -> None:
    with Semel(MemoryStore()) as semel:
        soon = Backoff(first=timedelta(seconds=1), most=timedelta(seconds=1), spread=0)
        consumer, ran = Consumer(semel, "billing", backoff=soon), []

        @consumer.on("asset.registered")
        def registered(event: Event) -> None:
            ran.append(event.id)
            if len(ran) == 1:
                raise ConnectionError("no")

        handler = aws_lambda.handler(consumer, sqs=queue.client)
        queue.send(Event(id="e-1", type="asset.registered", source="/plant", data={}))
        first = queue.poll_until_there()
        assert queue.invoke(handler, first) == [first[0]["messageId"]]
        again = queue.poll_until_there()  # long before the ten minutes of the queue
        assert queue.invoke(handler, again) == []
        assert ran == ["e-1", "e-1"]
        assert queue.poll() == []
