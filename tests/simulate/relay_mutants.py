"""Mistakes one could make with relays, each as a switch that puts it in, and the invariants that may give it away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from semel.core.events.outbox import CursorLost, CursorSaved, ParkedEvent, ReadReleased, ReleasedEvents, SaveCursor
from semel.events import publishing
from semel.events.publishing import PartPublisher
from semel.stores.events.outbox import MemoryOutbox
from semel.stores.mysql.outbox import MysqlOutbox
from semel.stores.postgresql import outbox as postgresql_outbox
from semel.stores.postgresql.outbox import PostgresOutbox
from semel_lab.simulate.relays.outboxes import DeletingServer, SnapshotServer

Switch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class RelayMutant:
    """A mistake, the invariants it breaks, and the kind of outbox it is made in; empty: in any."""

    name: str
    switch: Switch
    breaks: frozenset[str]
    outbox: str

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


RELAY_MUTANTS: list[RelayMutant] = []


def mutant(name: str, *breaks: str, outbox: str = "") -> Callable[[Switch], Switch]:
    def add(switch: Switch) -> Switch:
        RELAY_MUTANTS.append(RelayMutant(name, switch, frozenset(breaks), outbox))
        return switch

    return add


def swapped(target: Any, name: str, wrong: Any) -> AbstractContextManager[Any]:
    return patch.object(target, name, wrong)


@mutant("the cursor goes by position", "R2", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    right: Any = PostgresOutbox.read

    def read(self: Any, cursor: Any, limit: int) -> Any:
        batch = yield from right(self, replace(cursor, seen="1:1:", floor=cursor.at, until=None), limit)
        at = batch.events[-1].position if batch.events else cursor.at
        return replace(batch, cursor=replace(cursor, at=at))

    return swapped(PostgresOutbox, "read", read)


@mutant("the floor of a window is read with its snapshot", "R2", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    right: Any = PostgresOutbox.read

    def read(self: Any, cursor: Any, limit: int) -> Any:
        batch = yield from right(self, cursor, limit)
        behind = batch.cursor
        return replace(batch, cursor=replace(behind, floor=behind.top) if batch.is_last else behind)

    return swapped(PostgresOutbox, "read", read)


@mutant("no write lies between the floor and the snapshot", "R2", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    right: Any = PostgresOutbox.read
    return swapped(
        PostgresOutbox, "read", lambda self, cursor, limit: right(self, replace(cursor, safe=cursor.top), limit)
    )


@mutant("nobody looks for late ones below the floor", "R2", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    return patch("semel_lab.simulate.relays.outboxes.late_ones", lambda _snapshot: set[int]())


@mutant("a take-over counts the window under way as published", "R2", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    right: Any = postgresql_outbox._cursor_of

    def cursor_of(part: Any, known: Any, cluster: Any) -> Any:
        cursor = right(part, known, cluster)
        return cursor if cursor.until is None else replace(cursor, seen=cursor.until, until=None, at=0)

    return swapped(postgresql_outbox, "_cursor_of", cursor_of)


@mutant("a take-over begins at the highest position there is", "R2", "R3", outbox="positions")
def _() -> AbstractContextManager[Any]:
    right: Any = MemoryOutbox._open

    def open_(self: Any, part: Any, *others: Any) -> Any:
        found = right(self, part, *others)
        cursor = self._cursors[part] = replace(found.cursor, at=self._last)
        return replace(found, cursor=cursor)

    return swapped(MemoryOutbox, "_open", open_)


@mutant("a window has no end", "R3", outbox="deleting")
def _() -> AbstractContextManager[Any]:
    right: Any = MysqlOutbox.read

    def read(self: Any, cursor: Any, limit: int) -> Any:
        return right(self, replace(cursor, top=2**63 - 1), limit)

    return swapped(MysqlOutbox, "read", read)


@mutant("whoever was overtaken reads on", "R3", outbox="deleting")
def _() -> AbstractContextManager[Any]:
    right: Any = DeletingServer._batch

    def batch(self: Any, *values: Any) -> Any:
        *others, _token, limit = values
        _, owner = self._cursors[0, 1]
        return right(self, *others, owner, limit)

    return swapped(DeletingServer, "_batch", batch)


@mutant("whoever was overtaken reads nothing and takes it for published", "R2", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    right: Any = SnapshotServer._batch

    def batch(self: Any, *values: Any) -> Any:
        return [(until, top, True, *rest) for until, top, _, *rest in right(self, *values)]

    return swapped(SnapshotServer, "_batch", batch)


@mutant("a relay has no fence by snapshots", "R4", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    right: Any = SnapshotServer._save

    def save(self: Any, stream: str, part: int, parts: int, _number: int, *values: Any) -> Any:
        newest = max(self._cursors.get((parts, part), {0: None}))
        return right(self, stream, part, parts, newest + 1, *values)

    return swapped(SnapshotServer, "_save", save)


@mutant("a relay has no fence by positions", "R4", outbox="positions")
def _() -> AbstractContextManager[Any]:
    def save(self: Any, operation: SaveCursor, now: int) -> Any:
        saved = self._cursors[operation.cursor.part]
        following = replace(operation.cursor, number=saved.number + 1)
        self._cursors[operation.cursor.part] = following
        self._park(operation.parked, now)
        return CursorSaved(following)

    return swapped(MemoryOutbox, "_save", save)


@mutant("a relay has no fence, deleting", "R4", outbox="deleting")
def _() -> AbstractContextManager[Any]:
    def save(self: Any, _stream: str, part: int, parts: int, number: int, token: bytes) -> None:
        self._cursors[part, parts] = number + 1, token

    return swapped(DeletingServer, "_save", save)


@mutant("the cursor is saved before the broker has confirmed", "R2", "R3")
def _() -> AbstractContextManager[Any]:
    async def publish_batch(self: Any, batch: Any) -> int:
        positions = tuple(stored.position for stored in batch.events)
        saved = await self._ask(SaveCursor(batch.cursor.following(self._opened), positions))
        if isinstance(saved, CursorLost):
            raise publishing.Overtaken
        self._cursor, self._is_unsaved = saved.cursor, False
        await self._publish(batch.events)
        return len(positions)

    return swapped(PartPublisher, "_publish_batch", publish_batch)


@mutant("a broker that is gone is taken for a confirmation", "R2", "R3")
def _() -> AbstractContextManager[Any]:
    right: Any = PartPublisher._send

    async def send(self: Any, wave: Any) -> Any:
        return [None if isinstance(error, OSError) else error for error in await right(self, wave)]

    return swapped(PartPublisher, "_send", send)


@mutant("a broker that is gone has events parked", "R5")
def _() -> AbstractContextManager[Any]:
    return swapped(publishing, "OUTAGES", ())


@mutant("what is not committed is read by snapshots", "R1", "R2", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    return together(_dirty(), patch("semel_lab.simulate.relays.outboxes.sees", lambda snapshot, _: snapshot != "1:1:"))


@mutant("what is not committed is read, deleting", "R1", "R3", "broke", outbox="deleting")
def _() -> AbstractContextManager[Any]:
    return _dirty()


@mutant("a held key is not held", "R3")
def _() -> AbstractContextManager[Any]:
    right: Any = PartPublisher._next_wave

    def next_wave(self: Any, waiting: Any, done: Any, refused: Any) -> Any:
        held, self._held = self._held, set()
        try:
            return right(self, waiting, done, refused)
        finally:
            self._held = held

    return swapped(PartPublisher, "_next_wave", next_wave)


@mutant("what waits behind a parked event is not kept", "R2", "R3")
def _() -> AbstractContextManager[Any]:
    right: Any = PartPublisher._publish

    async def publish(self: Any, events: Any) -> Any:
        done = await right(self, events)
        done.parked = [one for one in done.parked if one.error is not None]
        return done

    return swapped(PartPublisher, "_publish", publish)


@mutant("events of one key are published together", "R3")
def _() -> AbstractContextManager[Any]:
    def next_wave(self: Any, waiting: Any, done: Any, _refused: Any) -> Any:
        held = [stored for stored in waiting if stored.event.ordering_key in self._held - {None}]
        done.parked += [ParkedEvent(stored=stored, error=None) for stored in held]
        rest = [stored for stored in waiting if stored not in held]
        return rest[: self._settings.in_flight], rest[self._settings.in_flight :]

    return swapped(PartPublisher, "_next_wave", next_wave)


@mutant("released events come last first", "R3", outbox="positions")
def _() -> AbstractContextManager[Any]:
    return _released(lambda events: tuple(reversed(events)))


@mutant("what waits is released before the event it waits for", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    def released(self: Any, stream: str, parts: int, number: int, limit: int) -> Any:
        mine = self._of(stream, parts, number)
        return [tuple(row) for row in mine if row[-4] is None][:limit]

    return swapped(SnapshotServer, "_released", released)


@mutant("released events are published after later ones", "R3")
def _() -> AbstractContextManager[Any]:
    right: Any = PartPublisher._publish_released

    async def publish_released(self: Any) -> int:
        self._held.clear()
        return await right(self)  # type: ignore[no-any-return]

    return swapped(PartPublisher, "_publish_released", publish_released)


@mutant("the cursor passes what is parked in a write of its own", "R2", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    right: Any = PostgresOutbox.save

    def save(self: Any, operation: SaveCursor) -> Any:
        saved = yield from self._save(operation.cursor, ())
        if isinstance(saved, CursorLost) or not operation.parked:
            return saved
        return (yield from right(self, replace(operation, cursor=saved.cursor)))

    return swapped(PostgresOutbox, "save", save)


@mutant("what is not published is deleted with the rest", "R2", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    right: Any = SnapshotServer._purge

    def purge(self: Any, after: int, _floor: int, *others: Any) -> Any:
        return right(self, after, self.last, *others[:-3], "99999:99999:", *others[-2:])

    return swapped(SnapshotServer, "_purge", purge)


@mutant("numbers of another cluster are taken for those of this one", "R2", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    def is_of_another_cluster(*_: Any) -> Any:
        return False
        yield

    return swapped(PostgresOutbox, "_is_of_another_cluster", is_of_another_cluster)


@mutant("what nobody has read is never numbered again", "R2", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    right: Any = PostgresOutbox._is_of_another_cluster

    def is_of_another_cluster(self: Any, cursor: Any, *others: Any) -> Any:
        return cursor.seen != "1:1:" and (yield from right(self, cursor, *others))

    return swapped(PostgresOutbox, "_is_of_another_cluster", is_of_another_cluster)


@mutant("what is numbered again is seen by the snapshot of that", "R2", "R3", outbox="snapshots")
def _() -> AbstractContextManager[Any]:
    right: Any = SnapshotServer._rebase

    def rebase(self: Any, *values: Any) -> Any:
        right(self, *values)
        return [(self._snapshot(),)]

    return swapped(SnapshotServer, "_rebase", rebase)


@mutant("what is set aside is not kept", "R2", "R3")
def _() -> AbstractContextManager[Any]:
    def set_aside(self: Any, _done: Any, stored: Any, _attempts: int) -> None:
        self._held.add(stored.event.ordering_key)

    return swapped(PartPublisher, "_set_aside", set_aside)


@mutant("what is set aside does not hold its key", "R3")
def _() -> AbstractContextManager[Any]:
    def set_aside(_self: Any, done: Any, stored: Any, attempts: int) -> None:
        done.parked.append(ParkedEvent(stored=stored, error=None, attempts=attempts))

    return swapped(PartPublisher, "_set_aside", set_aside)


def _dirty() -> AbstractContextManager[Any]:
    """Rows of transactions that have not ended are seen."""

    def seen(self: Any) -> Any:
        return [(position, transaction, row) for position, (transaction, row) in sorted(self.rows.items())]

    return swapped(SnapshotServer.__base__, "_seen", seen)


def _released(change: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    right: Any = MemoryOutbox._about_parked

    def about_parked(self: Any, operation: Any, now: int) -> Any:
        answer = right(self, operation, now)
        return ReleasedEvents(change(answer.events)) if isinstance(operation, ReadReleased) else answer

    return swapped(MemoryOutbox, "_about_parked", about_parked)


def together(*switches: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    stack = ExitStack()
    for switch in switches:
        stack.enter_context(switch)
    return stack
