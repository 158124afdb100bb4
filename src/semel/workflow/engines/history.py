"""How long an engine knows processes that have ended, to be compared with how long the records of their tasks are kept.

While it does, a process can be reset or restarted there, and its tasks are asked for again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class EngineHistory:
    """What an engine is configured with, as far as it tells.

    Attributes:
        place: which namespace, or which process.
        longest: how long a process is known after its end; None: there is no limit.
        limited_by: the setting that says so, or would.
    """

    place: str
    longest: timedelta | None
    limited_by: str
