"""The parts that the service is made of, put together once per process and handed to whoever needs them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.hotel.database import Database
from examples.hotel.gateway_client import Gateway
from examples.payments.settings import Settings
from semel import AsyncSemel
from semel.batch import Batches

MIGRATIONS = Path(__file__).with_name("migrations")


@dataclass(frozen=True)
class Caller:
    """Whose request it is: what authentication leaves as `request.state.account`; None there means nobody."""

    id: str
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
        database = Database(settings.database, MIGRATIONS)
        gateway = Gateway(settings.gateway, settings.gateway_timeout)
        return cls(settings, database, AsyncSemel(settings.database), gateway)

    def batches(self, account_id: str) -> Batches[AsyncSemel]:
        """The batches of one account: nobody else's can be named."""
        return Batches(self.semel, scope=account_id)

    async def prepare(self) -> None:
        """Make all tables, the service's and semel's. Before the first request: a request finds them there."""
        await self.database.migrate()
        await self.semel.read("none", operation="payments.prepare")  # its first use makes semel's tables

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
