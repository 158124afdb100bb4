"""How a relay publishes one part of a stream while it holds it: reading, publishing, saving, parking.

- A cursor is saved after what it passes was confirmed or parked. Whatever happens in between, the events are published
  again: at least once, never not at all.
- Of one ordering key, never two events are on their way at the same time; while one of them is parked, the later ones
  wait behind it.
- What the broker did not take because it could not be reached is no fault of the event: it is tried again for as long
  as the part is held, and parked by nobody.
- What one destination does not take for now, as a full queue, is set aside: kept with what is parked, without an error,
  so that the cursor moves on. It holds its key, and is tried again before anything that was added later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import isawaitable
from typing import Any, Final, Literal, Protocol

from msgspec.structs import replace

from semel.core.events.outbox import (
    Cursor,
    CursorLost,
    EventBatch,
    EventsPurged,
    OpenCursor,
    ParkedEvent,
    PurgeEvents,
    ReadEvents,
    ReadReleased,
    SaveCursor,
    SettleReleased,
    StoredEvent,
    StreamPart,
)
from semel.core.observer import Observer, Signal, Work, is_heard, notify, tracer_of, tracing
from semel.core.policy import microseconds
from semel.core.record import Failure
from semel.engine.clock import Clock
from semel.errors import RecordUnreadable, TryLater, UsageError
from semel.events.delivery import trace_of
from semel.events.disposition import Backoff
from semel.events.encoding import from_outbox
from semel.events.event import Event
from semel.handlers import WasCancelled, async_is_cut_off

_log: Final = logging.getLogger("semel")
OUTAGES: Final = (OSError, TimeoutError, TryLater)
"""Errors that say nothing of the event: the broker was not there, or did not answer. ConnectionError is an OSError."""
_PURGE_EVERY: Final = 60.0
_PURGE_LOT: Final = 5000
_WARN_EVERY: Final = 60.0
_MOST_CAUSES: Final = 3


Spawn = Callable[[Coroutine[Any, Any, Any]], Awaitable[asyncio.Task[Any]]]


async def spawn(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begin a task, and come back when what it asks the store first has gone out.

    A publisher that never waits would otherwise hold it up until its own work is done.
    """
    task = asyncio.create_task(work)
    await asyncio.sleep(0)  # it begins,
    await asyncio.sleep(0)  # and what it asked for is sent
    return task


class Publisher(Protocol):
    """Hands events to a broker."""

    async def publish(self, events: Sequence[Event]) -> Sequence[Exception | None]:
        """Publish events and wait for their confirmations, all of them at the same time.

        Answers for each event None, once the broker has confirmed that it keeps it, or why it does not. What it raises
        is about all of them: the broker cannot be reached.
        """


class Overtaken(Exception):
    """Another relay has opened the part since; what was published is published again by that one."""


class PublisherDown(ConnectionError):
    """The publisher raised instead of answering for each event; the cause is what it raised."""


class TimeIsUp(Exception):
    """The part has to be given back, or the relay is to stop, and something is not published yet."""


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """What a relay was told, checked."""

    in_flight: int
    batch: int
    max_attempts: int
    backoff: Backoff
    keep_for: timedelta
    keep_parked_for: timedelta | None = None


@dataclass(slots=True)
class RelayProgress:
    """What a relay has done since it was made.

    Attributes:
        published: events that were confirmed and saved as published.
        parked: events that were parked with an error.
        in_flight: events that are on their way to the broker now.
    """

    published: int = 0
    parked: int = 0
    in_flight: int = 0

    def add(self, done: Published) -> None:
        """Count what came of events."""
        self.published += len(done.positions)
        self.parked += sum(one.error is not None for one in done.parked)


@dataclass(slots=True)
class Published:
    """What came of events: positions of those that were confirmed, and those to be parked."""

    positions: list[int] = field(default_factory=list)
    parked: list[ParkedEvent] = field(default_factory=list)


@dataclass(slots=True)
class _Refused:
    """How often the broker did not take an event, and when to try it again.

    Attributes:
        is_apart: whether it took, or answered for, others at the same time: then it was there.
        refused_with: the class of the error it was refused with; None: it was not taken for now.
    """

    attempts: int
    due: float
    is_apart: bool = True
    refused_with: type[Exception] | None = None

    def is_due(self, now: float) -> bool:
        """Whether to try it again."""
        return self.due <= now


