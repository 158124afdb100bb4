"""What a listener tells its broker, read off the wire, or from the server where scripts hide it.

Each tap gives words in the order in which they were said: names of the protocol, `copy` for a message that is sent to
the place for dead letters, and `extended` for a deadline.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

from redis.asyncio import Redis

from tests.proxy.proxy import Proxy
from tests.proxy.wire import Direction, Message

Parse = Callable[[Direction, bytearray], Iterator[str]]
"""Takes what is complete off the front of what came, and gives what it says."""
_AMQP_GREETING: Final = b"AMQP"
_AMQP: Final = {
    (Direction.TO_SERVER, 60, 40): "basic.publish",
    (Direction.TO_SERVER, 60, 80): "basic.ack",
    (Direction.TO_SERVER, 60, 90): "basic.reject",
    (Direction.TO_SERVER, 60, 120): "basic.nack",
    (Direction.TO_CLIENT, 60, 80): "confirmed",
}
_METHOD: Final = 1


class _Wire:
    """Passes everything on, and writes down what was said."""

    def __init__(self, parse: Parse, told: list[str]) -> None:
        self._parse = parse
        self._told = told
        self._came = {direction: bytearray() for direction in Direction}

    def feed(self, direction: Direction, data: bytes) -> list[Message]:
        self._came[direction] += data
        self._told.extend(self._parse(direction, self._came[direction]))
        return [Message("bytes", data)]


class _Tap(Proxy):
    def __init__(self, url: str, parse: Parse, told: list[str]) -> None:
        super().__init__(url)
        self._wire = lambda: _Wire(parse, told)


@contextmanager
def tap(url: str, parse: Parse) -> Iterator[tuple[str, list[str]]]:
    """Where to connect instead, and what is said there."""
    told: list[str] = []
    with _Tap(url, parse, told) as proxy:
        yield proxy.url, told


def parse_amqp(direction: Direction, came: bytearray) -> Iterator[str]:
    """Methods of RabbitMQ's protocol."""
    if came.startswith(_AMQP_GREETING):
        del came[:8]
    for method in _amqp_methods(came):
        word = _AMQP.get((direction, *struct.unpack(">HH", method[:4])))
        if word is not None:
            yield word


def parse_celery(queue: str) -> Parse:
    """What a worker tells RabbitMQ of its tasks; beside that it sends events about itself."""

    def parse(direction: Direction, came: bytearray) -> Iterator[str]:
        if came.startswith(_AMQP_GREETING):
            del came[:8]
        for method in _amqp_methods(came):
            word = _AMQP.get((direction, *struct.unpack(">HH", method[:4])))
            if word == "basic.ack":
                yield "acknowledged"
            elif word == "basic.publish" and _routing_key(method) == queue:
                yield "sent again"
            elif word in ("basic.reject", "basic.nack"):
                yield "given back"

    return parse


def _amqp_methods(came: bytearray) -> Iterator[bytes]:
    """The methods that came whole."""
    while len(came) >= 7:
        kind, _, size = struct.unpack(">BHI", came[:7])
        if len(came) < size + 8:
            return
        frame = bytes(came[7 : 7 + size])
        del came[: size + 8]
        if kind == _METHOD:
            yield frame


def _routing_key(publish: bytes) -> str:
    """That of a `basic.publish`: behind its name, two bytes, and the name of the exchange."""
    key = 7 + publish[6]
    return publish[key + 1 : key + 1 + publish[key]].decode()


def parse_nats(dead: str) -> Parse:
    """What is published to a message's own subject, and to that for dead letters."""

    def parse(direction: Direction, came: bytearray) -> Iterator[str]:
        if direction is Direction.TO_CLIENT:
            came.clear()
        while (end := came.find(b"\r\n")) >= 0:
            verb, *words = came[:end].decode().split()
            size = int(words[-1]) + 2 if verb.endswith("PUB") else 0
            if len(came) < end + 2 + size:
                return
            payload = bytes(came[end + 2 : end + size])
            del came[: end + 2 + size]
            if size and words[0] == dead:
                yield "copy"
            elif size and words[0].startswith("$JS.ACK."):
                yield _nats_word(payload)

    return parse


def _nats_word(payload: bytes) -> str:
    word, _, given = payload.decode().partition(" ")
    if word == "+WPI":
        return "extended"
    if not word:
        return "+ACK"  # an empty payload means the same, and the client sends it so
    return f"{word} with the delay" if given and json.loads(given)["delay"] else word


def parse_sqs(delay: float) -> Parse:
    """Requests to SQS; a time-out of `delay` seconds is one that was asked for."""

    def parse(direction: Direction, came: bytearray) -> Iterator[str]:
        if direction is Direction.TO_CLIENT:
            came.clear()
        while (end := came.find(b"\r\n\r\n")) >= 0:
            head = came[:end].decode().lower()
            length = re.search(r"content-length: (\d+)", head)
            size = 0 if length is None else int(length[1])
            if len(came) < end + 4 + size:
                return
            body = bytes(came[end + 4 : end + 4 + size])
            target = re.search(rb"AmazonSQS\.(\w+)", came[:end])
            del came[: end + 4 + size]
            yield from _sqs_words(target[1].decode() if target else "", body, delay)

    return parse


def _sqs_words(target: str, body: bytes, delay: float) -> Iterator[str]:
    if target in ("SendMessage", "SendMessageBatch"):
        yield "copy"
    elif target == "DeleteMessageBatch":
        yield target
    elif target == "ChangeMessageVisibilityBatch":
        (entry,) = json.loads(body)["Entries"]
        yield f"{target} with the delay" if entry["VisibilityTimeout"] >= delay / 2 else "extended"


@asynccontextmanager
async def monitor(client: Redis, stream: str, dead: str) -> AsyncIterator[list[str]]:
    """What Redis is told of a stream, by commands and by scripts."""
    told: list[str] = []
    pool = Redis.from_pool(client.connection_pool)
    async with pool.monitor() as monitored:

        async def listen() -> None:
            while True:
                command = (await monitored.next_command())["command"].split(" ")
                if word := _redis_word(command, stream, dead):
                    told.append(word)

        listening = asyncio.create_task(listen())
        try:
            yield told
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening


def _redis_word(command: list[str], stream: str, dead: str) -> str | None:
    name, *given = command
    if name == "XADD" and given[0] == dead:
        return "copy"
    if not given or given[0] != stream:
        return None
    if name == "XCLAIM":
        return "set aside" if given[2] == "semel-waiting" else "extended"
    return name if name == "XACK" else None


def without_extensions(told: list[str]) -> list[str]:
    """What was said of the message's end: how often a deadline was extended before it depends on the machine."""
    return [word for word in told if word != "extended"]
