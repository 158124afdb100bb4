"""The clock of embedded stores: this machine's, in whole microseconds. Servers bring their own."""

from __future__ import annotations

import time
from collections.abc import Callable

StoreClock = Callable[[], int]


def machine_clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000
