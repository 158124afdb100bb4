"""Brokers that are ended in a run: private servers that are killed, or a shared one that is cut off."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest

from tests.effort import FULL
from tests.proxy.cut_off import CutOff
from tests.proxy.proxy import Proxy
from tests.servers.databases import Endpoint


class Broker(Protocol):
    """What can be ended for a moment."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it is reached."""
        ...

    def kill(self) -> None:
        """End it."""
        ...

    def start(self) -> None:
        """Have it answer again."""
        ...


@contextmanager
def killed_broker(kind: str, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A private server, which writes to disk before it confirms."""
    with request.getfixturevalue(f"start_{kind}")(fsync=True) as broker:
        yield broker
        broker.kill()  # nobody needs it any more, and to end in order takes RabbitMQ seconds


@contextmanager
def broker_at_its_effort(kind: str, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The same, but at the small effort RabbitMQ is the shared server that is cut off.

    A server of RabbitMQ takes ten seconds to start, and as many after a kill. One run that kills it is enough for each
    `make test`, and it is that of the adapter itself.
    """
    if FULL or kind != "rabbitmq":
        with killed_broker(kind, request) as broker:
            yield broker
    else:
        with Proxy(request.getfixturevalue(kind).url) as proxy:
            yield CutOff(proxy)
