"""The asset service as a function of AWS Lambda, in processes that end themselves by SIGKILL at a named position.

python -m tests.kill.invocations reads orders from its standard input, one line of JSON each: an invocation, and where
to end. A position is the moment before a request to DynamoDB is sent, the one after its reply has come, before anybody
has seen it, or the one before Lambda would get the answer. The process has everything imported and nothing opened; each
order is carried out by a fork of it, as by a cold start.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.loaders import JSONFileLoader

from examples.assets import aws_lambda
from tests.events.invocations import Context


class Positions:
    """Counts the positions of a process, and ends it at one."""

    def __init__(self, end_at: int | None) -> None:
        self.count = 0
        self._end_at = end_at

    def pass_one(self) -> None:
        """Be at the next position."""
        if self.count == self._end_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1

    def watch(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """What sends a request, with a position before it and one after it."""

        async def watched(session: Any, request: Any) -> Any:
            self.pass_one()
            reply = await send(session, request)
            self.pass_one()
            return reply

        return watched


def invoke(order: dict[str, Any]) -> dict[str, Any]:
    """Carry an order out, in this process."""
    positions = Positions(order["end_at"])
    AIOHTTPSession.send = positions.watch(AIOHTTPSession.send)
    answer = aws_lambda.handler(order["invocation"], Context())
    positions.pass_one()
    return {"answer": answer, "positions": positions.count}


def load_descriptions() -> None:
    """Read the SDK's large descriptions of the service once, for all forks."""
    JSONFileLoader.load_file = functools.cache(JSONFileLoader.load_file)

    async def open_client() -> None:
        async with AioSession().create_client("dynamodb"):
            pass

    asyncio.run(open_client())


def main() -> None:
    """Serve until the input ends."""
    load_descriptions()
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            told = invoke(json.loads(line))
            os.write(writing, json.dumps(told).encode())
            os._exit(0)  # without an orderly end: Lambda gives a process none
        os.close(writing)
        with os.fdopen(reading) as pipe:
            told_by_child = pipe.read()
        _, status = os.waitpid(child, 0)
        print(json.dumps({"status": status, "told": json.loads(told_by_child or "null")}), flush=True)


if __name__ == "__main__":
    main()
