"""HTTP messages as bytes, as far as proxy and service have to understand them; and what a client orders."""

import asyncio
import json
from typing import Final, NamedTuple

LIFE: Final = "x-life"
"""The header that says which round and which life a request belongs to: no other header differs between lives."""


class Message(NamedTuple):
    """A whole request or reply."""

    data: bytes

    @property
    def first(self) -> list[str]:
        """The words of the first line."""
        return self.data.partition(b"\r\n")[0].decode().split(" ")

    @property
    def headers(self) -> dict[str, str]:
        """The headers, by their names in small letters."""
        lines = self.data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    @property
    def body(self) -> bytes:
        """What follows the headers."""
        return self.data.partition(b"\r\n\r\n")[2]

    def part(self, portion: float) -> bytes:
        """Some of it, never nothing and never all; a portion under a half ends within the headers."""
        head = len(self.data) - len(self.body)
        size = 2 * portion * head if portion < 0.5 else head + (2 * portion - 1) * len(self.body)
        return self.data[: max(1, min(int(size), len(self.data) - 1))]


async def receive(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None where the connection ended before it was whole."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(Message(head).headers.get("content-length", "0"))
        return Message(head + await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def reply(status: str, content: object, *headers: str) -> bytes:
    """A reply with a JSON body."""
    body = json.dumps(content).encode()
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def order(number: int) -> bytes:
    """What is ordered in a round; some orders are longer than one packet."""
    return json.dumps({"order": number, "note": "n" * (number * 397 % 30_000)}).encode()
