"""The DynamoDB store: records in a table of the service, one item each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.core.operations import Operation
from semel.core.store import AsyncDriver, Capability, Plan
from semel.stores.admin import Admin
from semel.stores.dynamodb.driver import AsyncDynamoDriver, DynamoContext, DynamoDriver
from semel.stores.dynamodb.plan import plan
from semel.stores.dynamodb.settings import Settings
from semel.stores.dynamodb.transact import AsyncDynamoJoined, DynamoJoined, joined_plan, writes_of


class DynamoStore:
    """Records in the DynamoDB table that `url` names: dynamodb://table?region=eu-west-1.

    Settings: see `settings.Settings`. Nothing is opened before the first use, and nothing is created: `semel migrate`
    makes the table.
    """

    max_operations = 64
    capabilities = frozenset(
        {
            Capability.JOIN,
            Capability.SEPARATE_LOOP,
            Capability.DURABLE,
            Capability.EXAMINE,
            Capability.MIGRATE,
            Capability.SEARCH_INDEXES,
            Capability.SEARCH_ON_DEMAND,
            Capability.CLIENT_LIBRARIES,
            Capability.LETTERS,
            Capability.OUTBOX,
        }
    )
    libraries = ("boto3", "aiobotocore")

    setting_names = frozenset(Settings.__dataclass_fields__) - {"table"}

    def __init__(self, url: str, **settings: Any) -> None:
        self._context = DynamoContext.of(Settings.of(url, **settings))
        self.name = self._context.settings.name

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands for `operations`, all of one kind."""
        if joined:
            return joined_plan(operations[0])
        return plan(self._context.settings.table, self._context.sweeps, operations)

    def driver(self) -> DynamoDriver:
        """A driver for threads."""
        return DynamoDriver(self._context)

    def async_driver(self) -> AsyncDynamoDriver:
        """A driver for an event loop."""
        return AsyncDynamoDriver(self._context)

    def separate_async_driver(self) -> AsyncDriver:
        """A driver for an event loop of semel's own: connections belong to no loop of the caller."""
        return self.async_driver()

    def admin(self) -> Admin:
        """What operators do: make the table, look."""
        from semel.stores.dynamodb.admin import DynamoAdmin

        return DynamoAdmin(self._context.settings, self.driver)

    def join(self, connection: Any) -> DynamoJoined:
        """The caller's writes as a place for plans.

        Raises:
            UsageError: it is no `Writes`, or one with a client that has to be awaited.
        """
        return DynamoJoined(self._context, writes_of(connection, awaited=False))

    def async_join(self, connection: Any) -> AsyncDynamoJoined:
        """The caller's writes as a place for plans, on an event loop.

        Raises:
            UsageError: it is no `Writes`, or one with a client that cannot be awaited.
        """
        return AsyncDynamoJoined(self._context, writes_of(connection, awaited=True))
