"""What the console shows of each service now, in short: its latest operations, and how many need a person.

What always holds: the start page waits for this no longer than a moment. A store that is away, which a button may have
seen to, leaves what was known last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

LATEST_PATH: Final = "/latest"
_KEPT_FOR: Final = 0.5
_PATIENCE: Final = 1.0
_MARKS: Final = {"completed": "✔", "running": "▶", "failed": "✘", "in_doubt": "?", "cancelled": "–"}


@dataclass(frozen=True)
class Operation:
    """One operation, as the start page shows it."""

    status: str
    mark: str
    operation: str
    key: str
    replays: int
    url: str


@dataclass(frozen=True)
class ServiceSummary:
    """What is seen of one service: its latest operations, the newest first, and how many need a person."""

    operations: tuple[Operation, ...] = ()
    needs: int = 0


class Operations:
    """Asks the console, at most every half second however many people look.

    Args:
        address: of the process that has the consoles of all services.
        monotonic: seconds that only grow.
    """

    def __init__(self, address: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._monotonic = monotonic
        self._seen: dict[str, ServiceSummary] = {}
        self._asked = float("-inf")
        self._client = httpx.AsyncClient(base_url=address, timeout=_PATIENCE, trust_env=False)

    async def look(self) -> Mapping[str, ServiceSummary]:
        """What is seen of each service by its name; of one that does not answer, what was seen last."""
        if self._monotonic() - self._asked >= _KEPT_FOR:
            self._asked = self._monotonic()
            try:
                async with asyncio.timeout(_PATIENCE):
                    told = (await self._client.get(LATEST_PATH)).raise_for_status().json()
            except (httpx.HTTPError, TimeoutError):
                return self._seen
            self._seen |= {name: self._summarize(name, one) for name, one in told.items()}
        return self._seen

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _summarize(self, name: str, told: Mapping[str, Any]) -> ServiceSummary:
        shown = [
            Operation(
                status=one["status"].replace("_", " "),
                mark=_MARKS[one["status"]],
                operation=one["operation"],
                key=one["key"],
                replays=one["replays"],
                url=f"{self._address}/{name}/records/{one['reference']}",
            )
            for one in told["latest"]
        ]
        return ServiceSummary(tuple(shown), told["needs"])
