"""Brokers by their address, and what each kind needs beside it.

An address may hold a password: it is never printed as it was given.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from semel.cli.exit_codes import TRY_LATER, Refused, usage_error
from semel.cli.store_option import BROKER_VARIABLE


@dataclass(frozen=True, slots=True)
class Kind:
    """A broker that can be named by a URL, and by which options.

    Attributes:
        title: what it is called.
        module: the adapter, below `semel.events.brokers`.
        place: the option that says where to take messages from; None: it is only published to.
        member: the option that says as whom, where there is one.
        target: what the adapter's publisher calls the place that an event goes to.
        further: options of the publisher beside it.
        usual_target: where an event goes if nobody says; None: somebody has to.
        reading: options of the listener that say how a message is read.
    """

    title: str
    module: str
    place: str | None
    member: str | None
    target: str
    further: tuple[str, ...] = ()
    usual_target: str | None = "{type}"
    reading: tuple[str, ...] = ()

    @property
    def target_option(self) -> str:
        """The option for `target`; --stream and --queue are those that messages are taken from."""
        return f"target_{self.target}" if self.target in ("stream", "queue") else self.target


RABBITMQ = Kind("RabbitMQ", "rabbitmq", "queue", None, "routing_key", ("exchange",))
NATS = Kind("NATS", "nats", "stream", "durable", "subject")
REDIS = Kind("Redis", "redis_streams", "stream", "group", "stream")
SQS = Kind("SQS", "sqs", "queue", None, "queue", usual_target=None, reading=("event_id",))
EVENTBRIDGE = Kind("EventBridge", "eventbridge", None, None, "bus", usual_target="default")
_SCHEMES = {
    "amqp": RABBITMQ,
    "amqps": RABBITMQ,
    "nats": NATS,
    "tls": NATS,
    "redis": REDIS,
    "rediss": REDIS,
    "sqs": SQS,
    "eventbridge": EVENTBRIDGE,
}


def kind_of(url: str) -> Kind:
    """Which broker a URL is of.

    Raises:
        Refused: of none that is known.
    """
    scheme = url.partition("://")[0].lower()
    if "://" not in url or scheme not in _SCHEMES:
        message = f"The address of the broker begins with none of {', '.join(f'{one}://' for one in _SCHEMES)}"
        raise usage_error(f"{message}; nothing was done.")
    return _SCHEMES[scheme]


def adapter_of(kind: Kind) -> Any:
    """The module for a broker, imported by its name: the package of its client may be missing.

    Raises:
        UsageError: it is.
    """
    return importlib.import_module(f"semel.events.brokers.{kind.module}")


def chosen_broker(url: str | None) -> str:
    """The address of the broker.

    Raises:
        Refused: none was given.
    """
    if not url:
        raise usage_error(f"No broker was named; nothing was done. Give --broker URL, or set {BROKER_VARIABLE}.")
    return url


def show_address(url: str) -> str:
    """The address without user, password and options."""
    parts = urlsplit(url)
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def refuse_options(kind: Kind, **options: object) -> None:
    """Refuse options of other brokers.

    Raises:
        Refused: one of them was given.
    """
    for name, value in options.items():
        if value is not None:
            option = name.replace("_", "-")
            raise usage_error(f"--{option} is not for {kind.title}, which the address names; nothing was done.")


def listen_to(
    receiver: Any, url: str, places: Mapping[str, str | None], settings: dict[str, Any]
) -> AbstractAsyncContextManager[None]:
    """Listen to a queue or a stream, by the options that name it.

    Raises:
        Refused: the broker needs something that was not given, or does not know what was.
        UsageError: the package of its client is missing.
    """
    kind = kind_of(url)
    where = places_of(kind, places)
    listener: AbstractAsyncContextManager[None] = adapter_of(kind).listen(receiver, url, **where, **settings)
    return listener


def places_of(kind: Kind, places: Mapping[str, str | None]) -> dict[str, str]:
    """Where messages are taken from, of the options for all brokers.

    Raises:
        Refused: this broker needs something that was not given, or does not know what was.
    """
    if kind.place is None:
        message = f"{kind.title} is not listened to, but the queue of SQS is that a rule sends to; nothing was done."
        raise usage_error(f"{message} Give --broker sqs://REGION and --queue.")
    mine = {kind.place, kind.member, *kind.reading}
    refuse_options(kind, **{name: value for name, value in places.items() if name not in mine})
    if places.get(kind.place) is None:
        message = f"{kind.title} is listened to by a {kind.place}; nothing was done. Give --{kind.place}."
        raise usage_error(message)
    return {name: value for name, value in places.items() if value is not None}


@asynccontextmanager
async def reaching(url: str) -> AsyncIterator[None]:
    """Say in one line that a broker cannot be reached.

    Raises:
        Refused: it cannot.
    """
    try:
        yield
    except ConnectionError as error:
        reason = f" ({type(error).__name__})"
        if type(error) is ConnectionError:  # an adapter's own, which says what the client met, and no password
            reason = f": {str(error).partition(';')[0].rstrip('.')}"
        message = f"The broker at {show_address(url)} cannot be reached{reason}; nothing was done."
        raise Refused("broker_unavailable", message, TRY_LATER) from error
