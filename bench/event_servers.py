"""PostgreSQL with a broker beside it, for cases that move events; and events to move.

Invariant: a broker writes what is durable to disk before it confirms, in the folder that is measured; what
answers as SQS and EventBridge is an emulator, which keeps everything in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import postgresql_server
from bench.room import room_in, standing
from bench.site import Site, Unavailable
from semel import AsyncSemel
from semel.core.events.outbox import AddEvents
from semel.core.flow import Flow, ask
from semel.engine.engine import engine_of
from semel.events import Event
from semel.events.encoding import to_outbox
from tests.servers import ministack, nats, programs, rabbitmq, redis
from tests.servers.databases import Endpoint
from tests.servers.room import Room
from tests.servers.server import Options

STREAM = "default"
_PAYLOAD = "x" * 150
_AT_ONCE = 1_000


@dataclass(frozen=True)
class _Started:
    endpoint: Endpoint
    pid: int


def _start_emulator(room: Room, _: Options) -> _Started:
    server = ministack.start(room)
    return _Started(Endpoint(server.url), server.pid)


_STARTS: dict[str, Callable[..., Any]] = {
    "rabbitmq": rabbitmq.start,
    "nats": nats.start,
    "redis": redis.start,
    "sqs": _start_emulator,
    "eventbridge": _start_emulator,
}


def with_broker(kind: str) -> Callable[[Path, int], AbstractContextManager[Site]]:
    """A site of PostgreSQL and a broker of this kind."""

    @contextmanager
    def site(folder: Path, rows: int) -> Iterator[Site]:
        with (
            postgresql_server.server(folder, rows) as database,
            standing(folder, kind, lambda: _started(kind, folder)) as pid,
        ):
            yield Site(database.settings, (*database.processes, pid))

    return site


@contextmanager
def _started(kind: str, folder: Path) -> Iterator[int]:
    with room_in(folder) as room:
        try:
            started = _STARTS[kind](room, Options(fsync=True))
        except programs.ServerMissing as missing:
            raise Unavailable(str(missing)) from None
        (folder / f"{kind}.url").write_text(started.endpoint.url, encoding="utf-8")
        yield started.pid


def broker_address(kind: str, folder: Path) -> str:
    """The URL of the broker."""
    return (folder / f"{kind}.url").read_text(encoding="utf-8")


def events_of(numbers: Sequence[int]) -> list[Event]:
    """Events with about 200 bytes of data each."""
    return [
        Event(
            type="placed",
            source="/bench",
            id=f"event-{number:010}",
            subject=f"order-{number:010}",
            data={"order_id": f"order-{number:010}", "note": _PAYLOAD},
        )
        for number in numbers
    ]


async def fill_outbox(semel: AsyncSemel, events: Sequence[Event]) -> None:
    """Add events, many with each statement."""
    engine: Any = engine_of(semel)
    kept = [to_outbox(event, STREAM, None) for event in events]
    for start in range(0, len(kept), _AT_ONCE):
        await engine.perform_on(None, _add(AddEvents(tuple(kept[start : start + _AT_ONCE]))))


def _add(operation: AddEvents) -> Flow[None]:
    yield from ask(operation)
