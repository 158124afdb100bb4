"""One scenario, two colours. Scenarios are coroutines; in the sync colour nothing in them ever really waits.

A handler is written as a coroutine too. For `Semel` it is driven to its end on the spot, in the very thread and
context of the caller: what it awaits are plain calls of the sync engine, dressed up.
"""

import asyncio
import contextvars
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from semel import AsyncSemel, Policy, Semel
from semel.core.record import Record
from semel.engine.call_flow import Result
from semel.stores.sqlite import SqliteStore
from tests.decorated import CallStyle, call

Handler = Callable[..., Coroutine[Any, Any, Any]]
REJECT = Policy(when_running="reject")


def drive(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    work.close()
    message = "a sync scenario waited"
    raise AssertionError(message)


def store(path: Path) -> SqliteStore:
    """A store that never loses patience: whoever waits for a lock of its own hangs, and is found by the time limit."""
    return SqliteStore(path, busy_for=timedelta(hours=1))


class World:
    """What both colours share: the file, and connections as a caller has them."""

    colour: str
    semel: Any

    def __init__(self, path: Path, style: CallStyle = "run") -> None:
        self.path = path
        self.style = style
        self.runs: list[str] = []
        self._connections: list[sqlite3.Connection] = []
        self.semel = self.engine()

    def engine(self, path: Path | None = None) -> Any:
        """An engine of this colour."""
        raise NotImplementedError

    def connect(self, path: Path | str | None = None, **settings: Any) -> sqlite3.Connection:
        """A connection of the caller; `timeout=0` answers at once where the write lock is taken."""
        settings.setdefault("timeout", 0)
        connection: sqlite3.Connection = sqlite3.connect(path or self.path, **settings)
        self._connections.append(connection)
        return connection

    def rows(self) -> list[str]:
        """The effects that are committed, as an outsider sees them."""
        connection = sqlite3.connect(self.path, timeout=0)
        names = [name for (name,) in connection.execute("SELECT name FROM effect ORDER BY rowid")]
        connection.close()
        return names

    def statuses(self) -> list[str]:
        """The records that are committed, as an outsider sees them."""
        connection = sqlite3.connect(self.path, timeout=0)
        found = [status for (status,) in connection.execute("SELECT status FROM semel_record ORDER BY rowid")]
        connection.close()
        return found

    def effect(
        self, connection: sqlite3.Connection, name: str = "charged", error: BaseException | None = None
    ) -> Handler:
        """A handler that writes a row, and then returns its name or raises."""

        async def handler() -> str:
            self.runs.append(name)
            connection.execute("INSERT INTO effect VALUES (?)", [name])
            if error is not None:
                raise error
            return name

        return handler

    @staticmethod
    async def nothing() -> str:
        """A handler without an effect."""
        return "done"

    async def resolve(self, key: str, resolution: Any) -> Record:
        """`resolve(...)`."""
        raise NotImplementedError

    async def sweep(self) -> None:
        """`sweep()`."""
        raise NotImplementedError

    async def listed(self) -> list[str]:
        """The keys of `records()`."""
        raise NotImplementedError

    async def apart(self, body: Handler) -> None:
        """As another caller would: in a context that knows nothing of this one."""
        raise NotImplementedError

    async def close_engine(self, engine: Any) -> None:
        """Close an engine that the test made."""
        raise NotImplementedError

    async def call(
        self, connection: sqlite3.Connection, key: str, handler: Handler, *, semel: Any = None, **settings: Any
    ) -> Result[Any]:
        """`within(connection).run(...)`, or a decorated function inside `with within(connection)`."""
        raise NotImplementedError

    async def inside(self, connection: sqlite3.Connection, body: Handler, *, semel: Any = None) -> Any:
        """`with within(connection): ...`."""
        raise NotImplementedError

    async def run(self, key: str, handler: Handler, *, semel: Any = None, **settings: Any) -> Result[Any]:
        """`run(...)`, wherever it is, or a decorated function."""
        raise NotImplementedError

    async def step(self, name: str, function: Handler, *args: Any, **settings: Any) -> Any:
        """`current().step(...)`."""
        raise NotImplementedError

    async def read(self, key: str, *, semel: Any = None) -> Record | None:
        """`read(...)`."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close what the test left open."""
        for connection in self._connections:
            with suppress(sqlite3.ProgrammingError):
                connection.close()


class SyncWorld(World):
    """`Semel`."""

    colour = "sync"

    def engine(self, path: Path | None = None) -> Semel:
        return Semel(store(path or self.path))

    async def call(
        self, connection: sqlite3.Connection, key: str, handler: Handler, *, semel: Any = None, **settings: Any
    ) -> Result[Any]:
        engine: Semel = semel or self.semel
        if self.style == "run":
            return engine.within(connection).run(
                key, _plain(handler), operation="charge", **{"fingerprint": None, **settings}
            )
        with engine.within(connection):
            return await self.run(key, handler, semel=semel, **settings)

    async def inside(self, connection: sqlite3.Connection, body: Handler, *, semel: Any = None) -> Any:
        with (semel or self.semel).within(connection):
            return drive(body())

    async def run(self, key: str, handler: Handler, *, semel: Any = None, **settings: Any) -> Result[Any]:
        engine: Semel = semel or self.semel
        result: Result[Any] = call(self.style, engine, key, _plain(handler), operation="charge", **settings)
        return result

    async def step(self, name: str, function: Handler, *args: Any, **settings: Any) -> Any:
        return self.semel.current().step(name, _plain(function), *args, **settings)

    async def read(self, key: str, *, semel: Any = None) -> Record | None:
        record: Record | None = (semel or self.semel).read(key, operation="charge")
        return record

    async def resolve(self, key: str, resolution: Any) -> Record:
        record: Record = self.semel.resolve(key, resolution, operation="charge", reason="looked")
        return record

    async def sweep(self) -> None:
        self.semel.sweep()

    async def listed(self) -> list[str]:
        return [record.key.value for record in self.semel.records()]

    async def apart(self, body: Handler) -> None:
        contextvars.Context().run(drive, body())

    async def close_engine(self, engine: Any) -> None:
        engine.close()

    async def close(self) -> None:
        await super().close()
        self.semel.close()


class AsyncWorld(World):
    """`AsyncSemel`."""

    colour = "async"

    def engine(self, path: Path | None = None) -> AsyncSemel:
        return AsyncSemel(store(path or self.path))

    async def call(
        self, connection: sqlite3.Connection, key: str, handler: Handler, *, semel: Any = None, **settings: Any
    ) -> Result[Any]:
        engine: AsyncSemel = semel or self.semel
        if self.style == "run":
            return await engine.within(connection).run(
                key, handler, operation="charge", **{"fingerprint": None, **settings}
            )
        async with engine.within(connection):
            return await self.run(key, handler, semel=semel, **settings)

    async def inside(self, connection: sqlite3.Connection, body: Handler, *, semel: Any = None) -> Any:
        async with (semel or self.semel).within(connection):
            return await body()

    async def run(self, key: str, handler: Handler, *, semel: Any = None, **settings: Any) -> Result[Any]:
        engine: AsyncSemel = semel or self.semel
        result: Result[Any] = await call(self.style, engine, key, handler, operation="charge", **settings)
        return result

    async def step(self, name: str, function: Handler, *args: Any, **settings: Any) -> Any:
        return await self.semel.current().step(name, function, *args, **settings)

    async def read(self, key: str, *, semel: Any = None) -> Record | None:
        record: Record | None = await (semel or self.semel).read(key, operation="charge")
        return record

    async def resolve(self, key: str, resolution: Any) -> Record:
        record: Record = await self.semel.resolve(key, resolution, operation="charge", reason="looked")
        return record

    async def sweep(self) -> None:
        await self.semel.sweep()

    async def listed(self) -> list[str]:
        return [record.key.value async for record in self.semel.records()]

    async def apart(self, body: Handler) -> None:
        await asyncio.get_running_loop().create_task(body(), context=contextvars.Context())

    async def close_engine(self, engine: Any) -> None:
        await engine.close()

    async def close(self) -> None:
        await super().close()
        await self.semel.close()


def _plain(handler: Handler) -> Callable[..., Any]:
    def plain(*args: Any, **kwargs: Any) -> Any:
        return drive(handler(*args, **kwargs))

    return plain
