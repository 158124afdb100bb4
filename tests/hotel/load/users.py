"""The users of a run: each signs in, drafts, gives details and pays, asking again with the same key.

What always holds: a user who stays goes on until there is a final answer to the payment, which is kept in `answer`; a
user who leaves sends one payment and never comes back. Whoever does everything twice sends two equal requests at once.
"""

import asyncio
import secrets
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import httpx

from semel import AsyncSemel
from semel.client import INTENT, AsyncClient
from semel.errors import TryLater
from tests.hotel.load.ways import HOTEL, Way, Ways

PATIENCE = 240.0
HASTE = 0.25  # how much of Retry-After the users without semel's client wait for: they are many, and in a hurry
PASSING = (408, 425, 429, 503)
FIRST, EAGER = 2, (3, 10, 12)
"""Who has a room before the others may pay: 2 and 12 leave, 3 and 10 stay; 2, 3 and 10 begin at the same server."""


class Leaves(Enum):
    """How a user leaves."""

    HANGS_UP = "hangs up while the payment runs"
    GIVES_UP = "takes the first answer that is not final for an end"


@dataclass
class Stage:
    """When the users may do what."""

    first: asyncio.Event = field(default_factory=asyncio.Event)
    eager: asyncio.Event = field(default_factory=asyncio.Event)
    everybody: asyncio.Event = field(default_factory=asyncio.Event)
    killing: asyncio.Event = field(default_factory=asyncio.Event)
    hang_up: asyncio.Event = field(default_factory=asyncio.Event)
    half: asyncio.Event = field(default_factory=asyncio.Event)
    users: int = 0
    paying: int = 0

    async def enter(self, number: int) -> None:
        """Wait for the turn of this user to pay."""
        await (self.first if number == FIRST else self.eager if number in EAGER else self.everybody).wait()
        self.paying += 1
        if self.paying >= self.users // 2:
            self.half.set()


