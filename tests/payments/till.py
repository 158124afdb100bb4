"""A payments service for tests: the real application in this process, the real gateway in another.

What always holds: what is asked about the end is read from the database and from the gateway's ledger, not replies.
"""

import csv
import io
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
from sqlalchemy import func, select, text

from examples.payments.app import make_app
from examples.payments.authentication import digest_of
from examples.payments.parts import Parts
from examples.payments.settings import Settings
from examples.payments.tables import Account, Credential, Payment
from examples.payments.working import Worker, find_open
from tests.hotel.front_desk import Gateway

COLUMNS = ("id", "amount", "customer_id", "payment_method_id")


@dataclass
class Clock:
    """The service's time."""

    now: datetime = datetime(2030, 5, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **by: float) -> None:
        self.now += timedelta(**by)


@dataclass
class Till:
    """The application with its database, as one account after another sees it."""

    settings: Settings
    clock: Clock
    gateway: Gateway

    def __post_init__(self) -> None:
        self.app = make_app(self.settings)
        self.parts: Parts = self.app.state.parts

    def twin(self) -> "Till":
        """Another process on the same database: it shares nothing else."""
        return replace(self)

    async def shop(self, name: str = "Shop") -> "Shop":
        """An account with an API key."""
        account_id, key = f"acc_{secrets.token_hex(6)}", secrets.token_hex(8)
        async with self.parts.database.writing() as session:
            session.add(Account(id=account_id, name=name, created_at=self.clock()))
            await session.flush()
            session.add(Credential(digest=digest_of(key), account_id=account_id, kind="key", created_at=self.clock()))
        return Shop(self, account_id, self.client({"Authorization": f"Bearer {key}"}))

    def client(self, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
        """Whoever sends these headers."""
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://payments", headers=headers)

    async def run_bulks(self) -> None:
        """Do what a worker does, until no bulk is open."""
        worker = Worker(self.parts)
        while found := await find_open(self.parts):
            for bulk in found:
                await worker.run_bulk(bulk)

    async def end_leases(self) -> None:
        """What time does for those who were killed: nobody waits for it, and no lease has to be short."""
        async with self.parts.database.writing() as session:
            await session.execute(text("UPDATE semel_record SET lease_us = created_us WHERE status = 'running'"))

    async def forget_keys(self) -> None:
        """What time does to requests that have ended: their keys are kept no longer."""
        async with self.parts.database.writing() as session:
            await session.execute(
                text("UPDATE semel_record SET expires_us = 0 WHERE status IN ('completed', 'failed')")
            )

    async def statuses(self) -> dict[str, int]:
        """How many payments there are of each status."""
        async with self.parts.database.reading() as session:
            counted = select(Payment.status, func.count()).group_by(Payment.status)
            return {str(status): count for status, count in await session.execute(counted)}

    def charges(self) -> Counter[str]:
        """How often each payment of this test was charged, by its id."""
        ledger = self.gateway.process.ledger()[self.gateway.before :]
        return Counter(line["reference"] for line in ledger if line["event"] == "charged")


@dataclass
class Shop:
    """A program with an API key."""

    till: Till
    account_id: str
    client: httpx.AsyncClient
    keys: list[str] = field(default_factory=list)

    def at(self, till: Till) -> "Shop":
        """The same program, asking another process."""
        return replace(self, till=till, client=till.client({"Authorization": self.client.headers["Authorization"]}))

    async def send(self, path: str, body: object, key: str | None = None) -> httpx.Response:
        """A POST of JSON, with a key of its own where none is named."""
        return await self.client.post(path, json=body, headers={"Idempotency-Key": key or secrets.token_hex(8)})

    async def pay(self, key: str | None = None, amount: object = "12.50", card: str = "tok_ok") -> httpx.Response:
        body = {"amount": amount, "customer_id": "c-1", "payment_method_id": card}
        return await self.send("/payments", body, key)

    async def paid(self, amount: str = "12.50") -> str:
        """The id of a payment that was made."""
        response = await self.pay(amount=amount)
        assert response.status_code == 201, response.text
        return str(response.json()["transaction_id"])

    async def refund(self, payment: str, amount: str, key: str | None = None) -> httpx.Response:
        return await self.send(f"/payments/{payment}/refunds", {"amount": amount, "reason": "returned"}, key)

    async def upload(self, content: bytes, key: str = "file", kind: str = "text/csv", **options: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key, "Content-Type": kind}
        return await self.client.post("/bulk", content=content, headers=headers, **options)

    async def bulk(self, rows: Iterable[tuple[str, str, str, str]], key: str = "file") -> str:
        """The address of a bulk that was accepted."""
        response = await self.upload(as_csv(rows), key)
        assert response.status_code == 202, response.text
        return str(response.headers["location"])

    async def get(self, address: str) -> dict[str, Any]:
        response = await self.client.get(address)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    async def results(self, address: str, **query: Any) -> list[dict[str, Any]]:
        response = await self.client.get(f"{address}/results", params=query)
        assert response.status_code == 200, response.text
        return [msgspec.json.decode(line) for line in response.content.splitlines()]


def rows(count: int, amount: str = "1.25", card: str = "tok_ok") -> list[tuple[str, str, str, str]]:
    """Lines of a file."""
    return [(f"p-{number}", amount, f"c-{number}", card) for number in range(count)]


def as_csv(lines: Iterable[tuple[str, str, str, str]]) -> bytes:
    """As a file with a head."""
    file = io.StringIO()
    csv.writer(file).writerows([COLUMNS, *lines])
    return file.getvalue().encode()


def as_jsonl(lines: Iterable[tuple[str, str, str, str]]) -> bytes:
    """As JSON, one object in each line; amounts are numbers there."""
    texts = (
        f'{{"id": "{i}", "amount": {amount}, "customer_id": "{customer}", "payment_method_id": "{card}"}}\n'
        for i, amount, customer, card in lines
    )
    return "".join(texts).encode()


def code_of(response: httpx.Response) -> str:
    """The code of a refusal."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    return str(response.json()["type"]).rpartition(":")[2]
