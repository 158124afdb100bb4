"""Camunda 7: external tasks that are delegates, over its REST interface, and processes that are started once.

- A task whose lock was lost, or whose completion the engine did not confirm, is handed out again and finds its record.
- That a task is no longer there when it is completed is success: its record is ours, and somebody was quicker.
- `Retry` without counting leaves the number of retries as it was, so that waiting never becomes an incident.
- What the engine refuses to hear, although the task is still ours, becomes an incident: nobody hears of it otherwise.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack
from uuid import uuid4

from semel.api import AsyncSemel
from semel.core.key import SHARED
from semel.core.policy import PolicyFields
from semel.errors import UsageError
from semel.extras import requires
from semel.workflow.ends import BpmnError, Completed, End, Incident, Retry
from semel.workflow.engines.history import EngineHistory
from semel.workflow.engines.locks import ExtendLock, Locks
from semel.workflow.engines.running import Runnable, as_json_data, run_to_end
from semel.workflow.engines.store_watch import StoreWatch
from semel.workflow.inputs import KEY
from semel.workflow.starting import Start, start_once

with requires("semel.workflow.engines.camunda7", "httpx"):
    import httpx

if TYPE_CHECKING:
    from typing import Self

__all__ = ["read_history", "start", "work"]

log = logging.getLogger("semel.workflow.engines")

RETRIES: Final = 3
"""How often a task is tried of which the engine does not say so: one that has never failed."""
_POLL: Final = timedelta(seconds=20)
_PAUSE: Final = 1.0
_AGAIN: Final = timedelta(seconds=10)
_MOST_TEXT: Final = 600
_MOST_STRING: Final = 4000
"""Characters of a variable of type `String`, which the engine keeps in a column of that length."""
_INT32: Final = 2**31
_INT64: Final = 2**63
_PAGE: Final = 500
_REFUSED: Final = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)


async def work(
    url: str,
    delegates: Mapping[str, Runnable],
    *,
    worker: str | None = None,
    lock_for: timedelta | None = None,
    max_tasks: int = 10,
    stop: asyncio.Event | None = None,
    make_client: Callable[[], httpx.AsyncClient] | None = None,
) -> None:
    """Fetch external tasks and run their delegates, until `stop` is set or this is cancelled.

    Args:
        url: of the engine's REST interface, such as `http://host:8080/engine-rest`.
        delegates: by topic.
        worker: the name under which tasks are locked; by default one of this process.
        lock_for: how long the engine locks a task without being asked again; by default twice the longest lease.
        max_tasks: how many run at the same time.
        stop: when it is set, no more tasks are fetched, and this ends when those that run have ended.
        make_client: makes a client with the credentials and time limits that the engine needs. It is called more than
            once: locks are extended by a thread with a client of its own, which a delegate that blocks the event loop
            does not stop.

    Raises:
        UsageError: there is no delegate, or locks are shorter than two leases.
    """
    if not delegates or max_tasks < 1:
        raise UsageError("work() needs at least one delegate and room for one task; nothing was fetched.")
    longest = 2 * max(delegate.policy.lease_for for delegate in delegates.values())
    if lock_for is not None and lock_for < longest:
        raise UsageError(f"lock_for is at least two leases, which are {longest}, not {lock_for}; nothing was fetched.")
    name = worker or f"semel-{socket.gethostname()}-{uuid4().hex[:8]}"

    def connect() -> _Engine:
        return _Engine(url, name, None if make_client is None else make_client(), is_own=True)

    async with connect() as engine:
        lock, stop = lock_for or longest, stop or asyncio.Event()
        await _Worker(engine, connect, delegates, lock=lock, most=max_tasks, stop=stop).work()


async def start(
    semel: AsyncSemel,
    url: str,
    process: str,
    variables: Mapping[str, Any],
    *,
    key: str | tuple[object, ...],
    scope: Any = SHARED,
    client: httpx.AsyncClient | None = None,
    **policy: Unpack[PolicyFields],
) -> str:
    """Start a process once for its key, and give the id of its instance. Its business key follows from the key.

    After an attempt whose answer was lost the engine is asked for that business key first.

    Raises:
        KeyReused: it was started with other variables.
        TryLater: somebody else is starting it, or the store does not answer.
        httpx.HTTPError: the engine did not start it, as far as is known.
    """
    given = as_json_data(variables)

    async def begin(start: Start) -> str:
        async with _Engine(url, "", client) as engine:
            found = await engine.find_instance(start.id) if start.in_doubt else None
            return found or await engine.start(process, start.id, given)

    return await start_once(semel, process, key, begin, asked=given, scope=scope, **policy)


async def read_history(
    url: str, process: str | None = None, *, client: httpx.AsyncClient | None = None
) -> EngineHistory:
    """How long the engine keeps instances of a process that have ended; without a process, the longest of all.

    Every version of a process counts, because its instances keep the time of their own.

    Raises:
        ConnectionError: the engine does not answer, or not as it should.
        UsageError: there is no such process, or the user may not look.
    """
    try:
        async with _Engine(url, "", client) as engine:
            is_cleaned = await engine.cleans_up()
            versions = [version async for version in engine.read_definitions(process)]
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        if status in _REFUSED:
            raise UsageError(f"The user may not look at processes (status {status}); nothing was changed.") from None
        raise ConnectionError(f"status {status}") from None
    except (httpx.HTTPError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConnectionError(type(error).__name__) from None
    if not versions:
        named = "no process" if process is None else f"no process {process!r:.100}"
        raise UsageError(f"The engine has {named}; nothing was changed.")
    key, longest = max(versions, key=lambda version: timedelta.max if version[1] is None else version[1])
    if not is_cleaned:
        return EngineHistory(f"process {key}", None, "the batch window of its history cleanup")
    return EngineHistory(f"process {key}", longest, "historyTimeToLive")


class _Refused(Exception):
    """The engine does not take what it was told about a task, which is still ours.

    Attributes:
        may_pass: whether it may take the same later: it failed itself, and does not say that what it was told is wrong.
    """

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(f"status {answer.status_code}: {answer.text:.400}")
        self.may_pass = answer.is_server_error


class _Engine:
    """The REST interface of an engine, as one worker uses it."""

    def __init__(self, url: str, worker: str, client: httpx.AsyncClient | None, *, is_own: bool = False) -> None:
        self._url = url.rstrip("/")
        self._worker = worker
        self._is_own = is_own or client is None
        self._client = client or httpx.AsyncClient(timeout=_POLL.total_seconds() + 10)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._is_own:
            await self._client.aclose()

    async def fetch(self, topics: Mapping[str, timedelta], number: int) -> list[dict[str, Any]]:
        """Lock tasks, waiting for some at the engine."""
        asked = {
            "workerId": self._worker,
            "maxTasks": number,
            "usePriority": True,
            "asyncResponseTimeout": _milliseconds(_POLL),
            "topics": [{"topicName": name, "lockDuration": _milliseconds(lock)} for name, lock in topics.items()],
        }
        answer = await self._client.post(f"{self._url}/external-task/fetchAndLock", json=asked)
        answer.raise_for_status()
        tasks = answer.json()
        if not isinstance(tasks, list) or not all(isinstance(task, dict) and "topicName" in task for task in tasks):
            raise ValueError("what was answered are no tasks")
        return tasks

    async def tell(self, task: str, what: str, **said: Any) -> bool:
        """Say something about a task; false where it is gone, or locked by somebody else.

        Raises:
            _Refused: it is neither, and the engine does not take what it was told.
        """
        said["workerId"] = self._worker
        answer = await self._client.post(f"{self._url}/external-task/{task}/{what}", json=said)
        status = answer.status_code
        # 400 says that somebody else has the task, or that a variable is wrong: the task itself tells which.
        if status == httpx.codes.NOT_FOUND or (status == httpx.codes.BAD_REQUEST and not await self._is_ours(task)):
            log.info("the engine has no task %s for us any more (%s); its record stands", task, what)
            return False
        if status in (httpx.codes.BAD_REQUEST, httpx.codes.INTERNAL_SERVER_ERROR):
            raise _Refused(answer)
        answer.raise_for_status()
        return True

    async def _is_ours(self, task: str) -> bool:
        answer = await self._client.get(f"{self._url}/external-task/{task}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return False
        answer.raise_for_status()
        found = answer.json()
        return isinstance(found, dict) and found.get("workerId") == self._worker

    async def start(self, process: str, business_key: str, variables: Mapping[str, Any]) -> str:
        """Start an instance."""
        said = {"businessKey": business_key, "variables": typed_variables(variables)}
        answer = await self._client.post(f"{self._url}/process-definition/key/{process}/start", json=said)
        answer.raise_for_status()
        return str(answer.json()["id"])

    async def find_instance(self, business_key: str) -> str | None:
        """The instance of a business key, whether it has ended or not."""
        asked = {"processInstanceBusinessKey": business_key}
        answer = await self._client.get(f"{self._url}/history/process-instance", params=asked)
        answer.raise_for_status()
        found = answer.json()
        return str(found[0]["id"]) if found else None

    async def cleans_up(self) -> bool:
        """Whether history that is over is removed without being told to; so it is where the engine does not say."""
        answer = await self._client.get(f"{self._url}/history/cleanup/configuration")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return True
        answer.raise_for_status()
        return answer.json().get("batchWindowStartTime") is not None

    async def read_definitions(self, process: str | None) -> AsyncIterator[tuple[str, timedelta | None]]:
        """Every version of a process, or of all, and how long its history is kept."""
        asked: dict[str, Any] = {"sortBy": "id", "sortOrder": "asc", "maxResults": _PAGE}
        asked |= {} if process is None else {"key": process}
        first = 0
        while True:
            answer = await self._client.get(f"{self._url}/process-definition", params={**asked, "firstResult": first})
            answer.raise_for_status()
            found = answer.json()
            for version in found:
                days = version["historyTimeToLive"]
                yield str(version["key"]), None if days is None else timedelta(days=days)
            if len(found) < _PAGE:
                return
            first += len(found)


class _Worker:
    """Runs the tasks of some topics."""

    def __init__(
        self,
        engine: _Engine,
        connect: Callable[[], _Engine],
        delegates: Mapping[str, Runnable],
        *,
        lock: timedelta,
        most: int,
        stop: asyncio.Event,
    ) -> None:
        self._engine = engine
        self._connect = connect
        self._delegates = delegates
        self._lock = lock
        self._watches = {topic: StoreWatch(delegate) for topic, delegate in delegates.items()}
        self._locks = {topic: Locks(self._extender, delegate.policy) for topic, delegate in delegates.items()}
        self._room = asyncio.Semaphore(most)
        self._most = most
        self._stop = stop
        self._running = 0

    async def work(self) -> None:
        try:
            await self._work()
        finally:
            for watch in self._watches.values():
                watch.close()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while not self._stop.is_set():
                await self._room.acquire()  # there is room for one at least
                self._room.release()
                for task in await self._fetch():
                    await self._room.acquire()
                    self._running += 1
                    tasks.create_task(self._run(task))

    async def _fetch(self) -> list[dict[str, Any]]:
        """Tasks, for as many as there is room; none when told to stop meanwhile, or when the engine does not answer.

        Of a topic whose store does not answer none are fetched: they could only be given back.
        """
        fetching = asyncio.create_task(self._fetch_answering())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((fetching, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not fetching.done():
                fetching.cancel()  # what it has locked meanwhile comes free when its lock ends
                return []
            return fetching.result()
        except (httpx.HTTPError, ValueError) as error:
            log.warning("the engine does not answer, or not as it should (%s); asked again", type(error).__name__)
            await asyncio.sleep(_PAUSE)
            return []
        finally:
            stopping.cancel()
            fetching.cancel()

    async def _fetch_answering(self) -> list[dict[str, Any]]:
        down = [watch for watch in self._watches.values() if watch.is_down]
        topics = {topic: self._lock for topic, watch in self._watches.items() if watch not in down}
        if topics:
            return await self._engine.fetch(topics, self._most - self._running)
        waits = [asyncio.create_task(watch.wait()) for watch in down]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return []

    async def _run(self, task: Mapping[str, Any]) -> None:
        delegate, id_ = self._delegates[task["topicName"]], str(task["id"])

        try:
            with self._locks[task["topicName"]].extending(id_):
                end = await run_to_end(
                    delegate,
                    plain_variables(task.get("variables") or {}),
                    instance=task.get("processInstanceId"),
                    activity=task.get("activityId"),
                    business_key=task.get("businessKey"),
                )
            self._watches[task["topicName"]].note(end)
            await self._tell(id_, task, end)
        except (httpx.HTTPError, _Refused, ValueError) as error:
            # The lock ends, and whoever gets the task then finds the record.
            log.warning("the engine did not hear how %s ended (%s)", id_, type(error).__name__)
        finally:
            self._running -= 1
            self._room.release()

    @asynccontextmanager
    async def _extender(self) -> AsyncIterator[ExtendLock]:
        async with self._connect() as engine:

            async def extend(id_: str) -> bool:
                return await engine.tell(id_, "extendLock", newDuration=_milliseconds(self._lock))

            yield extend

    async def _tell(self, id_: str, task: Mapping[str, Any], end: End) -> None:
        try:
            await self._tell_end(id_, task, end)
        except _Refused as refusal:
            log.warning("the engine refuses to hear how %s ended; it is told as a failure", id_)
            left = (task.get("retries") or RETRIES) - 1 if refusal.may_pass else 0
            reason = f"The record of the task says how it ended, and the engine refuses to hear it: {refusal}"
            await self._engine.tell(id_, "failure", **_failure(reason, left, _AGAIN, _reference(end)))

    async def _tell_end(self, id_: str, task: Mapping[str, Any], end: End) -> None:
        tell = self._engine.tell
        match end:
            case Completed():
                await tell(id_, "complete", variables=typed_variables(end.variables))
            case BpmnError():
                variables = typed_variables(end.variables)
                await tell(id_, "bpmnError", errorCode=end.code, errorMessage=end.message, variables=variables)
            case Retry():
                left = task.get("retries") or RETRIES
                await tell(id_, "failure", **_failure(end.reason, left - end.counts, end.after))
            case Incident():
                await tell(id_, "failure", **_failure(end.reason, 0, timedelta(), end.reference))


def _reference(end: End) -> str:
    match end:
        case Completed():
            return str(end.variables.get(KEY, ""))
        case Incident():
            return end.reference
    return ""


def _failure(reason: str, retries: int, after: timedelta, details: str = "") -> dict[str, Any]:
    return {
        "errorMessage": reason[:_MOST_TEXT],
        "errorDetails": details,
        "retries": retries,
        "retryTimeout": _milliseconds(after),
    }


def plain_variables(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of a task as plain data; what the engine keeps as JSON is decoded."""
    return {name: _plain(variable) for name, variable in typed.items()}


def _plain(variable: Mapping[str, Any]) -> Any:
    value, info = variable.get("value"), variable.get("valueInfo") or {}
    is_json = variable.get("type") == "Json" or info.get("serializationDataFormat") == "application/json"
    if not is_json or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value  # the engine takes any text as JSON; whether a delegate can, its annotation says


def typed_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """JSON data as the engine takes it: each value with its type."""
    return {name: _typed(value) for name, value in variables.items()}


def _typed(value: Any) -> dict[str, Any]:
    match value:
        case None:
            return {"value": None, "type": "Null"}
        case bool():
            return {"value": value, "type": "Boolean"}
        case int() if -_INT64 <= value < _INT64:
            return {"value": value, "type": "Integer" if -_INT32 <= value < _INT32 else "Long"}
        case float():
            return {"value": value, "type": "Double"}
        case str() if len(value) <= _MOST_STRING:
            return {"value": value, "type": "String"}
    return {"value": json.dumps(value), "type": "Json"}


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
