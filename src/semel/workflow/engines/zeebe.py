"""Camunda 8 (Zeebe): jobs that are delegates, by pyzeebe, and processes that are started once by a message.

- A job that is activated a second time, because its worker was slow or an answer was lost, finds its record.
- That a job is no longer there when it is completed is success: its record is ours, and somebody was quicker.
- `Retry` without counting leaves the number of retries as it was, so that waiting never becomes an incident.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Final, Unpack

from semel.api import AsyncSemel
from semel.core.key import SHARED
from semel.core.policy import PolicyFields
from semel.errors import UsageError
from semel.extras import requires
from semel.workflow.ends import BpmnError, Completed, End, Incident, Retry
from semel.workflow.engines.locks import ExtendLock, Locks
from semel.workflow.engines.running import Runnable, as_json_data, run_to_end
from semel.workflow.engines.store_watch import StoreWatch
from semel.workflow.starting import Start, start_once

with requires("semel.workflow.engines.zeebe", "pyzeebe"):
    from pyzeebe import Job, JobController, ZeebeClient, ZeebeWorker
    from pyzeebe.errors import (
        JobAlreadyDeactivatedError,
        JobNotFoundError,
        MessageAlreadyExistsError,
        PyZeebeError,
    )
    from pyzeebe.grpc_internals.zeebe_adapter import ZeebeAdapter

__all__ = ["register", "start"]

log = logging.getLogger("semel.workflow.engines")
_GONE: Final = (JobNotFoundError, JobAlreadyDeactivatedError)
_MOST_TEXT: Final = 600


class _Ended(Exception):
    """Carries the end of a job to where the engine is told.

    No error: pyzeebe would complete by itself what returns, and take a lost race for one.
    """

    def __init__(self, end: End) -> None:
        super().__init__(type(end).__name__)
        self.end = end


def register(
    worker: ZeebeWorker,
    type: str,  # noqa: A002 - as Zeebe calls it
    delegate: Runnable,
    *,
    timeout: timedelta | None = None,
    max_jobs: int = 32,
    connect: Callable[[], Any] | None = None,
) -> None:
    """Have a worker run the jobs of a type by a delegate.

    Args:
        worker: of pyzeebe.
        type: of the jobs.
        delegate: what runs them; one of a `Semel` runs in threads.
        timeout: how long the engine leaves a job with a worker without being asked again; by default two leases. It is
            extended while the delegate runs.
        max_jobs: how many run at the same time.
        connect: makes a channel like that of the worker, for the thread that extends the time of jobs. Without it they
            are extended over the worker's own, and so not while a delegate blocks the event loop.

    Raises:
        UsageError: the timeout is shorter than two leases.
    """
    shortest = 2 * delegate.policy.lease_for
    if timeout is not None and timeout < shortest:
        raise UsageError(
            f"timeout is at least two leases, which are {shortest}, not {timeout}; nothing was registered."
        )
    lasting = _milliseconds(timeout or shortest)

    extender = _Extender(worker, connect, lasting)
    locks = Locks(extender.connect, delegate.policy)
    watch = StoreWatch(delegate)

    async def run_delegate(job: Job) -> dict[str, Any]:
        extender.loop = asyncio.get_running_loop()
        with locks.extending(job.key):
            instance = str(job.process_instance_key)
            end = await run_to_end(delegate, job.variables, instance=instance, activity=job.element_id)
        watch.note(end)
        raise _Ended(end)

    async def tell(error: Exception, job: Job, _controller: JobController) -> None:
        end = error.end if isinstance(error, _Ended) else Incident("", f"{_name(error)}: {error!s:.400}")
        await _tell(worker.zeebe_adapter, job, end)

    # pyzeebe looks for a parameter that is annotated with the class itself, and not with its name.
    run_delegate.__annotations__ = {"job": Job, "return": dict}
    decorate: Any = worker.task(
        task_type=type,
        exception_handler=tell,
        timeout_ms=lasting,
        max_jobs_to_activate=max_jobs,
        max_running_jobs=max_jobs,
    )
    decorate(run_delegate)
    # pyzeebe asks its configuration before each activation how many jobs it may take, and looks again after a pause.
    task: Any = worker.get_task(type)
    task.config = _PausedConfig(task.config, watch)


class _PausedConfig:
    """The configuration of a task of pyzeebe, by which no job is activated while the store does not answer."""

    def __init__(self, config: Any, watch: StoreWatch) -> None:
        self._config = config
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)

    @property
    def max_jobs_to_activate(self) -> int:
        return 0 if self._watch.is_down else int(self._config.max_jobs_to_activate)


class _Extender:
    """Extends the time of jobs from a thread: over a channel of its own, or by asking the loop of the worker."""

    loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, worker: ZeebeWorker, connect: Callable[[], Any] | None, lasting: int) -> None:
        self._worker = worker
        self._make_channel = connect
        self._lasting = lasting

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[ExtendLock]:
        """What extends the time of a job, in the thread that asks for it."""
        if self._make_channel is None:
            yield self._ask_the_loop
            return
        channel = self._make_channel()
        engine = ZeebeAdapter(channel)

        async def extend(key: int) -> bool:
            return await self._extend(engine, key)

        try:
            yield extend
        finally:
            await channel.close()

    async def _ask_the_loop(self, key: int) -> bool:
        if self.loop is None or self.loop.is_closed():
            return False
        asked = asyncio.run_coroutine_threadsafe(self._extend(self._worker.zeebe_adapter, key), self.loop)
        return await asyncio.wrap_future(asked)

    async def _extend(self, engine: ZeebeAdapter, key: int) -> bool:
        try:
            await engine.update_job_timeout(key, self._lasting)
        except _GONE:
            return False
        return True


async def start(
    semel: AsyncSemel,
    client: ZeebeClient,
    message: str,
    variables: Mapping[str, Any],
    *,
    key: str | tuple[object, ...],
    scope: Any = SHARED,
    **policy: Unpack[PolicyFields],
) -> str:
    """Start a process once for its key by the message of its start event, and give the id of that message.

    The id and the correlation key follow from the key: the engine refuses a second message of the same id for as long
    as the record of the start is kept, and begins no second instance while the first runs.

    Raises:
        KeyReused: it was started with other variables.
        TryLater: somebody else is starting it, or the store does not answer.
    """
    given = as_json_data(variables)

    async def begin(start: Start) -> str:
        with suppress(MessageAlreadyExistsError):
            await client.publish_message(
                name=message,
                correlation_key=start.id,
                variables=given,
                time_to_live_in_milliseconds=_milliseconds(start.keep_for),
                message_id=start.id,
            )
        return start.id

    return await start_once(semel, message, key, begin, asked=given, scope=scope, **policy)


async def _tell(engine: Any, job: Job, end: End) -> None:
    try:
        match end:
            case Completed():
                await engine.complete_job(job_key=job.key, variables=end.variables)
            case BpmnError():
                await engine.throw_error(
                    job_key=job.key, message=end.message, error_code=end.code, variables=end.variables
                )
            case Retry():
                await _fail(engine, job, job.retries - end.counts, end.reason, end.after)
            case Incident():
                reason = f"{end.reason} (record {end.reference})" if end.reference else end.reason
                await _fail(engine, job, 0, reason, timedelta())
    except _GONE:
        log.info("the engine has no job %s for us any more; its record stands", job.key)
    except PyZeebeError as error:
        # The job comes again when its time is over, and whoever gets it then finds the record.
        log.warning("the engine did not hear how job %s ended (%s)", job.key, _name(error))


async def _fail(engine: Any, job: Job, retries: int, reason: str, after: timedelta) -> None:
    back_off = _milliseconds(after)
    text = reason[:_MOST_TEXT]
    await engine.fail_job(job_key=job.key, retries=retries, message=text, retry_back_off_ms=back_off, variables={})


def _name(error: Exception) -> str:
    return type(error).__name__


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
