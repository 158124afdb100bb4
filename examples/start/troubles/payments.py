"""Trouble for payments: one payment, or a file of them, while something goes wrong."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from examples.payments.processes import PaymentsProcesses
from examples.start.runs import Button, Outcome, Tell
from examples.start.stores import Stores
from examples.start.troubles.sending import (
    CARD,
    SLOW_CARD,
    STOPPED_FOR,
    Gateway,
    count,
    count_replayed,
    describe_answers,
    make_client,
    send_fifty_times,
    send_until_answered,
)

IN_FILE: Final = 40
SLOWLY: Final = 0.25
"""How many seconds a charge of a file takes, so that there is a middle to kill the worker in."""


@dataclass(frozen=True)
class Shop:
    """An account, by its API key."""

    client: httpx.AsyncClient

    async def pay(self, key: str, card: str = CARD) -> httpx.Response:
        """Send a payment under a key."""
        body = {"amount": "12.50", "customer_id": "customer-7", "payment_method_id": card}
        return await self.client.post("/payments", json=body, headers={"Idempotency-Key": key})

    async def send_file(self, payments: int) -> str:
        """Send a file of payments; gives the address of its bulk."""
        run = secrets.token_hex(4)
        lines = [f"{run}-{number},{number}.00,customer-{number},{CARD}" for number in range(1, payments + 1)]
        content = "\n".join(["id,amount,customer_id,payment_method_id", *lines]) + "\n"
        headers = {"Idempotency-Key": run, "Content-Type": "text/csv"}
        answers = await send_until_answered(
            lambda: self.client.post("/bulk", params={"name": f"{run}.csv"}, content=content, headers=headers)
        )
        assert answers[-1] is not None
        return str(answers[-1].raise_for_status().headers["location"])

    async def follow(self, bulk: str) -> dict[str, Any]:
        """How far a bulk is."""
        found: dict[str, Any] = (await self._get(bulk)).json()
        return found

    async def read_results(self, bulk: str) -> list[dict[str, Any]]:
        """What became of each line of a bulk."""
        answer = await self._get(f"{bulk}/results")
        return [json.loads(line) for line in answer.text.splitlines()]

    async def _get(self, path: str) -> httpx.Response:
        """An answer, once there is one: another service may have stopped the server of all."""
        answers = await send_until_answered(lambda: self.client.get(path))
        assert answers[-1] is not None
        return answers[-1].raise_for_status()


class PaymentsTroubles:
    """The buttons of payments."""

    def __init__(self, address: str, processes: PaymentsProcesses, ledger: Path, stores: Stores) -> None:
        self._address = address
        self._processes = processes
        self._gateway = Gateway(processes.gateway_address, ledger)
        self._stores = stores

    def buttons(self) -> list[Button]:
        """All of them."""
        file = f"SIGKILL, in the middle of a file of {IN_FILE} payments."
        return [
            Button("fifty", "Send it fifty times", "A shop sends a payment fifty times at once.", self.send_fifty),
            Button("lose", "Lose the reply", "The gateway charges the card, and its answer is lost.", self.lose_reply),
            Button("kill", "Kill the worker", file, self.kill_worker),
            Button("stop", "Stop the store", "The database is away while the card is being charged.", self.stop_store),
        ]

    async def send_fifty(self, tell: Tell) -> Outcome:
        """Fifty payments with one key at once."""
        async with self._open_account(tell) as shop:
            key = secrets.token_hex(8)
            tell("Fifty payments with one key are on their way.")
            answers = await send_fifty_times(lambda: shop.pay(key))
            replayed = count_replayed(answers)
            line = (
                f"{count('payment', len(answers))} with one key: {len(answers) - replayed} ran, "
                f"{replayed} were answered from the record."
            )
            return self._judge(line, len(answers), answers[-1])

    async def lose_reply(self, tell: Tell) -> Outcome:
        """The gateway charges, and hangs up."""
        async with self._open_account(tell) as shop:
            key = secrets.token_hex(8)
            await self._gateway.change(lose_reply=1)
            tell("The gateway has charged and hung up: nobody knows. The shop sends it again.")
            answers = await send_until_answered(lambda: shop.pay(key))
            line = (
                f"The gateway’s answer was lost. The shop got {describe_answers(answers)}: under the same key, "
                "the gateway was asked what had become of it."
            )
            return self._judge(line, len(answers), answers[-1])

    async def kill_worker(self, tell: Tell) -> Outcome:
        """The worker dies in the middle of a file."""
        async with self._open_account(tell) as shop:
            await self._gateway.change(delay=SLOWLY)
            try:
                return await self._kill_worker(tell, shop)
            finally:
                await self._gateway.change(delay=0)

    async def _kill_worker(self, tell: Tell, shop: Shop) -> Outcome:
        bulk = await shop.send_file(IN_FILE)
        while (before := (await shop.follow(bulk))["completed"]) < IN_FILE // 4:
            tell(f"{before} of {IN_FILE} payments are made.")
            await asyncio.sleep(0.05)
        for worker in self._processes.workers:
            worker.kill()
        while (now := await shop.follow(bulk))["state"] != "completed":
            tell(f"The worker was killed after {before} payments; {now['completed']} of {IN_FILE} are made.")
            await asyncio.sleep(0.2)
        results, charges = await shop.read_results(bulk), self._gateway.charges()
        attempts = sum(result["attempts"] for result in results)
        made = sum(charges[result["payment"]["transaction_id"]] for result in results if result["payment"])
        line = (
            f"The worker was killed after {before} of {IN_FILE} payments, and the next one went on: "
            f"{now['completed']} are made, in {attempts} attempts; {count('charge', made)} in the gateway’s ledger."
        )
        return Outcome(line, attempts, IN_FILE, made)

    async def stop_store(self, tell: Tell) -> Outcome:
        """The store is away when the charge comes back."""
        async with self._open_account(tell) as shop:
            key = secrets.token_hex(8)
            paying = asyncio.create_task(send_until_answered(lambda: shop.pay(key, SLOW_CARD)))
            await self._gateway.wait_for_work()
            async with self._stores.stop("payments"):
                tell(f"{self._stores.stopped}: the charge is made, and nothing can be written down.")
                await asyncio.sleep(STOPPED_FOR)
            tell("The store is back.")
            answers = await paying
            line = (
                f"{self._stores.stopped} for {STOPPED_FOR:.0f} s while a card was charged. "
                f"The shop got {describe_answers(answers)}."
            )
            return self._judge(line, len(answers), answers[-1])

    def _judge(self, line: str, asked: int, last: httpx.Response | None) -> Outcome:
        body = {} if last is None else last.json()
        charges = self._gateway.charges()[body.get("transaction_id", "")]
        end = f"The payment {body.get('status', 'is unknown')}; {count('charge', charges)} in the gateway’s ledger."
        return Outcome(f"{line} {end}", asked, 1, charges)

    @asynccontextmanager
    async def _open_account(self, tell: Tell) -> AsyncIterator[Shop]:
        """A new account, and a client that has its key."""
        tell("A shop opens an account.")
        secret = secrets.token_hex(24)
        body = {
            "name": "Shop",
            "email": f"{secret[:12]}@example.org",
            "api_key_sha256": hashlib.sha256(secret.encode()).hexdigest(),
        }
        async with make_client(self._address) as client:
            headers = {"Idempotency-Key": secret[:16]}
            answers = await send_until_answered(lambda: client.post("/accounts", json=body, headers=headers))
            assert answers[-1] is not None
            answers[-1].raise_for_status()
            client.headers["Authorization"] = f"Bearer {secret}"
            yield Shop(client)
