"""A small gateway of Zeebe over gRPC: jobs with deadlines, retries, incidents, and answers that are lost.

It keeps what the protocol says: a job that is activated belongs to a worker until its deadline, and then to the next
one; of a job that is done everything is NOT_FOUND; a message id that was published is ALREADY_EXISTS.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import grpc
from pyzeebe.proto import gateway_pb2 as messages
from pyzeebe.proto.gateway_pb2_grpc import GatewayServicer, add_GatewayServicer_to_server


@dataclass
class EngineJob:
    """A job that waits for workers."""

    key: int
    type: str
    variables: dict[str, Any]
    retries: int = 3
    until: float = 0.0
    ended: str | None = None
    said: Any = None
    extended: int = 0
    activated: int = 0
    tells: list[str] = field(default_factory=list)


class Zeebe(GatewayServicer):
    """The gateway. `lose` names calls whose effect happens and whose answer is lost, once."""

    def __init__(self) -> None:
        self.jobs: dict[int, EngineJob] = {}
        self.published: list[str] = []
        self.messages_live_for: timedelta | None = None
        self.lose: Counter[str] = Counter()
        self.not_found = 0
        self.changed = asyncio.Condition()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serve on a port of loopback."""
        server = grpc.aio.server()
        add_GatewayServicer_to_server(self, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        yield f"127.0.0.1:{port}"
        await server.stop(grace=None)

    def add(self, key: int, variables: dict[str, Any]) -> EngineJob:
        """A process has come to a service task."""
        job = self.jobs[key] = EngineJob(key, "payment", variables)
        return job

    async def until(self, key: int, condition: Callable[[EngineJob], bool]) -> EngineJob:
        """Wait until it is so."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: condition(self.jobs[key]))
        return self.jobs[key]

    async def ActivateJobs(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802 - of the protocol
        """Hand jobs out, waiting a little for some."""
        found = self._activate(request)
        if not found:
            await asyncio.sleep(0.02)  # a gateway keeps the request open
            found = self._activate(request)
        await self._tell_waiters()
        if found and self._is_lost("activate"):
            return
        yield messages.ActivateJobsResponse(jobs=found)

    def _activate(self, request: Any) -> list[Any]:
        now = time.monotonic()
        found: list[Any] = []
        for job in self.jobs.values():
            is_free = job.ended is None and job.until <= now and job.retries > 0 and job.type == request.type
            if is_free and len(found) < request.maxJobsToActivate:
                job.until = now + request.timeout / 1000
                job.activated += 1
                found.append(
                    messages.ActivatedJob(
                        key=job.key,
                        type=job.type,
                        processInstanceKey=7,
                        bpmnProcessId="revenue",
                        elementId="SUB_08",
                        customHeaders="{}",
                        worker=request.worker,
                        retries=job.retries,
                        variables=json.dumps(job.variables),
                    )
                )
        return found

    async def CompleteJob(self, request: Any, context: Any) -> Any:  # noqa: N802 - of the protocol
        """A job is done."""
        await self._end(request, context, "complete")
        return messages.CompleteJobResponse()

    async def ThrowError(self, request: Any, context: Any) -> Any:  # noqa: N802 - of the protocol
        """A job ended with a business error."""
        await self._end(request, context, "error")
        return messages.ThrowErrorResponse()

    async def FailJob(self, request: Any, context: Any) -> Any:  # noqa: N802 - of the protocol
        """A job failed."""
        job = await self._find(request, context)
        job.tells.append("fail")
        job.retries, job.said = request.retries, request
        job.until = time.monotonic() + request.retryBackOff / 1000
        await self._tell_waiters()
        return messages.FailJobResponse()

    async def UpdateJobTimeout(self, request: Any, context: Any) -> Any:  # noqa: N802 - of the protocol
        """A worker needs longer."""
        job = await self._find(request, context)
        job.extended += 1
        job.until = time.monotonic() + request.timeout / 1000
        await self._tell_waiters()
        return messages.UpdateJobTimeoutResponse()

    async def PublishMessage(self, request: Any, context: Any) -> Any:  # noqa: N802 - of the protocol
        """A message that may start a process."""
        if request.messageId in self.published:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "a message of that id was published")
        self.published.append(request.messageId)
        self.messages_live_for = timedelta(milliseconds=request.timeToLive)
        if self._is_lost("publish"):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
        return messages.PublishMessageResponse(key=1)

    async def _end(self, request: Any, context: Any, how: str) -> None:
        job = await self._find(request, context)
        job.ended, job.said = how, request
        await self._tell_waiters()
        if self._is_lost(how):
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")

    async def _find(self, request: Any, context: Any) -> EngineJob:
        job = self.jobs[request.jobKey]
        if job.ended is not None:
            self.not_found += 1
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such job")
        return job

    def _is_lost(self, what: str) -> bool:
        self.lose[what] -= 1
        return self.lose[what] >= 0

    async def _tell_waiters(self) -> None:
        async with self.changed:
            self.changed.notify_all()
