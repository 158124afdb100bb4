"""A process that is stopped while its handler runs, and goes on when its lease is long over.

`python -m tests.faults.stalls.stopped STYLE COLOUR URL` prints `running` in its handler, waits there for a line on its
standard input, begins a step, and ends with one line of JSON: how the call ended, and whether the step ran. Meanwhile
it prints every warning that semel logs.
"""

import asyncio
import json
import logging
import sys
from datetime import timedelta
from typing import Any, cast

from semel import AsyncSemel, Policy, Semel
from semel.errors import SemelError
from tests.decorated import CallStyle, call

POLICY = Policy(lease_for=timedelta(seconds=3))


class Printing(logging.Handler):
    """Prints what semel logs."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), flush=True)


def _stop_here() -> str:
    print("running", flush=True)
    return sys.stdin.readline()


def with_threads(style: CallStyle, url: str, ran: list[str]) -> Any:
    """The call through `Semel`."""
    with Semel(url, policy=POLICY) as semel:

        def handler() -> str:
            attempt = semel.current()
            _stop_here()
            attempt.step("charge", lambda: ran.append("charge"))
            return "late"

        return call(style, semel, "k", handler, operation="stall").value


async def with_a_loop(style: CallStyle, url: str, ran: list[str]) -> Any:
    """The call through `AsyncSemel`."""
    async with AsyncSemel(url, policy=POLICY) as semel:

        async def charge() -> None:
            ran.append("charge")

        async def handler() -> str:
            attempt = semel.current()
            await asyncio.to_thread(_stop_here)
            await attempt.step("charge", charge)
            return "late"

        return (await call(style, semel, "k", handler, operation="stall")).value


def main(style: CallStyle, colour: str, url: str) -> dict[str, Any]:
    """Make the call, and tell how it went."""
    ran: list[str] = []
    logging.getLogger("semel").addHandler(Printing(logging.WARNING))
    try:
        ended = with_threads(style, url, ran) if colour == "threads" else asyncio.run(with_a_loop(style, url, ran))
    except SemelError as error:
        ended = type(error).__name__
    return {"ended": ended, "ran": ran}


if __name__ == "__main__":
    _, style, colour, url = sys.argv
    print(json.dumps(main(cast("CallStyle", style), colour, url)), flush=True)
