"""Amazon SQS: `listen` hands the messages of a queue to a consumer, `publisher` sends events to queues."""

from __future__ import annotations

from semel.events.brokers.sqs.listening import listen
from semel.events.brokers.sqs.publishing import SqsPublisher, publisher
from semel.events.brokers.sqs.queues import read_queue

__all__ = ["SqsPublisher", "listen", "publisher", "read_queue"]
