"""The caller's writes as a place for operations, in both colours.

What always holds: they are sent by the caller's own client where there is one, and by one opened for the operation
where there is none. Its retries do no harm: the same transaction carries the same token.
"""

from __future__ import annotations

from typing import Any

from semel.core.flow import Flow, arun, run
from semel.core.store import Answers, Plan
from semel.errors import UsageError
from semel.stores.dynamodb.commands import Inside
from semel.stores.dynamodb.driver import AsyncDynamoDriver, DynamoDriver
from semel.stores.dynamodb.exchange import Place
from semel.stores.dynamodb.inside import inside
from semel.stores.dynamodb.writes import Writes


class DynamoJoined:
    """For threads."""

    def __init__(self, place: Place, writes: Writes) -> None:
        self._place = place
        self._writes = writes

    def perform(self, plan: Plan) -> Answers:
        """Run one plan."""
        driver = DynamoDriver(self._place, self._writes.client)
        try:
            return run(plan, lambda wanted: driver.carry(_steps(self._place, self._writes, wanted)))
        finally:
            driver.close()


class AsyncDynamoJoined:
    """The same, awaited."""

    def __init__(self, place: Place, writes: Writes) -> None:
        self._place = place
        self._writes = writes

    async def perform(self, plan: Plan) -> Answers:
        """Run one plan."""
        driver = AsyncDynamoDriver(self._place, self._writes.client)
        try:
            return await arun(plan, lambda wanted: driver.carry(_steps(self._place, self._writes, wanted)))
        finally:
            await driver.close()


def _steps(place: Place, writes: Writes, wanted: Inside) -> Flow[Any]:
    return inside(place.settings.table, writes, wanted.operation)


def writes_of(given: object, *, awaited: bool) -> Writes:
    """What was given to `within`, checked.

    Raises:
        UsageError: it is no `Writes`, or its client is of the other colour.
    """
    if not isinstance(given, Writes):
        message = (
            f"DynamoDB has no open transaction that a {type(given).__qualname__} could share; nothing ran. Give "
            f"within() a semel.stores.dynamodb.Writes, and add your writes to it inside the handler."
        )
        raise UsageError(message)
    if given.client is not None and _is_awaited(given.client) is not awaited:
        wanted = "aiobotocore" if awaited else "boto3"
        message = f"The client of these writes is of the other colour; nothing ran. Give a client of {wanted}."
        raise UsageError(message)
    return given


def _is_awaited(client: object) -> bool:
    return any(kind.__module__.startswith("aiobotocore") for kind in type(client).__mro__)
