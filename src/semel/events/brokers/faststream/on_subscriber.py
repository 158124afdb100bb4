"""A subscriber of FastStream as the handler of a consumer.

- A message that is delivered now runs through the rest of FastStream's own way: its middlewares, dependencies, handler.
- A stored event, of a dead letter that is handed over again, is made a message of, and takes the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from traceback import walk_tb
from types import FrameType
from typing import Any, Final

from msgspec import MsgspecError

from semel.api import AsyncSemel
from semel.errors import UsageError
from semel.events.brokers.faststream.reading import Reader
from semel.events.consumer import Consumer
from semel.events.delivery import UnknownType
from semel.events.event import Event
from semel.events.handlers import EventHandler, Handlers
from semel.extras import requires
from semel.handlers import DoesNotDecode, describe_places

with requires("semel.events.brokers.faststream", "faststream"):
    from faststream.exceptions import AckMessage, SubscriberNotFound
    from faststream.message import StreamMessage

_VALIDATORS: Final = ("contextlib", "msgspec", "pydantic")


@dataclass(slots=True, eq=False)
class Call:
    """A message that is delivered now, how its handler is called, and what that gave."""

    message: StreamMessage[Any]
    go_on: Callable[[StreamMessage[Any]], Awaitable[Any]]
    is_envelope: bool = False
    result: Any = None


class SubscriberConsumer(Consumer[AsyncSemel]):
    """A consumer whose handler is a subscriber of FastStream, whatever the type of an event."""

    def __init__(self, semel: AsyncSemel, name: str, reader: Reader, **settings: Any) -> None:
        self._reader = reader
        self._subscriber: Any = None
        self._middleware: Any = None
        self._call: ContextVar[Call | None] = ContextVar("semel_faststream_call", default=None)
        self.has_transaction = settings.get("transaction") is not None
        super().__init__(semel, name, **settings)

    def serve(self, subscriber: Any, middleware: Any) -> None:
        """Have events handled by a subscriber; `middleware` is left out of what else runs around stored ones."""
        self._subscriber, self._middleware = subscriber, middleware

    @property
    def subscriber(self) -> Any:
        """Who handles its events; None as long as nobody does."""
        return self._subscriber

    def on(self, *types: str) -> Any:
        """Is refused: FastStream's subscriber takes all types.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{types} are handled by the subscriber of FastStream; nothing was changed. Decorate that.")

    def handle(self, event: Event, *, within: Any = None, remaining: timedelta | None = None) -> Any:
        """Run the subscriber for an event once, and say what a broker would be told.

        Raises:
            UsageError: no subscriber is there yet; nothing ran.
        """
        self._demand_subscriber()
        return super().handle(event, within=within, remaining=remaining)

    def redrive(self, id: str | None = None, **asked: Any) -> Any:  # noqa: A002 - as on a letter
        """Hand stored events to the subscriber again.

        Raises:
            UsageError: no subscriber is there yet; nothing ran.
        """
        self._demand_subscriber()
        return super().redrive(**asked) if id is None else super().redrive(id, **asked)

    def _demand_subscriber(self) -> None:
        if self._subscriber is None:
            raise UsageError(
                f"No subscriber of FastStream takes the events of {self.name} yet; nothing ran. Start its broker, or "
                f"call prepare(broker) of its inbox."
            )

    async def run_call(self, event: Event, call: Call) -> Any:
        """Process an event that is delivered now; gives its disposition."""
        token = self._call.set(call)
        try:
            return await self.handle(event)
        finally:
            self._call.reset(token)

    def _make_handlers(self) -> Handlers:
        given = ("event", "attempt", "session") if self.has_transaction else ("event", "attempt")
        return Handlers(EventHandler(self._handle_event, frozenset(given), lambda event: event.data))

    def _read(self, headers: Mapping[str, Any], body: bytes) -> Event:
        return self._reader.read(headers, body).event

    async def _handle_event(self, event: Event, attempt: Any, session: Any = None) -> None:
        call = self._call.get()
        known = {"semel_event": event, "semel_attempt": attempt}
        if self.has_transaction:
            known["semel_session"] = session
        outer = self._subscriber._outer_config  # noqa: SLF001 - where FastStream keeps what a handler is given
        with outer.context.scopes(known.items()):
            if call is None:
                await self._run_stored(event)
            else:
                if call.is_envelope:
                    _unwrap(call.message, event)
                call.result = await _run(call.go_on, call.message)

    async def _run_stored(self, event: Event) -> None:
        """Run the handler of a stored event, with everything around it that a message has."""
        subscriber, outer = self._subscriber, self._subscriber._outer_config  # noqa: SLF001 - as FastStream does itself
        message = _make_message(event)
        async with AsyncExitStack() as stack:
            logger = outer.logger.logger.logger
            given = {"handler_": subscriber, "logger": logger, **outer.extra_context, "message": message}
            stack.enter_context(outer.context.scopes(given.items()))
            around = [
                make(None, context=outer.context) for make in outer.broker_middlewares if make is not self._middleware
            ]
            for middleware in around:
                await stack.enter_async_context(middleware)
            for item in subscriber.calls:
                message.set_decoder(item.decoder)
                if await item.filter(message):
                    scopes = [middleware.consume_scope for middleware in reversed(around)]
                    await _run(lambda sent: item.call(message=sent, _extra_middlewares=scopes), message)  # noqa: B023 - awaited here
                    return
        raise UnknownType(f"no handler of the subscriber takes the event {event.type!r:.200}")


async def _run(go_on: Callable[[StreamMessage[Any]], Awaitable[Any]], message: StreamMessage[Any]) -> Any:
    """Call what handles a message.

    Raises:
        DoesNotDecode: the message is not what its handler is annotated with.
        UnknownType: no handler takes it.
    """
    try:
        await message.decode()
    except Exception as problem:  # noqa: BLE001 - of whatever decodes, which users may set
        raise DoesNotDecode(f"FastStream cannot decode the message ({type(problem).__name__})") from None
    try:
        return await go_on(message)
    except AckMessage:
        return None
    except SubscriberNotFound:
        raise UnknownType("no handler of the subscriber takes the message") from None
    except (ValueError, MsgspecError) as problem:
        if not _is_about_arguments(problem):
            raise
        raise DoesNotDecode(f"the message is not as annotated: {describe_places(problem)}") from None


def _is_about_arguments(problem: Exception) -> bool:
    """Whether FastStream refused what it was to call a handler with; after that, an error is one of the handler."""
    frames = [frame for frame, _ in walk_tb(problem.__traceback__)]
    ours = [frame for frame in frames if _package_of(frame) == "fast_depends"]
    after = frames[frames.index(ours[-1]) + 1 :] if ours else frames
    is_of_result = any(frame.f_code.co_name == "response" for frame in ours)
    return bool(ours) and not is_of_result and all(_package_of(frame) in _VALIDATORS for frame in after)


def _package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _unwrap(message: StreamMessage[Any], event: Event) -> None:
    """Have the handler see the data of an event, as it does where the attributes are headers."""
    message.body = event.body
    message.content_type = _content_type(event)
    message.clear_cache()


def _make_message(event: Event) -> StreamMessage[Any]:
    headers, body = event.to_headers()
    return StreamMessage(
        None,
        body,
        headers=headers,
        content_type=_content_type(event),
        correlation_id=event.id,
        message_id=event.id,
    )


def _content_type(event: Event) -> str | None:
    if event.datacontenttype is not None or event.data is None:
        return event.datacontenttype
    return None if isinstance(event.data, bytes) else "application/json"
