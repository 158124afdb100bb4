"""Events in AWS Lambda: a handler for the records of SQS and Kinesis and the events of EventBridge.

- A record is acknowledged on the strength of what the store has written down, and of nothing else. What is not
  acknowledged comes again, and is then a duplicate.
- Records are handled one after the other, in their order. After one that has to come again, those that must stay in
  order with it are not begun, and come again too; the others go on.
- The first record of an invocation is always begun, so that a function with little time goes on, if slowly.
- No claim outlives the invocation: the process may be frozen or ended with it, and then renews nothing.
- All that is kept between invocations of a process is in the handler: the consumer, the event loop of its coroutines,
  and a client of SQS.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from inspect import isawaitable
from typing import Any, Final
from urllib.parse import quote, urlencode

from semel.api import AsyncSemel, Semel
from semel.errors import TryLater, UsageError
from semel.events.brokers.lambda_records import Message, Paths, eventbridge_message, is_eventbridge, read_messages
from semel.events.consumer import Consumer
from semel.events.disposition import Disposition
from semel.extras import requires
from semel.validation import Duration, to_timedelta

STOP_BEFORE: Final = timedelta(seconds=2)
_LONGEST_VISIBILITY: Final = 43_200
_IN_ONE_REQUEST: Final = 10
_PATIENCE: Final = 1
"""Seconds that SQS is waited for: to connect, and to answer."""
_ENOUGH: Final = timedelta(seconds=1.25)
"""With less time left to the invocation SQS is not asked: one that is not reached would take the whole invocation."""

_NOT_WHEN_DUE: Final = "messages of %s come again when its time-out ends, not when they are due: %s"

log = logging.getLogger("semel.events.brokers")

LambdaConsumer = Consumer[Semel] | Consumer[AsyncSemel]
PassOn = Callable[[Mapping[str, Any], Disposition], object]
"""Is given the record of a dead letter, as Lambda gave it, and what came of it. A coroutine is waited for."""
Remaining = Callable[[], timedelta | None]
"""How long the invocation may still run; None where nobody says."""


def table_url(*, pk: str = "", sk: str = "", ttl: str = "") -> str:
    """The URL of the DynamoDB table that the environment variable TABLE_NAME names.

    Args:
        pk: the partition key of a table that belongs to the service; without it the table is semel's own.
        sk: its sort key.
        ttl: the attribute by which it deletes what has expired.

    Raises:
        UsageError: the variable is not set.
    """
    table = os.environ.get("TABLE_NAME", "")
    if not table:
        raise UsageError("The environment variable TABLE_NAME names no table; nothing was opened. Set it.")
    keys = {name: value for name, value in {"pk": pk, "sk": sk, "ttl": ttl}.items() if value}
    return f"dynamodb://{table}" + (f"?{urlencode(keys, quote_via=quote)}" if keys else "")


class LambdaHandler:
    """What Lambda calls with an invocation and its context. Made once per process, at its cold start."""

    def __init__(
        self,
        consumer: LambdaConsumer | Callable[[], LambdaConsumer],
        paths: Paths,
        stop_before: timedelta,
        pass_on: PassOn | None,
        sqs: Any,
    ) -> None:
        self._make_consumer = consumer
        self._paths = paths
        self._stop_before = stop_before
        self._pass_on = pass_on
        self._queues = Queues(sqs)
        self._consumer: LambdaConsumer | None = None
        self._runner: asyncio.Runner | None = None
        self._lock = threading.Lock()

    def __call__(self, invocation: Any, context: Any = None) -> dict[str, Any] | None:
        """Handle what Lambda was invoked with, and say what has to come again.

        Raises:
            TryLater: an event of EventBridge has to come again; only an error tells Lambda so.
            UsageError: the program has to be changed; nothing of the invocation was acknowledged.
        """
        remaining = partial(_remaining, context)
        if is_eventbridge(invocation):
            self._take_event(eventbridge_message(invocation, self._paths), remaining)
            return None
        messages = read_messages(invocation, self._paths)
        failures = self._take_batch(messages, remaining)
        return {"batchItemFailures": [{"itemIdentifier": name} for name in failures]}

    def close(self) -> None:
        """Let go of the event loop of an `AsyncSemel`. Lambda ends the process instead; this is for tests."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def _take_event(self, message: Message, remaining: Remaining) -> None:
        self._open_consumer()  # that takes time, which then remains no more
        disposition = self._receive(message, remaining())
        if disposition.action != "retry":
            return
        raise TryLater(
            f"The event was not processed ({disposition.status}), and Lambda is told so by this error: it invokes the "
            f"function again.",
            retry_after=disposition.retry_after or timedelta(seconds=1),
            reference=disposition.reference,
        ) from disposition.error

    def _take_batch(self, messages: Sequence[Message], remaining: Remaining) -> list[str]:
        self._open_consumer()  # as above
        failed: list[tuple[Message, timedelta | None]] = []
        held: dict[tuple[str, str], timedelta | None] = {}
        late = 0
        for place, message in enumerate(messages):
            if message.order is not None and message.order in held:
                failed.append((message, held[message.order]))
                continue
            left = remaining()
            if place > 0 and left is not None and left < self._stop_before:
                failed.append((message, None))
                late += 1
                continue
            disposition = self._receive(message, left)
            if disposition.action == "retry":
                failed.append((message, disposition.retry_after))
                if message.order is not None:
                    held[message.order] = disposition.retry_after
        if late:
            log.warning(
                "%d of %d records were not begun, because less than %s of the invocation was left (stop_before), and "
                "come again",
                late,
                len(messages),
                self._stop_before,
            )
        self._queues.delay([(message.raw, after) for message, after in failed if message.shard is None], remaining)
        return _failures([message for message, _ in failed])

    def _receive(self, message: Message, remaining: timedelta | None) -> Disposition:
        receive: Callable[..., Any] = self._open_consumer().receive
        settings = {"read": lambda _headers, _body: message.read(), "remaining": remaining}
        disposition: Disposition = self._value_of(receive(message.headers, message.body, **settings))
        if disposition.action == "dead_letter":
            log.warning("an event became a dead letter (%s): %s", disposition.status, disposition.reference)
            return self._pass_letter_on(message, disposition)
        return disposition

    def _pass_letter_on(self, message: Message, disposition: Disposition) -> Disposition:
        """Pass a dead letter on; where that fails, it comes again, and is passed on then."""
        if self._pass_on is None:
            return disposition
        try:
            self._value_of(self._pass_on(message.raw, disposition))
        except Exception as error:
            log.exception("a dead letter could not be passed on, and comes again: %s", disposition.reference)
            return replace(disposition, action="retry", error=error)
        return disposition

    def _value_of(self, value: Any) -> Any:
        """What it is, or what comes of it where it has to be awaited."""
        return self._open_runner().run(_wait_for(value)) if isawaitable(value) else value

    def _open_runner(self) -> asyncio.Runner:
        """The loop of the process: connections belong to one, so everything is awaited in the same."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner

    def _open_consumer(self) -> LambdaConsumer:
        with self._lock:
            if self._consumer is None:
                made = self._make_consumer
                self._consumer = made() if callable(made) else made
                if self._consumer.is_async:
                    self._open_runner()
            return self._consumer


def handler(
    consumer: LambdaConsumer | Callable[[], LambdaConsumer],
    *,
    id: str | None = None,  # noqa: A002 - the name of the attribute
    subject: str | None = None,
    stop_before: Duration = STOP_BEFORE,
    pass_on: PassOn | None = None,
    sqs: Any = None,
) -> LambdaHandler:
    """A function for AWS Lambda that hands records of SQS and Kinesis, and events of EventBridge, to a consumer.

    Args:
        consumer: a consumer, or a callable that makes one at the first invocation of a process. Handlers of a `Semel`
            are called; those of an `AsyncSemel` run in an event loop that is kept for the process.
        id: where the id of the producer is in what is no CloudEvent, as a path of names with dots, such as
            `detail.event_id`; by default the `id` of a plain event by which EventBridge invokes the function.
        subject: where the subject of a message of EventBridge is.
        stop_before: with less time left to the invocation than this, no further record is begun.
        pass_on: is called, and awaited where it is a coroutine, with the record of a dead letter, after it is stored;
            where it raises, the record comes again and is passed on then.
        sqs: the client of SQS by which messages are made visible when they are due; by default one of boto3.
    """
    within = to_timedelta("stop_before", stop_before, may_be_zero=True, error=UsageError)
    return LambdaHandler(consumer, Paths(id, subject), within, pass_on, sqs)


def _remaining(context: Any) -> timedelta | None:
    """How long the invocation may still run; None where nobody says."""
    if not hasattr(context, "get_remaining_time_in_millis"):
        return None
    return timedelta(milliseconds=max(context.get_remaining_time_in_millis(), 1))


async def _wait_for(value: Awaitable[Any]) -> Any:
    return await value


def _failures(messages: Sequence[Message]) -> list[str]:
    """What Lambda is told. Of a shard it is the first that failed: Lambda delivers everything from there on again."""
    told: dict[str, str] = {}
    for message in messages:
        told.setdefault(message.shard or message.identifier, message.identifier)
    return list(told.values())


class Queues:
    """Makes messages of SQS visible when they are due, and not when the time-out of their queue ends.

    What cannot be changed, for want of a right, of an answer or of time, comes again after that time-out. SQS that was
    never reached is not asked again: nothing leads to it from this function.
    """

    def __init__(self, client: Any = None) -> None:
        self._client = client
        self._urls: dict[str, str] = {}
        self._is_out_of_reach = False

    def delay(self, failed: Sequence[tuple[Mapping[str, Any], timedelta | None]], remaining: Remaining) -> None:
        """Have each of these records delivered again after so long; None: when its queue says."""
        by_queue: dict[str, list[dict[str, Any]]] = {}
        for record, after in failed:
            if after is not None and "receiptHandle" in record:
                seconds = min(max(math.ceil(after.total_seconds()), 0), _LONGEST_VISIBILITY)
                entry = {"ReceiptHandle": record["receiptHandle"], "VisibilityTimeout": seconds}
                by_queue.setdefault(str(record.get("eventSourceARN", "")), []).append(entry)
        for queue, entries in by_queue.items():
            for start in range(0, len(entries), _IN_ONE_REQUEST):
                if self._is_out_of_reach:
                    return
                left = remaining()
                if left is not None and left < _ENOUGH:
                    log.warning(_NOT_WHEN_DUE, queue, "too little of the invocation is left to ask for more")
                    return
                self._change(queue, entries[start : start + _IN_ONE_REQUEST])

    def _change(self, queue: str, entries: list[dict[str, Any]]) -> None:
        with requires("semel.events.brokers.aws_lambda", "boto3"):
            from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, EndpointConnectionError
        try:
            client, url = self._open_client(queue), self._url(queue)
            some = [{"Id": str(n), **entry} for n, entry in enumerate(entries)]
            for refused in client.change_message_visibility_batch(QueueUrl=url, Entries=some).get("Failed", []):
                log.warning("a message of %s stays invisible: %s", queue, refused.get("Code"))
        except (ConnectTimeoutError, EndpointConnectionError) as error:
            self._is_out_of_reach = not self._urls  # once reached, it is out of reach for a moment only
            log.warning(_NOT_WHEN_DUE, queue, error)
        except (BotoCoreError, ClientError) as error:
            log.warning(_NOT_WHEN_DUE, queue, error)

    def _open_client(self, queue: str) -> Any:
        if self._client is None:
            import boto3
            from botocore.config import Config

            # Where nothing leads to SQS, the invocation's time is worth more than a message that comes a little later.
            config = Config(connect_timeout=_PATIENCE, read_timeout=_PATIENCE, retries={"total_max_attempts": 1})
            region = _part(queue, 3) or None
            self._client = boto3.session.Session().client("sqs", region_name=region, config=config)
        return self._client

    def _url(self, queue: str) -> str:
        if queue not in self._urls:
            found = self._client.get_queue_url(QueueName=_part(queue, 5), QueueOwnerAWSAccountId=_part(queue, 4))
            self._urls[queue] = str(found["QueueUrl"])
        return self._urls[queue]


def _part(arn: str, number: int) -> str:
    """A part of a name such as `arn:aws:sqs:eu-west-1:111122223333:orders`."""
    parts = arn.split(":")
    return parts[number] if number < len(parts) else ""