class PartPublisher:
    """Publishes a part of a stream, of which it is the only publisher for now.

    Args:
        part: what it publishes.
        publisher: where to.
        settings: of the relay.
        ask: has the store carry an operation out.
        clock: for waiting.
        wake: set when the relay is to stop.
        until: the instant at which the part has to be given back.
        progress: what the relay has done, which is counted here.
        is_patient: whether to wait for a broker that cannot be reached, and not raise after `max_attempts`.
        observer: told what was published, what was parked, and what the broker did not take.
        spawn: begins a task, which reads the next batch or deletes old events while this one is published.
    """

    def __init__(
        self,
        part: StreamPart,
        publisher: Publisher,
        settings: RelaySettings,
        *,
        ask: Callable[[Any], Awaitable[Any]],
        clock: Clock,
        wake: asyncio.Event,
        until: float,
        progress: RelayProgress,
        is_patient: bool,
        observer: Observer,
        spawn: Spawn = spawn,
    ) -> None:
        self._part = part
        self._publisher = publisher
        self._settings = settings
        self._ask = ask
        self._clock = clock
        self._wake = wake
        self._until = until
        self._progress = progress
        self._is_patient = is_patient
        self._observer = observer
        self._tracer = tracer_of(observer)
        self._spawn = spawn
        self._held: set[str | None] = set()
        self._cursor: Cursor | None = None
        self._is_unsaved = False
        self._purge_at = clock.monotonic() + _PURGE_EVERY
        self._purging: asyncio.Task[int] | None = None
        self._warn_at = 0.0
        self._search_at = 0.0
        self._aside_in_row = 0
        """Events that were set aside since one was confirmed, while the broker took nothing."""
        self._aside_at = 0.0
        """When to try again what is set aside."""
        self._in_vain = 0

    @property
    def is_over(self) -> bool:
        """Whether the part has to be given back."""
        return self._wake.is_set() or self._clock.monotonic() >= self._until

    async def open(self, token: bytes) -> None:
        """Take the part over: whoever had it before saves nothing any more."""
        found = await self._ask(OpenCursor(self._part, token))
        self._cursor, self._held = found.cursor, set(found.held)

    async def publish_all(self) -> int:
        """Publish all that is there now; answers how many events that were.

        Raises:
            Overtaken: another relay has the part.
            TimeIsUp: the broker did not take them in time; some may have been published, and will be again.
        """
        count = 0
        if self._held and self._clock.monotonic() >= self._aside_at:
            count = await self._publish_released()
        ahead: asyncio.Task[EventBatch] | None = None
        try:
            while not self.is_over:
                batch = await (self._read(self._opened) if ahead is None else ahead)
                ahead = await self._spawn(self._read(batch.cursor)) if batch.may_read_on else None
                count += await self._publish_batch(batch)
                await self._purge_when_due()
                if batch.is_last:
                    break
        finally:
            if ahead is not None:
                ahead.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await ahead
        return count

    @property
    def _opened(self) -> Cursor:
        assert self._cursor is not None  # noqa: S101 - `open` comes first
        return self._cursor

    async def _read(self, cursor: Cursor) -> EventBatch:
        batch: EventBatch = await self._ask(ReadEvents(cursor, self._settings.batch))
        return batch

    async def _publish_batch(self, batch: EventBatch) -> int:
        done = await self._publish(batch.events) if batch.events else Published()
        if batch.events or batch.needs_save:
            cursor = batch.cursor.following(self._opened)
            saved = await self._ask(SaveCursor(cursor, tuple(done.positions), tuple(done.parked)))
            if isinstance(saved, CursorLost):
                raise Overtaken
            self._cursor, self._is_unsaved = saved.cursor, False
        else:
            self._cursor, self._is_unsaved = batch.cursor.following(self._opened), True
        self._add_up(done)
        return len(done.positions)

    def _add_up(self, done: Published) -> None:
        """Count what came of events, once it is saved."""
        self._progress.add(done)
        self._tell("published", len(done.positions))
        failed = [one for one in done.parked if one.error is not None]
        if failed:
            self._tell("parked", len(failed))

    def _tell(
        self, kind: Literal["published", "parked", "publishing_failed"], number: int, error: Exception | None = None
    ) -> None:
        if number and is_heard(self._observer, kind):
            detail = "" if error is None else type(error).__qualname__
            signal = Signal(kind=kind, operation=self._part.stream, reference="", number=number, detail=detail)
            notify(self._observer, signal)

    async def finish(self) -> None:
        """Save how far it was read where nothing was to be published, for whoever divides the stream otherwise."""
        if self._is_unsaved:
            await self._ask(SaveCursor(self._opened, ()))

    async def _publish_released(self) -> int:
        """Publish what was released or set aside, before anything that was added later."""
        count = 0
        while not self.is_over:
            released = await self._ask(ReadReleased(self._part, self._settings.batch))
            if not released.events:
                self._in_vain = 0
                break
            tried = {one.stored.position: one.attempts for one in released.events}
            mine = {one.stored.event.ordering_key for one in released.events}
            self._held -= mine  # they are held for what comes after these
            try:
                done = await self._publish([one.stored for one in released.events], is_aside=True)
            finally:
                self._held |= mine
            failed = [replace(one, attempts=one.attempts + tried[one.stored.position]) for one in done.parked]
            settled = await self._ask(
                SettleReleased(self._part, tuple(done.positions), tuple(one for one in failed if one.error is not None))
            )
            self._held = set(settled.held)
            self._add_up(done)
            count += len(done.positions)
            if not done.positions:
                self._in_vain += 1
                self._aside_at = self._due(self._in_vain)
                break
            self._in_vain = 0
        return count

    async def _publish(self, events: Iterable[StoredEvent], *, is_aside: bool = False) -> Published:
        """Publish events, those of one key after each other, and tell what came of each.

        One that the broker does not take waits by itself, and holds up nobody but those of its key. Where the time is
        up for those that wait, they are set aside, so that what was confirmed counts.

        Raises:
            TimeIsUp: the time is up, and the broker cannot be reached or has confirmed nothing.
        """
        done = Published()
        refused: dict[int, _Refused] = {}
        outages = 0
        waiting = list(events)
        while waiting:
            wave, rest = self._next_wave(waiting, done, refused)
            if not wave:
                waiting = rest
                if waiting and not await self._rest_until_due(waiting, refused, done):
                    break
                continue
            errors = await self._send(wave)
            again, outage = self._sort_out(wave, errors, done, refused, is_aside=is_aside)
            waiting = sorted([*again, *rest], key=lambda stored: stored.position) if again else rest
            outages = 0 if outage is None else outages + 1
            if again:
                self._tell("publishing_failed", len(again), outage or next(filter(None, errors)))
            if outage is not None and again:
                if outages >= self._settings.max_attempts and not self._is_patient:
                    raise outage
                await self._wait_for_broker(outages, outage)
                _make_due(again, refused, self._clock.monotonic())
        return done

    def _sort_out(
        self,
        wave: Sequence[StoredEvent],
        errors: Sequence[Exception | None],
        done: Published,
        refused: dict[int, _Refused],
        *,
        is_aside: bool,
    ) -> tuple[list[StoredEvent], Exception | None]:
        """Note what came of events; gives those to be tried again, and an outage where none of them was taken."""
        apart = {one.position for one in wave if one.position in refused and refused[one.position].is_apart}
        outage = next((error for error in errors if _is_down(error)), None)
        is_any_taken = bool(done.positions) or any(not isinstance(error, OUTAGES) for error in errors)
        if outage is None and len(apart) < len(wave) and not is_any_taken:
            outage = errors[0]
        if is_any_taken:
            self._aside_in_row = 0
        again: list[StoredEvent] = []
        for stored, told in zip(wave, errors, strict=True):
            error = _without_wrapper(told) if _is_known(told, refused.get(stored.position)) else told
            is_apart = outage is None or stored.position in apart
            if error is None:
                done.positions.append(stored.position)
            elif _is_down(error):
                again.append(stored)
            elif not isinstance(error, OUTAGES):
                if self._may_try_again(refused, stored, error, done):
                    again.append(stored)
            elif self._may_try_later(refused, stored, error, done, is_apart=is_apart, is_aside=is_aside):
                again.append(stored)
        return again, outage

    @property
    def _may_leave_during_outage(self) -> bool:
        """Whether an event that the broker took no better than all others may be set aside.

        Perhaps nothing else is there to tell its destination from the broker. But not one after the other: an outage
        would have the whole outbox set aside.
        """
        return self._is_patient and self._aside_in_row < self._settings.in_flight

    def _may_try_later(
        self,
        refused: dict[int, _Refused],
        stored: StoredEvent,
        error: Exception,
        done: Published,
        *,
        is_apart: bool,
        is_aside: bool,
    ) -> bool:
        """Count that an event was not taken for now: it waits, or is set aside."""
        attempts = _count_attempts(refused, stored) + 1
        self._warn(error, is_first=attempts == 1 and not is_aside)
        is_enough = attempts >= self._settings.max_attempts and (is_apart or self._may_leave_during_outage)
        if is_aside or is_enough:
            self._aside_in_row += not (is_apart or is_aside)
            self._set_aside(done, stored, attempts)
            return False
        refused[stored.position] = _Refused(attempts, self._due(attempts), is_apart)
        return True

    def _may_try_again(
        self, refused: dict[int, _Refused], stored: StoredEvent, error: Exception, done: Published
    ) -> bool:
        """Count that an event was refused: it waits, or is parked."""
        attempts = _count_attempts(refused, stored) + 1
        if attempts >= self._settings.max_attempts:
            self._park(done, stored, error, attempts)
            return False
        refused[stored.position] = _Refused(attempts, self._due(attempts), refused_with=type(error))
        self._warn(error, is_first=attempts == 1)
        return True

    def _set_aside(self, done: Published, stored: StoredEvent, attempts: int) -> None:
        self._held.add(stored.event.ordering_key)
        done.parked.append(ParkedEvent(stored=stored, error=None, attempts=attempts))

    def _next_wave(
        self, waiting: Sequence[StoredEvent], done: Published, refused: Mapping[int, _Refused]
    ) -> tuple[list[StoredEvent], list[StoredEvent]]:
        """The events to be sent together, and the rest; what waits behind a parked event is parked, too."""
        wave: list[StoredEvent] = []
        rest: list[StoredEvent] = []
        keys: set[str] = set()
        now = self._clock.monotonic() if refused else 0.0
        for place, stored in enumerate(waiting):
            if len(wave) == self._settings.in_flight:
                rest += waiting[place:]
                break
            key = stored.event.ordering_key
            if key is not None and key in self._held:
                done.parked.append(ParkedEvent(stored=stored, error=None))
            elif key in keys or (stored.position in refused and not refused[stored.position].is_due(now)):
                rest.append(stored)
            else:
                wave.append(stored)
            if key is not None:
                keys.add(key)
        return wave, rest

    async def _send(self, wave: Sequence[StoredEvent]) -> Sequence[Exception | None]:
        """Have events published; where `publish` raises, none is taken for published."""
        try:
            return await self._send_together(wave)
        except (UsageError, RecordUnreadable):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the events are tried again
            if isinstance(error, OUTAGES) or len(wave) == 1 or self._clock.monotonic() < self._search_at:
                return _down_for(wave, error)
            return await self._search(wave, error)

    async def _search(self, wave: Sequence[StoredEvent], error: Exception) -> Sequence[Exception | None]:
        """Find the events because of which `publish` raises what is no outage.

        They are refused only if it answered for others. If it did not, the broker is gone and says so in its own way,
        and is not asked so often again for a while.
        """
        answers = await self._send_apart(wave, error)
        if any(answer is None or not isinstance(answer, PublisherDown) for answer in answers):
            return [_without_wrapper(answer) for answer in answers]
        self._search_at = self._clock.monotonic() + _WARN_EVERY
        return answers

    async def _send_apart(self, wave: Sequence[StoredEvent], error: Exception) -> list[Exception | None]:
        if len(wave) == 1 or self.is_over:
            return _down_for(wave, error)
        answers: list[Exception | None] = []
        middle = len(wave) // 2
        for half in (wave[:middle], wave[middle:]):
            try:
                answers += await self._send_together(half)
            except (UsageError, RecordUnreadable):
                raise
            except Exception as other:  # noqa: BLE001 - as above
                answers += _down_for(half, other) if isinstance(other, OUTAGES) else await self._send_apart(half, other)
        return answers

    async def _send_together(self, wave: Sequence[StoredEvent]) -> Sequence[Exception | None]:
        events = [from_outbox(stored.event) for stored in wave]
        self._progress.in_flight += len(wave)
        try:
            errors = await self._hand_over(events)
        except asyncio.CancelledError as error:
            if async_is_cut_off():
                raise
            # Of a client whose connection is gone: it would end this relay without a word.
            raise WasCancelled("what publish() waited for was cancelled, and not the relay") from error
        finally:
            self._progress.in_flight -= len(wave)
        if not isinstance(errors, Sequence) or len(errors) != len(wave) or not all(map(_is_answer, errors)):
            raise UsageError(
                f"publish() was given {len(wave)} events and {_describe(errors)}, so nobody knows which of them were "
                f"published; none is taken for published. Answer with a list of None or an error for each event."
            )
        return errors

    async def _hand_over(self, events: Sequence[Event]) -> Sequence[Exception | None]:
        """Have the publisher publish events, inside a span where there is a tracer."""
        if self._tracer is None:
            return await self._begin(events)
        parents = tuple(trace for event in events for trace in trace_of(event))
        work = Work(kind="send", operation=self._part.stream, number=len(events), parents=parents)
        with tracing(self._tracer, work):
            return await self._begin(events)

    def _begin(self, events: Sequence[Event]) -> Awaitable[Sequence[Exception | None]]:
        """What publishes events, to be waited for.

        Raises:
            UsageError: there is nothing to wait for.
        """
        answering: Any = self._publisher.publish(events)
        if not isawaitable(answering):
            raise UsageError(
                f"publish() gave a {type(answering).__name__} instead of something to wait for; none of its events is "
                f"taken for published. Write it with async def."
            )
        return answering

    def _park(self, done: Published, stored: StoredEvent, error: Exception, attempts: int) -> None:
        self._held.add(stored.event.ordering_key)
        done.parked.append(ParkedEvent(stored=stored, error=Failure.of(error), attempts=attempts))
        _log.warning(
            "event at position %d of stream %s could not be published in %d attempts and is parked: %s",
            stored.position,
            self._part.stream,
            attempts,
            type(error).__qualname__,
        )

    def _due(self, attempts: int) -> float:
        """When to try again."""
        return self._clock.monotonic() + self._settings.backoff.after(attempts).total_seconds()

    async def _wait_for_broker(self, attempts: int, error: Exception) -> None:
        """Wait before trying again.

        Raises:
            TimeIsUp: the part has to be given back first.
        """
        self._warn(error, is_first=attempts == 1)
        await self._rest_until(self._due(attempts))

    async def _rest_until_due(
        self, waiting: Sequence[StoredEvent], refused: Mapping[int, _Refused], done: Published
    ) -> bool:
        """Wait for the first of these, which is due then, even where the clock is short of it by a rounding.

        False: the time is up, and all of them are set aside.

        Raises:
            TimeIsUp: the time is up, and nothing was confirmed.
        """
        now = self._clock.monotonic()
        counted = [refused[one.position] for one in waiting if one.position in refused]
        first = min((one for one in counted if not one.is_due(now)), key=lambda one: one.due, default=None)
        if first is None:
            return True
        try:
            await self._rest_until(first.due)
        except TimeIsUp:
            if not done.positions:
                raise
            for one in waiting:
                self._set_aside(done, one, _count_attempts(refused, one))
            return False
        first.due = self._clock.monotonic()
        return True

    async def _rest_until(self, due: float) -> None:
        if due >= self._until:
            raise TimeIsUp
        await self._clock.arest(self._wake, due)
        if self._wake.is_set():
            raise TimeIsUp

    def _warn(self, error: Exception, *, is_first: bool) -> None:
        """Say why events are not published: when it begins, and now and then while it lasts."""
        now = self._clock.monotonic()
        if is_first or now >= self._warn_at:
            self._warn_at = now + _WARN_EVERY
            _log.warning("events of stream %s were not published: %s", self._part.stream, _explain(error))

    async def _purge_when_due(self) -> None:
        """Now and then delete what was published long ago, beside publishing: however much it is holds nothing up."""
        if self._purging is None:
            if self._clock.monotonic() >= self._purge_at:
                self._purging = await self._spawn(self.purge())
        elif self._purging.done():
            ended, self._purging = self._purging, None
            self._purge_at = self._clock.monotonic() + _PURGE_EVERY
            await ended  # what went wrong with it is raised here

    async def purge(self) -> int:
        """Delete, in lots, all events that were published long ago; answers how many."""
        kept, kept_parked = microseconds(self._settings.keep_for), self._settings.keep_parked_for
        keep_parked_us = None if kept_parked is None else microseconds(kept_parked)
        count, after = 0, 0
        while True:
            purged: EventsPurged = await self._ask(PurgeEvents(self._opened, kept, _PURGE_LOT, after, keep_parked_us))
            count += purged.count
            if purged.parked:
                _log.warning(
                    "%d parked events of stream %s were deleted and never published: keep_parked_for is over",
                    purged.parked,
                    self._part.stream,
                )
            if purged.count < _PURGE_LOT or self.is_over:
                return count
            after, keep_parked_us = purged.after, None
            await asyncio.sleep(0)  # a store in memory does not wait for anything

    async def close(self) -> None:
        """Give up what runs beside publishing."""
        if self._purging is not None:
            self._purging.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._purging


