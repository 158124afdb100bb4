"""What the gateway does wrong on request: it is slow, loses its reply, says 500, or dies. For demos and tests.

What always holds: faults live in memory only, so a gateway that was started again has none but its `--delay`.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Any, Literal

from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

LONGEST_DELAY = 3600.0
Counted = Literal["lose_reply", "error_reply", "die_before", "die_after"]
_COUNTED: tuple[Counted, ...] = ("lose_reply", "error_reply", "die_before", "die_after")
_HANG_UP = "gateway.hang_up"


class Faults:
    """The faults that are on, and how many charges are under way."""

    def __init__(self, delay: float = 0.0) -> None:
        self.delay = delay
        self.under_way = 0
        self._left: dict[Counted, int] = dict.fromkeys(_COUNTED, 0)
        self._changed = asyncio.Event()

    def described(self) -> dict[str, float]:
        """Every fault, and `under_way`: a test can wait until its charge is here, and cut the delay short then."""
        return {"delay": self.delay, "under_way": self.under_way} | {name: self._left[name] for name in _COUNTED}

    def change(self, wanted: object) -> None:
        """Set the faults that are named; the others stay. A shorter delay also counts for those who wait already.

        Raises:
            ValueError: a name or a value is none; nothing was changed.
        """
        if not isinstance(wanted, dict):
            raise ValueError("faults are a JSON object")  # noqa: TRY004  # the value is wrong, and the caller is remote
        counts: dict[Counted, int] = {name: _count(name, wanted[name]) for name in _COUNTED if name in wanted}
        delay = _seconds(wanted.get("delay", self.delay))
        if unknown := sorted(wanted.keys() - {"delay", *_COUNTED}):
            raise ValueError(f"there is no fault {unknown[0]!r}")
        self._left.update(counts)
        if delay == self.delay:
            return  # nobody is woken, who would wait behind one that has just come
        self.delay = delay
        self._changed.set()
        self._changed = asyncio.Event()

    def take(self, name: Counted) -> bool:
        """Whether this charge is one of those to spoil."""
        if not self._left[name]:
            return False
        self._left[name] -= 1
        return True

    async def pause(self, extra: float) -> None:
        """Wait out the delay and `extra` seconds."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while (left := began + self.delay + extra - clock()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} is the number of charges to spoil, not {value!r}")
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"delay is a number of seconds, not {value!r}")  # noqa: TRY004  # as above
    if not (math.isfinite(value) and 0 <= value <= LONGEST_DELAY):
        raise ValueError(f"delay is between 0 and {LONGEST_DELAY:.0f} seconds, not {value!r}")
    return float(value)


class Droppable(H11Protocol):
    """uvicorn's protocol, telling the application how to hang up; ASGI itself has no word for it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Put the means to hang up into the scope of every request on this connection."""
        super().connection_made(transport)
        application = self.app

        async def with_hang_up(scope: Any, receive: Any, send: Any) -> None:
            await application({**scope, _HANG_UP: transport.abort}, receive, send)

        self.app = with_hang_up


async def hang_up(request: Request) -> None:
    """Close the connection without an answer; what is sent afterwards goes nowhere."""
    abort: Callable[[], None] = request.scope[_HANG_UP]
    abort()
    # The server learns of it one turn of the loop later. An answer before that would be tried on a dead connection.
    while (await request.receive())["type"] != "http.disconnect":
        pass
