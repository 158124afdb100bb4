"""A small server of Camunda 7's external tasks: locks with a clock, retries, incidents, and answers that are lost.

It keeps what the REST interface of the engine says: who holds a lock may complete, extend or fail a task, anybody else
is told 400, and of a task that is done 404. A variable that is not of its type is refused with 400, too, and a string
longer than its column with 500. A business key may have many instances. A lock that is over lets the next worker have
the task.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

MOST_STRING = 4000


@dataclass
class ExternalTask:
    """A task that waits for workers."""

    id: str
    topic: str
    variables: dict[str, Any]
    retries: int | None = None
    worker: str | None = None
    until: float = 0.0
    ended: str | None = None
    said: dict[str, Any] = field(default_factory=dict)
    extended: int = 0


class Camunda:
    """The engine, as a transport of httpx.

    `lose` names calls whose effect happens and whose answer is lost, and `drop` calls that never arrive; so often each.
    `answer_instead` is what is answered to the next call of a name.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, ExternalTask] = {}
        self.instances: list[tuple[str, str]] = []
        self.lose: Counter[str] = Counter()
        self.drop: Counter[str] = Counter()
        self.answer_instead: dict[str, httpx.Response] = {}
        self.handed_out: Counter[str] = Counter()
        self.refused: list[tuple[str, int]] = []
        self.changed = asyncio.Condition()
        self._loop = asyncio.get_running_loop()

    def client(self) -> httpx.AsyncClient:
        """A client that talks to it, from any thread: what it does takes no turns."""
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer), base_url="http://engine")

    def add(self, id_: str, topic: str, variables: dict[str, Any]) -> ExternalTask:
        """A process has come to an external task."""
        typed = {
            name: {"value": value, "type": "Json" if isinstance(value, dict) else "String"}
            for name, value in variables.items()
        }
        task = self.tasks[id_] = ExternalTask(id_, topic, typed)
        return task

    def end_lock(self, id_: str) -> None:
        """As if the time of a lock was over."""
        self.tasks[id_].until = 0.0

    async def until_ended(self, id_: str) -> ExternalTask:
        """Wait for the end of a task."""
        return await self.until(id_, lambda task: task.ended is not None)

    async def until(self, id_: str, condition: Any) -> ExternalTask:
        """Wait until it is so."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: condition(self.tasks[id_]))
        return self.tasks[id_]

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/engine-rest")
        said = json.loads(request.content) if request.content else {}
        what = path.rsplit("/", 1)[-1]
        if self.drop[what] > 0:
            self.drop[what] -= 1
            raise httpx.ConnectError("there is no way")
        if what in self.answer_instead:
            return self.answer_instead.pop(what)
        if request.method == "GET" and what in self.tasks:
            return self._show(self.tasks[what])
        if what == "fetchAndLock":
            answer = await self._fetch(said)
        elif what == "start":
            answer = self._start(said)
        elif what == "process-instance":
            asked = request.url.params["processInstanceBusinessKey"]
            answer = httpx.Response(200, json=[{"id": id_} for key, id_ in self.instances if key == asked])
        else:
            answer = self._tell(path.split("/")[-2], what, said)
        if asyncio.get_running_loop() is self._loop:
            await self._tell_waiters()
        else:
            with suppress(RuntimeError):  # the test is over
                self._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._tell_waiters()))
        if self.lose[what] > 0:
            self.lose[what] -= 1
            raise httpx.ReadError("the connection was closed")
        return answer

    async def _tell_waiters(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _fetch(self, said: dict[str, Any]) -> httpx.Response:
        topics = {topic["topicName"]: topic["lockDuration"] / 1000 for topic in said["topics"]}
        found = self._lock(said, topics)
        if not found:
            await asyncio.sleep(0.02)  # the engine keeps the request open
            found = self._lock(said, topics)
        return httpx.Response(200, json=found)

    def _lock(self, said: dict[str, Any], topics: dict[str, float]) -> list[dict[str, Any]]:
        now = time.monotonic()
        found: list[dict[str, Any]] = []
        for task in self.tasks.values():
            is_free = task.ended is None and task.until <= now and task.retries != 0
            if is_free and task.topic in topics and len(found) < said["maxTasks"]:
                task.worker, task.until = said["workerId"], now + topics[task.topic]
                self.handed_out[task.id] += 1
                found.append(
                    {
                        "id": task.id,
                        "topicName": task.topic,
                        "processInstanceId": "proc-1",
                        "activityId": "SUB_08",
                        "businessKey": "cycle-1",
                        "retries": task.retries,
                        "variables": task.variables,
                    }
                )
        return found

    def _tell(self, id_: str, what: str, said: dict[str, Any]) -> httpx.Response:
        task = self.tasks[id_]
        if task.ended is not None:
            self.refused.append((what, 404))
            return httpx.Response(404, json={"type": "RestException", "message": "does not exist"})
        if task.worker != said["workerId"]:
            self.refused.append((what, 400))
            return httpx.Response(400, json={"type": "RestException", "message": "is locked by another worker"})
        for variable in said.get("variables", {}).values():
            if problem := _problem(variable):
                self.refused.append((what, problem))
                return httpx.Response(problem, json={"type": "RestException", "message": "cannot take the variable"})
        if what == "extendLock":
            task.extended += 1
            task.until = time.monotonic() + said["newDuration"] / 1000
        elif what == "failure":
            task.retries, task.said = said["retries"], said
            task.worker, task.until = None, time.monotonic() + said["retryTimeout"] / 1000
        else:
            task.ended, task.said = what, said
        return httpx.Response(204)

    def _show(self, task: ExternalTask) -> httpx.Response:
        if task.ended is not None:
            return httpx.Response(404, json={"type": "RestException", "message": "does not exist"})
        return httpx.Response(200, json={"id": task.id, "workerId": task.worker})

    def _start(self, said: dict[str, Any]) -> httpx.Response:
        instance = f"proc-{len(self.instances) + 1}"
        self.instances.append((said["businessKey"], instance))
        return httpx.Response(200, json={"id": instance})


def _problem(variable: dict[str, Any]) -> int | None:
    """The status by which a variable is refused."""
    value = variable["value"]
    match variable["type"]:
        case "String" | "Json":
            is_right = isinstance(value, str)
            if is_right and variable["type"] == "String" and len(value) > MOST_STRING:
                return 500
        case "Integer":
            is_right = isinstance(value, int) and -(2**31) <= value < 2**31
        case "Long":
            is_right = isinstance(value, int) and -(2**63) <= value < 2**63
        case "Boolean":
            is_right = isinstance(value, bool)
        case "Double":
            is_right = isinstance(value, float)
        case "Null":
            is_right = value is None
        case _:
            is_right = False
    return None if is_right else 400
