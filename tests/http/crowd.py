"""A crowd of clients: many connections that are kept open, and requests as ready-made bytes, so that the site is busy.

What always holds: every answer is read whole before its connection is used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from tests.http.gate import PATIENCE
from tests.http.wire import head

BODY = b'{"amount": 10}'


def request(path: str, key: str) -> bytes:
    """A keyed request as bytes."""
    return head("POST", path, "Content-Type: application/json", f"Idempotency-Key: {key}", length=len(BODY)) + BODY


def ask_all(port: int, path: str, keys: Iterable[str], connections: int) -> list[tuple[int, bytes]]:
    """Ask once for each key, over this many connections; gives what each was answered."""
    return asyncio.run(_ask_all(port, path, iter(keys), connections))


async def _ask_all(port: int, path: str, keys: Iterator[str], connections: int) -> list[tuple[int, bytes]]:
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(_ask(port, path, keys)) for _ in range(connections)]
    return [answer for task in asked for answer in task.result()]


async def _ask(port: int, path: str, keys: Iterator[str]) -> list[tuple[int, bytes]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = []
    for key in keys:
        writer.write(request(path, key))
        async with asyncio.timeout(PATIENCE):
            answers.append(await answer(reader))
    writer.close()
    await writer.wait_closed()
    return answers


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of the next answer, which must say how long it is."""
    start = (await reader.readuntil(b"\r\n\r\n")).lower()
    _, _, rest = start.partition(b"\r\ncontent-length:")
    return int(start.split(None, 2)[1]), await reader.readexactly(int(rest.partition(b"\r\n")[0]))
