"""Work that goes on when its client leaves: Django cancels a request whose connection is gone.

What always holds: whoever waits for such work waits until it has ended, and is cancelled then. So the threads of the
request stay open as long as a view needs them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
_log: Final = logging.getLogger("semel")


async def to_the_end(work: Coroutine[Any, Any, T], on_cancel: Callable[[], None] | None = None) -> T:
    """Await `work` in a task of its own; `on_cancel` is called as soon as whoever waits is cancelled.

    Raises:
        asyncio.CancelledError: whoever waits was cancelled; the work has ended all the same.
    """
    task = asyncio.get_running_loop().create_task(work)
    left: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as cancelled:
            left = cancelled
            if on_cancel is not None:
                on_cancel()
    if left is None:
        return task.result()
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.debug("a keyed request whose client has left ended with %s", type(error).__name__)
    raise left
