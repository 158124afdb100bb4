"""The way between client and service: it passes messages on, and cuts or holds them as the script of a life says.

What always holds: it ends its work on a message only when the service has ended its own, so nothing happens later that
nobody waits for.
"""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from tests.client.kill.messages import LIFE, Message, receive
from tests.client.kill.plans import Severed
from tests.client.kill.positions import At, Cut
from tests.client.kill.script import Script

_RESET: Final = struct.pack("ii", 1, 0)
"""As SO_LINGER: whoever closes resets the connection."""


class Proxy:
    """In front of the service; `script_of` finds the script of a life, `connect` leads to the service."""

    def __init__(
        self,
        script_of: Callable[[str], Script],
        connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]],
    ) -> None:
        self._script_of = script_of
        self._connect = connect

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry the messages of one connection, until it ends or is cut."""
        inside, outside = await self._connect()
        try:
            while (request := await receive(reader)) is not None:
                exchange = _Exchange(request, writer, inside, outside)
                if not await exchange.run(self._script_of):
                    return
        except ConnectionError:
            return  # the client is gone
        finally:
            outside.close()


class _Exchange:
    """One request and its reply."""

    def __init__(
        self,
        request: Message,
        client: asyncio.StreamWriter,
        inside: asyncio.StreamReader,
        outside: asyncio.StreamWriter,
    ) -> None:
        self._request = request
        self._client = client
        self._inside = inside
        self._outside = outside

    async def run(self, script_of: Callable[[str], Script]) -> bool:
        """Whether the connection goes on."""
        if self._request.first[0] != "POST":
            self._client.write((await self._reply()).data)
            return True
        script = script_of(self._request.headers[LIFE])
        severed = script.next_cut()
        return await (self._held(script) if severed is None else self._cut(severed))

    async def _cut(self, severed: Severed) -> bool:
        match severed.cut:
            case Cut.BEFORE:
                self._end(severed)
            case Cut.IN_REQUEST:
                self._outside.write(self._request.part(severed.portion))
                self._end(severed)
            case Cut.AFTER_REQUEST:
                self._outside.write(self._request.data)
                self._end(severed)
                await receive(self._inside)
            case Cut.INSTEAD_OF_REPLY:
                await self._reply()
                self._end(severed)
            case Cut.IN_HEADERS:
                self._client.write((await self._reply()).part(severed.portion / 2))
                self._end(severed)
            case Cut.IN_BODY:
                self._client.write((await self._reply()).part(0.5 + severed.portion / 2))
                self._end(severed)
        return False

    async def _held(self, script: Script) -> bool:
        """Pass it on; where the life is to be killed, hold it until that is done."""
        portion = script.life.plan.portion
        if await script.pass_by(At.SENT):
            # What is late arrives all the same, when its client is long dead and another has asked for it.
            if script.life.plan.late:
                await self._reply()
            return False
        if script.stops(At.IN_REQUEST):
            self._outside.write(self._request.part(portion))
            await self._outside.drain()
            await script.pass_by(At.IN_REQUEST)
            return False
        reply = await self._reply()
        if script.stops(At.IN_REPLY):
            self._client.write(reply.part(portion))
            await self._client.drain()
            await script.pass_by(At.IN_REPLY)
            return False
        self._client.write(reply.data)
        await self._client.drain()
        return True

    async def _reply(self) -> Message:
        self._outside.write(self._request.data)
        await self._outside.drain()
        reply = await receive(self._inside)
        assert reply is not None, "the service answers whatever it was asked"
        return reply

    def _end(self, severed: Severed) -> None:
        if severed.reset:
            sock: socket.socket = self._client.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._client.close()
