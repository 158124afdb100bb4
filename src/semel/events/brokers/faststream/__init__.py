"""FastStream: `inbox` is a middleware by which each event runs its subscriber once, however often it is delivered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Unpack

from semel.api import AsyncSemel
from semel.core.key import SHARED
from semel.core.policy import PolicyFields
from semel.core.record import About
from semel.errors import UsageError
from semel.events.brokers.faststream.hooks import install
from semel.events.brokers.faststream.middleware import Inbox
from semel.events.brokers.faststream.reading import Reader
from semel.events.delivery import SerialRule, UnknownRule
from semel.events.disposition import Backoff
from semel.events.event import Event
from semel.extras import requires
from semel.validation import Duration, to_timedelta

with requires("semel.events.brokers.faststream", "faststream"):
    from faststream.exceptions import RejectMessage

__all__ = ["inbox"]

ACK_WAIT: Final = timedelta(seconds=30)


def inbox(
    semel: AsyncSemel,
    name: str,
    *,
    id: str | None = None,  # noqa: A002 - the name of the attribute
    source: str | None = None,
    type: str | None = None,  # noqa: A002 - as above
    subject: str | None = None,
    ack_wait: Duration = ACK_WAIT,
    backoff: Backoff | None = None,
    unknown: UnknownRule = "refuse",
    transaction: Callable[[], Any] | None = None,
    serial_by: SerialRule | None = None,
    scope: Any = SHARED,
    about: Callable[[Event], About | Mapping[str, Any] | None] | None = None,
    **policy: Unpack[PolicyFields],
) -> Inbox:
    """A middleware for a broker or a router of FastStream, whose subscribers have `ack_policy=AckPolicy.MANUAL`.

    Handlers are given `Context("semel_session")` (what `transaction` gave), `Context("semel_event")` and
    `Context("semel_attempt")`. A subscriber with a title is a consumer of its own, named `<name>.<title>`.

    Args:
        semel: the engine.
        name: of the consumer; part of the identity of its marks, so it must outlast deployments.
        id: where messages that are no CloudEvents have the producer's id: `header:NAME`, or `body:PATH` with dots.
        source: who the producer is, as a text, or where a message says so, in the same two ways.
        type: the same for the type; without it, `message`.
        subject: the same for the subject; without it, there is none.
        ack_wait: Redis: how long an entry stays with a process that is gone.
        backoff: as of a `Consumer`.
        unknown: as of a `Consumer`, of messages that no handler of the subscriber takes.
        transaction: as of a `Consumer`.
        serial_by: as of a `Consumer`.
        scope: as of a `Consumer`.
        about: as of a `Consumer`.
        policy: fields of the policy, as of a `Consumer`.

    Raises:
        UsageError: something cannot be as it is given.
    """
    if not isinstance(semel, AsyncSemel):
        raise UsageError("FastStream runs in an event loop; nothing ran. Give inbox() an AsyncSemel.")
    reader = Reader(id=id, source=source, type=type, subject=subject)
    settings: dict[str, Any] = {
        **policy,
        "backoff": backoff,
        "unknown": unknown,
        "transaction": transaction,
        "serial_by": serial_by,
        "scope": scope,
        "about": about,
        "final_errors": (*policy.get("final_errors", ()), RejectMessage),
    }
    install()
    wait = to_timedelta("ack_wait", ack_wait, error=UsageError)
    return Inbox(semel, name, reader=reader, ack_wait=wait, settings=settings)
