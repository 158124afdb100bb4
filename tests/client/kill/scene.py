"""The scene of a run: service, proxy and the line on which lives tell how far they are, in a thread of their own.

What always holds: everything in here happens in one event loop; the killer asks from outside and waits for the answer.
When the line of a life ends, all that it said has been heard.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from tests.client.kill.positions import At
from tests.client.kill.proxy import Proxy
from tests.client.kill.script import Script
from tests.client.kill.service import Service
from tests.client.kill.story import Life, Report, Story

T = TypeVar("T")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HOST: Final = "127.0.0.1"
_SOON: Final = 30.0


class Scene:
    """Servers on free ports of the loopback interface: `port` is that of the proxy, `line` the one for lives."""

    def __init__(self) -> None:
        self._scripts: dict[str, Script] = {}
        self._at_work: set[asyncio.Task[Any]] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scene")
        self._service = Service(self._scripts.__getitem__)
        self.port = self.line = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def begin(self, number: int, turn: int, life: Life) -> Script:
        """The script of a life that is about to begin."""
        script = Script(number, life)
        self._loop.call_soon_threadsafe(self._scripts.__setitem__, f"{number}.{turn}", script)
        return script

    def let_go(self, script: Script) -> None:
        """The life is dead: go on with what was held."""
        self._loop.call_soon_threadsafe(script.release.set)

    def finish(self, story: Story) -> None:
        """Let everything that was begun come to its end, and write down what the service saw and did."""
        self._do(self._quiet())
        number = story.plan.number
        story.requests = self._service.requests.get(number, [])
        story.effects = self._service.effects.get(number, [])

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_SOON)

    async def _open(self) -> None:
        inner = await self._start(self._service.serve)
        proxy = Proxy(self._scripts.__getitem__, lambda: asyncio.open_connection(HOST, inner))
        self.port = await self._start(proxy.serve)
        self.line = await self._start(self._listen)

    async def _start(self, handler: Handler) -> int:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._at_work.add(task)
            try:
                with contextlib.suppress(asyncio.CancelledError):  # a run that was broken off
                    await handler(reader, writer)
            finally:
                writer.close()
                self._at_work.discard(task)

        server = await asyncio.start_server(handle, HOST, 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _quiet(self) -> None:
        for script in self._scripts.values():
            script.release.set()
        while self._at_work:
            await asyncio.wait(self._at_work)
        self._scripts.clear()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._at_work:
            task.cancel()
        if self._at_work:
            await asyncio.wait(self._at_work)

    async def _listen(self, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        script = self._scripts[(await reader.readline()).decode().strip()]
        while line := await reader.readline():
            match json.loads(line):
                case {"note": name}:
                    script.life.notes.append(At[name])
                case {"stop": name}:
                    script.events.put(At[name])
                case {"report": values}:
                    script.life.report = _report(values)
        script.events.put(None)


def _report(values: dict[str, Any]) -> Report:
    """As it was before it went over the line, where tuples become lists."""
    asked = values["asked"] and tuple(values["asked"])
    return Report(**values | {"resumed": [tuple(answer) for answer in values["resumed"]], "asked": asked})
