"""What all kinds of trouble share: requests that are sent until they are answered, and ledgers that are counted."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

FIFTY: Final = 50
STOPPED_FOR: Final = 4.0
"""How many seconds a store is stopped: longer than the slow card takes, so that its charge finds no store."""
SLOW_CARD: Final = "tok_slow"
CARD: Final = "tok_ok"
_PAUSE: Final = 0.5
_LONGEST_WAIT: Final = 60.0
Send = Callable[[], Awaitable[httpx.Response]]


def make_client(address: str) -> httpx.AsyncClient:
    """A client with room for fifty requests at once."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(base_url=address, timeout=_LONGEST_WAIT, limits=limits, trust_env=False)


async def send_until_answered(send: Send) -> list[httpx.Response | None]:
    """Send the same request again and again until it is answered for good; all answers, None for one that was lost."""
    answers: list[httpx.Response | None] = []
    while True:
        try:
            answers.append(await send())
        except httpx.TransportError:
            answers.append(None)
        if (last := answers[-1]) is not None and _is_final(last):
            return answers
        await asyncio.sleep(_PAUSE)


def _is_final(answer: httpx.Response) -> bool:
    return (
        answer.is_success
        or answer.has_redirect_location
        or (answer.is_client_error and "retry-after" not in answer.headers)
    )


async def send_fifty_times(send: Send) -> list[httpx.Response | None]:
    """Send the same request fifty times at once, and each again until it is answered; the last answers."""
    return [answers[-1] for answers in await asyncio.gather(*(send_until_answered(send) for _ in range(FIFTY)))]


def describe_answers(answers: Sequence[httpx.Response | None]) -> str:
    """Answers in their order, such as "no answer, 503 twice, then 200"."""
    names = ["no answer" if answer is None else str(answer.status_code) for answer in answers]
    groups: list[tuple[str, int]] = []
    for name in names:
        if groups and groups[-1][0] == name:
            groups[-1] = (name, groups[-1][1] + 1)
        else:
            groups.append((name, 1))
    texts = [name if times == 1 else f"{name} {say_times(times)}" for name, times in groups]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])}, then {texts[-1]}"


def count_replayed(answers: Sequence[httpx.Response | None]) -> int:
    """How many of them came from the record."""
    return sum(answer is not None and answer.headers.get("idempotency-replayed") == "true" for answer in answers)


def count(noun: str, number: int) -> str:
    """Such as "1 charge" or "49 charges"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def say_times(number: int) -> str:
    """Such as "once" or "49 times"."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


class Gateway:
    """The payment gateway of a service: its faults over HTTP, and its ledger as the file that it is."""

    def __init__(self, address: str, ledger: Path) -> None:
        self._faults = Faults(address)
        self._ledger = ledger
        self.change, self.wait_for_work = self._faults.change, self._faults.wait_for_work

    def charges(self) -> Counter[str]:
        """How often each payment was charged, by its reference."""
        *lines, _ = self._ledger.read_text().split("\n")
        entries = [json.loads(line) for line in lines]
        return Counter(entry["reference"] for entry in entries if entry["event"] == "charged")


class Faults:
    """What a system at `address` does wrong on request."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def change(self, **wanted: float) -> None:
        """Set the faults that are named."""
        async with make_client(self._address) as client:
            (await client.post("/faults", json=wanted)).raise_for_status()

    async def wait_for_work(self) -> None:
        """Wait until it has something to do."""
        async with make_client(self._address) as client:
            while not (await self._look(client))["under_way"]:  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.02)

    @staticmethod
    async def _look(client: httpx.AsyncClient) -> dict[str, Any]:
        found: dict[str, Any] = (await client.get("/faults")).raise_for_status().json()
        return found