class User:
    """One of the users; what kind follows from the number."""

    def __init__(self, number: int, ways: Ways, keys: AsyncSemel, kept: AsyncExitStack) -> None:
        self.number = number
        self.keeps_keys = number % 2 == 1
        self.twice = number % 8 in (0, 3)
        self.leaves = {2: Leaves.HANGS_UP, 7: Leaves.GIVES_UP, 12: Leaves.GIVES_UP, 17: Leaves.HANGS_UP}.get(
            number % 20
        )
        self.reservation = ""
        self.answer: httpx.Response | None = None
        self.refused = 0
        self._ways = ways
        self._kept = kept
        self._key = secrets.token_hex(8)
        self._client = self._made(keys, number // 2, tries=1 if self.leaves else 8)
        # The other of two equal requests: another program at another server, whose store knows nothing of the first.
        self._other = self._made("memory://", number // 2 + 1, tries=1) if self.twice else None

    @property
    def waits(self) -> bool:
        """Whether they were told that all is sold, and will come again."""
        return self.leaves is None and self.answer is not None and is_sold_out(self.answer)

    @property
    def confirmed(self) -> bool:
        """Whether they were told that the room is theirs."""
        return self.answer is not None and self.answer.status_code == 200

    async def arrive(self, stay: dict[str, str]) -> None:
        """Sign in, draft, give details."""
        signed_in = await self._settled("sign-in", "/sign-in", {"name": f"User {self.number}"})
        assert signed_in.status_code == 204, signed_in.text
        if self._other:
            self._other.cookies = self._client.cookies
        drafted = await self._settled("draft", "/reservations", stay)
        assert drafted.status_code == 201, drafted.text
        self.reservation = drafted.json()["id"]
        details = {"guest_name": f"User {self.number}", "email": f"user-{self.number}@example.org"}
        confirmed = await self._settled("details", f"/reservations/{self.reservation}/confirm-details", details)
        assert confirmed.status_code == 200, confirmed.text

    async def pay(self, stage: Stage) -> None:
        """Pay, until there is a final answer or the user has left."""
        if self.leaves is None:
            self.answer = await self._settled("pay", self._payment, {"card": "tok_ok"})
            self.refused += is_sold_out(self.answer)
            return
        answer = await self._once(stage.hang_up)
        while self.number in (FIRST, *EAGER) and not stage.killing.is_set():
            answer = await self._once(stage.hang_up)  # no room yet, on a busy machine: these leave with one
        self.answer = answer if answer is not None and not is_passing(answer) and not is_sold_out(answer) else None

    async def pay_again(self) -> httpx.Response:
        """Send the same payment once more, after its final answer."""
        return await self._settled("pay", self._payment, {"card": "tok_ok"})

    @property
    def _payment(self) -> str:
        return f"/reservations/{self.reservation}/pay"

    async def _once(self, hang_up: asyncio.Event) -> httpx.Response | None:
        sending = asyncio.create_task(self._sent("pay", self._payment, {"card": "tok_ok"}))
        leaving = asyncio.create_task(hang_up.wait())
        ends = {sending, leaving} if self.leaves is Leaves.HANGS_UP else {sending}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            sending.cancel()
        with suppress(asyncio.CancelledError, httpx.TransportError, TryLater):
            return await sending
        return None

    async def _settled(self, name: str, path: str, body: dict[str, Any]) -> httpx.Response:
        """The first answer that is not only a "later"."""
        deadline = time.monotonic() + PATIENCE
        last: object = None
        while time.monotonic() < deadline:
            try:
                last = answer = await self._sent(name, path, body)
            except (httpx.TransportError, TryLater) as error:
                last, pause = error, 0.1
            else:
                if not is_passing(answer):
                    return answer
                pause = HASTE * float(answer.headers.get("Retry-After", "1"))
            await asyncio.sleep(pause)
        raise AssertionError(f"user {self.number} got no answer to {path} in {PATIENCE:.0f} s; the last was {last!r}")

    async def _sent(self, name: str, path: str, body: dict[str, Any]) -> httpx.Response:
        headers = self._headers(name)
        if self._other is None or name == "sign-in":
            return await self._client.post(path, json=body, headers=headers)
        both = asyncio.gather(
            self._client.post(path, json=body, headers=headers),
            self._other.post(path, json=body, headers=headers),
            return_exceptions=True,
        )
        answer, _ = await both  # a user looks at the first, whatever comes of the second
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _headers(self, name: str) -> dict[str, str]:
        # Two equal requests have one key. Named by their intent they would not keep it: where one program was refused
        # and the other lost its first try, the former goes on with the next key and the latter with the same.
        if self.keeps_keys and not self.twice:
            return {INTENT: name}
        return {"Payment-Idempotency-Key" if name == "pay" else "Idempotency-Key": f"{self._key}-{name}"}

    def _made(self, keys: AsyncSemel | str, server: int, *, tries: int) -> httpx.AsyncClient:
        way = Way(self._ways, self.number, server)
        client = (
            AsyncClient(
                keys,
                transport=way,
                base_url=HOTEL,
                timeout=PATIENCE,
                name=f"user {self.number}",
                header=_header,
                tries=tries,
            )
            if self.keeps_keys
            else httpx.AsyncClient(transport=way, base_url=HOTEL, timeout=PATIENCE)
        )
        self._kept.push_async_callback(client.aclose)
        return client


def _header(method: str, url: str) -> str:
    return "Payment-Idempotency-Key" if url.endswith("/pay") else "Idempotency-Key"


def is_passing(answer: httpx.Response) -> bool:
    """Whether it says "later", and nothing else."""
    return answer.status_code in PASSING or (answer.status_code == 409 and "Retry-After" in answer.headers)


def is_sold_out(answer: httpx.Response) -> bool:
    """Whether it says that there is no room."""
    return answer.status_code == 409 and code_of(answer) == "sold-out"


def code_of(answer: httpx.Response) -> str:
    """The code of a refusal; empty if it is none in the form of a problem."""
    if answer.headers.get("content-type") != "application/problem+json":
        return ""
    return str(answer.json().get("type", "")).rpartition(":")[2]
