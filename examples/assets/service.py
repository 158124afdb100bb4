"""The service put together: an engine, a consumer, and the plant it writes to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from examples.assets.domain import NoAsset, Plant, add_handlers
from semel import AsyncSemel
from semel.events import Backoff, Consumer

CONSUMER = "assets"


def make_consumer(semel: AsyncSemel, plant: Plant, transaction: Any) -> Consumer[AsyncSemel]:
    """A consumer whose marks commit together with what its handlers write."""
    consumer = Consumer(
        semel,
        CONSUMER,
        transaction=transaction,
        max_attempts=5,
        backoff=Backoff(first=timedelta(seconds=1), most=timedelta(minutes=1)),
        final_errors=(NoAsset,),
    )
    add_handlers(consumer, plant)
    return consumer
