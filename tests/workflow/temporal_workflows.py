"""The revenue cycle as a workflow of Temporal, and one that is written as it must not be."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from semel.errors import UsageError
    from tests.workflow.temporal_clinic import IDLE


@workflow.defn
class RevenueCycle:
    """Pays, and says what came of it."""

    @workflow.run
    async def run(self, variables: dict[str, Any]) -> dict[str, Any]:
        """The whole process."""
        seconds = timedelta(seconds=variables.get("timeout", 30))
        beats = timedelta(seconds=variables["heartbeat"]) if "heartbeat" in variables else None
        paid: dict[str, Any] = await workflow.execute_activity(
            "payment",
            variables,
            start_to_close_timeout=seconds,
            heartbeat_timeout=beats,
            retry_policy=RetryPolicy(
                initial_interval=timedelta(milliseconds=100), maximum_attempts=variables.get("attempts", 0)
            ),
        )
        return paid


@workflow.defn
class Undeterministic:
    """Calls a delegate where it must not."""

    @workflow.run
    async def run(self, variables: dict[str, Any]) -> str:
        """Says how that was refused."""
        try:
            await IDLE.run(variables)
        except UsageError as error:
            return error.message
        return "it ran"
