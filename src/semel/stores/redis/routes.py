"""Which node a command goes to."""

from __future__ import annotations

from typing import Protocol

from semel.stores.redis.cluster import Cluster
from semel.stores.redis.commands import Batch
from semel.stores.redis.round import Nodes, OneServer, Speaker, Speech
from semel.stores.redis.settings import Settings


class Route(Protocol):
    """The way from commands to nodes. One of its own for each driver."""

    def nodes(self) -> Nodes:
        """Every node that holds records."""

    def speaking(self, batch: Batch) -> Speech:
        """Send a batch, and give the replies in its order."""


def route(settings: Settings) -> Route:
    """The way that fits the settings."""
    speaker = Speaker(settings)
    return Cluster(settings, speaker) if settings.kind == "cluster" else OneServer(speaker)
