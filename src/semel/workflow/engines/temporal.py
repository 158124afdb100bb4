"""Temporal: activities that are delegates, and workflows that are started once.

- A time-out, a worker that dies and a reset of the workflow run the activity again, and each finds the record.
- Temporal counts every attempt of an activity. So while another attempt runs the task, the activity waits for it
  instead of failing.
- The delegate says itself, in a heartbeat, that it is alive: three times in a lease, or in a `heartbeat_timeout` that
  is shorter. Where the workflow sets one a thread says it, too, which a delegate that blocks the event loop does not
  stop.
- What has to be changed in the program or in the workflow is told as an incident: Temporal would try it for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, Final, Unpack

from semel.api import AsyncSemel
from semel.core.key import SHARED
from semel.core.policy import PolicyFields
from semel.errors import UsageError
from semel.extras import requires
from semel.workflow.ends import BpmnError, Completed, End, Incident, Retry
from semel.workflow.engines.history import EngineHistory
from semel.workflow.engines.locks import ExtendLock, Locks
from semel.workflow.engines.running import Runnable, as_json_data, run_to_end
from semel.workflow.starting import Start, start_once

with requires("semel.workflow.engines.temporal", "temporalio"):
    from temporalio import activity as temporal_activity
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
    from temporalio.client import AsyncActivityCancelledError, Client
    from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
    from temporalio.envconfig import ClientConfig
    from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, WorkflowAlreadyStartedError
    from temporalio.service import RPCError, RPCStatusCode

__all__ = ["INCIDENT", "RETRY", "activity", "read_history", "start"]

INCIDENT: Final = "SEMEL_INCIDENT"
"""The type of the error of an activity that needs a person; its first detail is the reference of the record."""
RETRY: Final = "SEMEL_RETRY"
"""The type of the error of an activity that Temporal tries again."""
_LOOK: Final = timedelta(seconds=1)
_WITHIN: Final = 10.0
_REFUSED: Final = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)


def activity(delegate: Runnable, *, name: str) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
    """An activity for a worker. A workflow calls it by its name, with variables, and gets the outputs.

    A business error is an `ApplicationError` that is not retried: `type` is its code, and its first detail are its
    variables. Neither is what needs a person, or a change of the program or the workflow (`INCIDENT`). The id of the
    workflow is the process instance.
    """
    beats = _Beats(delegate)

    async def run_delegate(variables: dict[str, Any]) -> dict[str, Any]:
        info = temporal_activity.info()
        async with beats.of_loop(info):
            with beats.of_thread(info):
                end = await _run_until_ended(delegate, variables, info)
        return _answer(end)

    return temporal_activity.defn(name=name)(run_delegate)


async def start(
    semel: AsyncSemel,
    client: Client,
    workflow: str,
    variables: Mapping[str, Any],
    *,
    key: str | tuple[object, ...],
    task_queue: str,
    scope: Any = SHARED,
    **policy: Unpack[PolicyFields],
) -> str:
    """Start a workflow once for its key, and give its id, which follows from the key. Already started is started.

    Raises:
        KeyReused: it was started with other variables.
        TryLater: somebody else is starting it, or the store does not answer.
    """
    given = as_json_data(variables)

    async def begin(start: Start) -> str:
        with suppress(WorkflowAlreadyStartedError):
            await client.start_workflow(
                workflow,
                given,
                id=start.id,
                task_queue=task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            )
        return start.id

    return await start_once(semel, workflow, key, begin, asked=given, scope=scope, **policy)


async def read_history(address: str | None = None, namespace: str | None = None) -> EngineHistory:
    """How long a namespace keeps workflows that have ended.

    What is not given, and how to log in, is read as all programs of Temporal do: from `TEMPORAL_ADDRESS`,
    `TEMPORAL_NAMESPACE`, `TEMPORAL_API_KEY` and their like, or from its configuration file.

    Raises:
        ConnectionError: the server does not answer.
        UsageError: there is no such namespace, the user may not look at it, or the configuration cannot be read.
    """
    settings = _connection_settings(address, namespace)
    try:
        async with asyncio.timeout(_WITHIN):
            client = await Client.connect(**settings)
            asked = DescribeNamespaceRequest(namespace=client.namespace)
            told = await client.workflow_service.describe_namespace(asked)
    except TimeoutError:
        raise ConnectionError(f"no answer within {_WITHIN:.0f} s") from None
    except RPCError as error:
        raise _explain_refusal(error, settings.get("namespace", "default")) from None
    except RuntimeError as error:
        raise ConnectionError(f"{error!s:.200}") from None
    config = told.config
    longest = None
    if config.HasField("workflow_execution_retention_ttl"):
        longest = config.workflow_execution_retention_ttl.ToTimedelta() or None
    return EngineHistory(f"namespace {client.namespace}", longest, "its retention")


def _connection_settings(address: str | None, namespace: str | None) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = {"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()}
    except RuntimeError as error:
        raise UsageError(f"The configuration of Temporal cannot be read: {error!s:.200}; nothing was asked.") from None
    given = {"target_host": address, "namespace": namespace}
    return settings | {name: value for name, value in given.items() if value is not None}


def _explain_refusal(error: RPCError, namespace: str) -> Exception:
    if error.status is RPCStatusCode.NOT_FOUND:
        return UsageError(f"There is no namespace {namespace!r:.100}; nothing was changed.")
    if error.status in _REFUSED:
        return UsageError(f"The user may not look at the namespace {namespace!r:.100}; nothing was changed.")
    return ConnectionError(error.status.name)


async def _run_until_ended(delegate: Runnable, variables: dict[str, Any], info: Any) -> End:
    """Run it; while nothing failed and it is only not its turn, wait here: Temporal would count a failure."""
    while True:
        end = await run_to_end(delegate, variables, instance=info.workflow_id, activity=info.activity_type)
        if not isinstance(end, Retry) or end.counts:
            return end
        await asyncio.sleep(min(end.after, _LOOK).total_seconds())


class _Beats:
    """Tells Temporal that the activities of a delegate are alive."""

    def __init__(self, delegate: Runnable) -> None:
        self._policy = delegate.policy
        self._locks: dict[timedelta, Locks] = {}

    @asynccontextmanager
    async def of_loop(self, info: Any) -> AsyncIterator[None]:
        """Beat inside, in the event loop of the activity."""
        every = self._every(info)

        async def beat() -> None:
            while True:
                temporal_activity.heartbeat()
                await asyncio.sleep(every.total_seconds())

        beating = asyncio.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()

    def of_thread(self, info: Any) -> AbstractContextManager[None]:
        """Have a thread beat inside, where a heartbeat that is missed ends the attempt."""
        if info.heartbeat_timeout is None:
            return nullcontext()
        every = self._every(info)
        locks = self._locks.get(every)
        if locks is None:
            locks = self._locks[every] = Locks(_connect, self._policy, every=every)
        return locks.extending((temporal_activity.client(), info.task_token))

    def _every(self, info: Any) -> timedelta:
        """How long to wait between two of them: a third of the lease, or of what the workflow allows."""
        return min(self._policy.lease_for, info.heartbeat_timeout or timedelta.max) / 3


@asynccontextmanager
async def _connect() -> AsyncIterator[ExtendLock]:
    """What beats for an activity from any thread: the client of Temporal belongs to no event loop."""

    async def beat(task: tuple[Client, bytes]) -> bool:
        client, token = task
        try:
            await client.get_async_activity_handle(task_token=token).heartbeat()
        except AsyncActivityCancelledError:
            return False  # the worker hears of it by the activity's own heartbeat
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True

    yield beat


def _answer(end: End) -> dict[str, Any]:
    match end:
        case Completed():
            return dict(end.variables)
        case BpmnError():
            raise ApplicationError(end.message, end.variables, type=end.code, non_retryable=True)
        case Incident():
            raise ApplicationError(end.reason, end.reference, type=INCIDENT, non_retryable=True)
        case Retry():
            raise ApplicationError(
                end.reason, type=RETRY, next_retry_delay=end.after, category=ApplicationErrorCategory.BENIGN
            )
    raise AssertionError(end)
