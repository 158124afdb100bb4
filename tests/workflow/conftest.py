"""What the tests of workflows share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from semel.stores.memory import MemoryStore
from semel.stores.postgresql import PostgresStore
from semel.stores.sqlite import SqliteStore
from semel.testing import VirtualClock
from tests.servers.records import emptied
from tests.workflow.clinic import Gateway, PayClaim, SyncPayClaim
from tests.workflow.temporal_server import temporal_server


class Clinic:
    """A delegate of one kind on one store, driven without telling the kinds apart."""

    def __init__(self, kind: str, store: Any, clock: VirtualClock, gateway: Gateway | None = None) -> None:
        self.kind = kind
        self.store = store
        self.clock = clock
        self.gateway = gateway or Gateway()
        self.loop = asyncio.new_event_loop() if kind == "async" else None
        self.semel: Any = (AsyncSemel if self.loop else Semel)(store, clock=clock)
        self.pay: Any = self.make(PayClaim, SyncPayClaim)

    def make(self, of_loops: Any, of_threads: Any) -> Any:
        """The delegate of this kind."""
        return (of_loops if self.loop else of_threads)(self.semel, self.gateway)

    def wait(self, answer: Any) -> Any:
        """What was awaited, or is there already."""
        return self.loop.run_until_complete(answer) if self.loop else answer

    def run(self, variables: Any, delegate: Any = None, **place: Any) -> Any:
        """Run a task."""
        run = (delegate or self.pay).run
        return self.loop.run_until_complete(_later(run, variables, place)) if self.loop else run(variables, **place)

    def compensate(self, variables: Any, delegate: Any = None, **place: Any) -> Any:
        """Undo a task."""
        run = (delegate or self.pay).run_compensation
        return self.loop.run_until_complete(_later(run, variables, place)) if self.loop else run(variables, **place)

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the engine."""
        return self.wait(function(*args, **kwargs))

    def close(self) -> None:
        """End it."""
        self.wait(self.semel.close())
        if self.loop:
            self.loop.close()


async def _later(run: Any, variables: Any, place: Any) -> Any:
    return await run(variables, **place)


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clinic(request: pytest.FixtureRequest, kind: str, store: str, tmp_path: Path) -> Iterator[Clinic]:
    """The clinic on an empty store, whose clock the test moves."""
    clock = VirtualClock()
    now: Any = clock.store_clock
    made: Any
    if store == "memory":
        made = MemoryStore(clock=now)
    elif store == "sqlite":
        made = SqliteStore(tmp_path / "semel.db", clock=now, synchronous="NORMAL")
    else:
        databases = request.getfixturevalue("postgresql")
        made = PostgresStore(emptied(databases, databases.url), clock=now)
    found = Clinic(kind, made, clock)
    yield found
    found.close()


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server of Temporal answers."""
    with temporal_server(tmp_path_factory.mktemp("temporal")) as found:
        yield found
