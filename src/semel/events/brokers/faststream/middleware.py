"""The middleware that makes each delivery of a subscriber an operation of the engine.

- A message is settled here and nowhere else, by what came of its event. No error of a handler leaves this middleware.
- What FastStream could not read, or has no handler for, is counted and kept as well.
- What has to be changed in the program stops the subscriber, and its message is not acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from types import TracebackType
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

from semel.api import AsyncSemel
from semel.errors import EventInvalid, UsageError
from semel.events.brokers.faststream.on_subscriber import Call, SubscriberConsumer
from semel.events.brokers.faststream.reading import Reader
from semel.events.brokers.faststream.settling import MessageSettler, Served, describe, refuse, warn
from semel.events.brokers.listening import Message, log, process
from semel.events.disposition import Disposition
from semel.extras import requires

with requires("semel.events.brokers.faststream", "faststream"):
    from faststream import BaseMiddleware
    from faststream.exceptions import IgnoredException, StopConsume, SubscriberNotFound
    from faststream.message import StreamMessage

_KINDS: Final = {
    "faststream.rabbit.": "on_rabbitmq",
    "faststream.nats.": "on_nats",
    "faststream.redis.": "on_redis",
    "faststream.kafka.": "on_kafka",
}
_OF_TESTS: Final = "faststream._internal.testing."
_SESSION: Final = "semel_session"


class Settled(IgnoredException):
    """The handler gave nothing that FastStream could publish; the broker was told what came of the message."""


class Stopped(UsageError, StopConsume):
    """The program has to be changed, and the subscriber takes nothing more."""

    def __str__(self) -> str:
        return str(self.args[0])  # FastStream's own says only that it stopped


class Inbox:
    """A middleware for brokers and routers of FastStream; made by `inbox`.

    Attributes:
        consumer: has the dead letters of the subscriber without a title, and hands them over again.
    """

    def __init__(
        self, semel: AsyncSemel, name: str, *, reader: Reader, ack_wait: timedelta, settings: dict[str, Any]
    ) -> None:
        self._semel = semel
        self._name = name
        self._reader = reader
        self._ack_wait = ack_wait
        self._settings = settings
        self._brokers: WeakKeyDictionary[Any, ref[Any]] = WeakKeyDictionary()
        self._settlers: WeakKeyDictionary[Any, MessageSettler] = WeakKeyDictionary()
        self._stopping: WeakKeyDictionary[Any, asyncio.Task[None]] = WeakKeyDictionary()
        self.consumer = self._make_consumer(name)
        self._consumers = {name: self.consumer}

    def __call__(self, msg: Any, /, *, context: Any) -> BaseMiddleware[Any, Any]:
        """What FastStream has around one message."""
        return _Middleware(msg, context=context, inbox=self)

    def __repr__(self) -> str:
        return f"inbox({self._name!r})"

    @property
    def consumers(self) -> dict[str, SubscriberConsumer]:
        """The consumers of all its subscribers, by name: its own, and one for each subscriber with a title."""
        return dict(self._consumers)

    def serves(self, subscriber: Any) -> bool:
        """Whether messages of a subscriber go through here; those that FastStream adds for its tests do not."""
        declared = [call.handler._declared_call for call in subscriber.calls]  # noqa: SLF001 - who wrote them
        return bool(declared) and not any(function.__module__.startswith(_OF_TESTS) for function in declared)

    def check(self, subscriber: Any) -> None:
        """Refuse, before it takes anything, a subscriber that would lose messages.

        Raises:
            UsageError: it would, or another one is the same consumer.
        """
        module_of(subscriber).check(subscriber)
        consumer = self.consumer_of(subscriber)
        if consumer.subscriber not in (None, subscriber):
            refuse(
                subscriber,
                f"is the consumer {consumer.name!r}, and so is {describe(consumer.subscriber)}: an event that both are "
                f"given would run in one of them only",
                f'Write title="NAME" at one of them, which makes it the consumer "{self._name}.NAME"',
            )
        consumer.serve(subscriber, self)
        if any(call.handler._publishers for call in subscriber.calls):  # noqa: SLF001 - there is no other way to ask
            warn(
                subscriber,
                "publishes what its handler returns after the event is recorded, so a crash in between loses that; "
                "an Outbox does not",
            )

    def prepare(self, broker: Any) -> None:
        """Have dead letters handed to the subscribers of a broker that is not started, as in a script or a command.

        Raises:
            UsageError: one of them would lose messages.
        """
        for subscriber in broker.subscribers:
            if self in subscriber._broker_middlewares and self.serves(subscriber):  # noqa: SLF001 - FastStream tells nobody
                self.check(subscriber)
                subscriber._build_fastdepends_model()  # noqa: SLF001 - what its start does

    def join(self, broker: Any, subscriber: Any) -> None:
        """Know the broker of a subscriber, which is about to start."""
        self._brokers[subscriber] = ref(broker)

    async def start(self, subscriber: Any) -> None:
        """Begin what runs beside a subscriber.

        Raises:
            UsageError: settings of the broker would lose messages, or nobody knows the broker.
        """
        found = self._brokers.get(subscriber)
        broker = None if found is None else found()
        if broker is None:
            refuse(subscriber, "starts before its broker", "Start the broker, which starts its subscribers")
        consumer = self.consumer_of(subscriber)
        self._check_session(subscriber, consumer)
        settler = self._make_settler(subscriber, broker)
        await settler.start()
        self._settlers[subscriber] = settler

    async def stop(self, subscriber: Any) -> None:
        """End it. Who stops it meanwhile waits for the same end.

        A handler can stop its own subscriber, and FastStream cancels that handler where somebody else stops the
        subscriber too: a task of its own is not cut off, so that everything is given back.
        """
        settler = self._settlers.pop(subscriber, None)
        if settler is not None:
            self._stopping[subscriber] = asyncio.create_task(settler.stop(asyncio.current_task()))
        stopping = self._stopping.get(subscriber)
        if stopping is not None:
            await asyncio.shield(stopping)
            self._stopping.pop(subscriber, None)

    async def deliver(
        self,
        subscriber: Any,
        message: StreamMessage[Any],
        go_on: Callable[[StreamMessage[Any]], Awaitable[Any]],
        *,
        is_unknown: bool = False,
    ) -> Any:
        """Run a handler once for an event, and tell the broker what came of it; gives what the handler returned.

        Raises:
            Settled: no handler ran to its end now.
            Stopped: the program has to be changed; the message was not acknowledged.
        """
        settler, consumer = self._settler_of(subscriber), self.consumer_of(subscriber)
        headers, body = settler.parts_of(message)
        call = Call(message, go_on)

        async def receive(_: Message) -> Disposition:
            if is_unknown and self._settings["unknown"] == "ignore":
                return Disposition("ack", "ignored")
            try:
                found = self._reader.read(headers, body)
            except EventInvalid:
                return await consumer.receive(headers, body)  # keeps it as a dead letter
            call.is_envelope = found.is_envelope or body is not message.body
            disposition: Disposition = await consumer.run_call(found.event, call)
            return disposition

        try:
            disposition = await process(settler, Message(headers, body, message), receive)
        except UsageError as error:
            log.critical("%s is stopped: %s", describe(subscriber), error)
            raise Stopped(str(error)) from error
        if isinstance(disposition.error, StopConsume):
            raise disposition.error
        if disposition.status != "processed":
            raise Settled
        return call.result

    def _make_consumer(self, name: str) -> SubscriberConsumer:
        return SubscriberConsumer(self._semel, name, self._reader, **self._settings)

    def consumer_of(self, subscriber: Any) -> SubscriberConsumer:
        """The consumer of a subscriber, by its title."""
        title = subscriber.specification.config.title_
        name = self._name if title is None else f"{self._name}.{title}"
        if name not in self._consumers:
            self._consumers[name] = self._make_consumer(name)
        return self._consumers[name]

    def _make_settler(self, subscriber: Any, broker: Any) -> MessageSettler:
        served = Served(subscriber, broker, self.consumer_of(subscriber), self._ack_wait)
        settler: MessageSettler = module_of(subscriber).make_settler(served)
        return settler

    def _settler_of(self, subscriber: Any) -> MessageSettler:
        """Of a subscriber that was not started, as under FastStream's test brokers, one that only says what it can.

        Raises:
            Stopped: the subscriber would lose messages.
        """
        if subscriber not in self._settlers:
            try:
                self.check(subscriber)
                self._check_session(subscriber, self.consumer_of(subscriber))
            except UsageError as error:
                raise Stopped(str(error)) from error
            self._settlers[subscriber] = self._make_settler(subscriber, None)
        return self._settlers[subscriber]

    def _check_session(self, subscriber: Any, consumer: SubscriberConsumer) -> None:
        if consumer.has_transaction:
            return
        for call in subscriber.calls:
            if _SESSION in _names_in_context(call.dependant):
                refuse(subscriber, f'asks for Context("{_SESSION}"), and there is none', "Give inbox(transaction=…)")


class _Middleware(BaseMiddleware[Any, Any]):
    """What stands around one message."""

    def __init__(self, msg: Any, /, *, context: Any, inbox: Inbox) -> None:
        super().__init__(msg, context=context)
        self._inbox = inbox
        self._has_message = False

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: StreamMessage[Any]) -> Any:
        subscriber = self.context.get_local("handler_")
        # What somebody asks for by himself (`get_one`, `request`) is settled by him.
        if self.context.get_local("message") is not msg or not self._inbox.serves(subscriber):
            return await call_next(msg)
        self._has_message = True
        return await self._inbox.deliver(subscriber, msg, call_next)

    async def after_processed(
        self,
        exc_type: type[BaseException] | None = None,  # noqa: ARG002 - FastStream's
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,  # noqa: ARG002 - as above
    ) -> bool | None:
        if isinstance(exc_val, Settled):
            return True
        subscriber = self.context.get_local("handler_")
        if self._has_message or not isinstance(exc_val, Exception) or subscriber is None:
            return False
        if isinstance(exc_val, IgnoredException) or not self._inbox.serves(subscriber):
            return False
        return await self._count_unread(subscriber, exc_val)

    async def _count_unread(self, subscriber: Any, error: Exception) -> bool:
        """Count a message that did not reach any handler; without that it would stay with this process for ever."""

        async def fail(_: Any) -> Any:
            raise error

        message = await subscriber._parser(self.msg)  # noqa: SLF001 - as FastStream does for acknowledgements
        message.set_decoder(_keep_body)
        is_unknown = isinstance(error, SubscriberNotFound)
        with suppress(Settled):
            await self._inbox.deliver(subscriber, message, fail, is_unknown=is_unknown)
        return True


async def _keep_body(message: StreamMessage[Any]) -> Any:
    return message.body


def _names_in_context(dependant: Any) -> set[str]:
    """What a handler asks of FastStream's context, where that can be seen."""
    names: set[str] = set()
    for field in (getattr(dependant, "custom_fields", None) or {}).values():
        names.add(str(getattr(field, "name", None) or getattr(field, "param_name", "")).partition(".")[0])
    return names


def module_of(subscriber: Any) -> Any:
    """What knows its broker; imported here, because nobody has the clients of all.

    Raises:
        UsageError: nobody does.
    """
    for base in type(subscriber).__mro__:
        for prefix, name in _KINDS.items():
            if base.__module__.startswith(prefix):
                return import_module(f"{__package__}.{name}")
    raise UsageError(
        f"{describe(subscriber)} is of a broker that the inbox does not know; nothing was taken. It knows "
        f"{', '.join(name.split('.')[1] for name in _KINDS)}."
    )