def _is_answer(answer: object) -> bool:
    """Whether it says of an event that the broker has it, or why not; of anything else nobody knows what it means."""
    return answer is None or isinstance(answer, BaseException)


def _describe(answers: object) -> str:
    """What `publish` gave that is no answer for each event."""
    if not isinstance(answers, Sequence):
        return f"gave a {type(answers).__name__}"
    other = next((answer for answer in answers if not _is_answer(answer)), None)
    return f"answered for {len(answers)}" if other is None else f"answered with a {type(other).__name__}"


def _count_attempts(refused: Mapping[int, _Refused], stored: StoredEvent) -> int:
    """How often an event was not taken so far."""
    found = refused.get(stored.position)
    return 0 if found is None else found.attempts


def _make_due(events: Iterable[StoredEvent], refused: Mapping[int, _Refused], now: float) -> None:
    """Those that waited for the broker together are due together."""
    for stored in events:
        if stored.position in refused:
            refused[stored.position].due = now


def _down_for(wave: Sequence[StoredEvent], error: Exception) -> list[Exception | None]:
    """The answer for events that `publish` has raised for."""
    down = PublisherDown(f"publish() raised {type(error).__qualname__}; none of its events is taken for published.")
    down.__cause__ = error
    return [down] * len(wave)


def _is_down(answer: Exception | None) -> bool:
    """Whether `publish` has raised what says that the broker cannot be reached."""
    return isinstance(answer, PublisherDown) and isinstance(answer.__cause__, OUTAGES)


def _is_known(answer: Exception | None, refused: _Refused | None) -> bool:
    """Whether `publish` raised for an event what it was refused with before, while there were answers for others."""
    return refused is not None and isinstance(answer, PublisherDown) and type(answer.__cause__) is refused.refused_with


def _without_wrapper(answer: Exception | None) -> Exception | None:
    """What `publish` raised for one event, where that may be about the event."""
    if isinstance(answer, PublisherDown) and isinstance(answer.__cause__, Exception) and not _is_down(answer):
        return answer.__cause__
    return answer


def _explain(error: BaseException | None) -> str:
    """An error and what caused it, in one line.

    Only what an outage says is told: the text of another error may hold what the event is about.
    """
    told: list[str] = []
    while error is not None and len(told) < _MOST_CAUSES:
        name = type(error).__qualname__
        told.append(f"{name}: {error!s:.300}" if isinstance(error, OUTAGES) else name)
        error = error.__cause__
    return "; because of ".join(told)
