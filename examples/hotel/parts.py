"""The parts that the hotel is made of, put together once per process and handed to whoever needs them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from examples.hotel.database import Database
from examples.hotel.gateway_client import Gateway
from examples.hotel.settings import Settings
from semel import AsyncSemel


@dataclass(frozen=True)
class SignedIn:
    """Who asks: what the sign-in leaves as `request.state.user`; None there means nobody."""

    id: int
    name: str


@dataclass(frozen=True)
class Parts:
    """Everything that outlives a request."""

    settings: Settings
    database: Database
    semel: AsyncSemel
    gateway: Gateway

    @classmethod
    def of(cls, settings: Settings) -> "Parts":
        """The parts by these settings. Nothing is connected yet."""
        database, gateway = Database(settings.database), Gateway(settings.gateway, settings.gateway_timeout)
        return cls(settings, database, AsyncSemel(settings.database), gateway)

    async def prepare(self) -> None:
        """Make all tables, the hotel's and semel's. Before the first request: a request finds them there."""
        await self.database.migrate()
        await self.semel.read("none", operation="hotel.prepare")  # its first use makes semel's tables

    async def close(self) -> None:
        """Let go of all connections."""
        await self.gateway.close()
        await self.semel.close()
        await self.database.close()


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Parts]:
    """The parts, closed at the end."""
    parts = Parts.of(settings)
    try:
        yield parts
    finally:
        await parts.close()
