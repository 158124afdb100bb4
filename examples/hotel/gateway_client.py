"""How a service talks to the payment gateway: every charge under a key of ours, by which it can be asked for later.

What always holds: an answer is a value, also "declined". No answer is an error, and says whether the gateway can have
heard of it: `GatewayUnreachable` if not, `GatewaySilent` if so. Nothing is retried here: the key is in the database
before the first byte is sent, and whoever comes back, the request or the sweeper, asks with the same one.
"""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

import httpx

State = Literal["charged", "declined", "refunded", "closed"]


@dataclass(frozen=True)
class Charge:
    """What the gateway says of a key."""

    state: State
    receipt: str | None = None


class GatewayUnreachable(Exception):
    """The gateway did not get the request; nothing happened."""


class GatewaySilent(Exception):
    """The gateway may have got the request, and did not answer; it may have charged."""


class RefundRefused(Exception):
    """The gateway gives nothing back: no money is left of that charge, or it was none."""


class Gateway:
    """The payment gateway at `address`."""

    def __init__(self, address: str, timeout: timedelta) -> None:
        self._client = httpx.AsyncClient(base_url=address, timeout=timeout.total_seconds())

    async def charge(self, key: str, amount: Decimal, currency: str, card: str, reference: str) -> Charge:
        """Charge a card once, however often this is called with the same key."""
        body = {"amount": f"{amount:.2f}", "currency": currency, "card": card, "reference": reference}
        reply = await self._ask("POST", "/charges", json=body, headers={"Idempotency-Key": key})
        match reply.status_code:
            case 201:
                return Charge("charged", reply.json()["receipt"])
            case 402:
                return Charge("declined")
            case 410:
                return await self.find(key) or Charge("closed")
        raise GatewaySilent(f"The gateway answered {reply.status_code} to a charge; it may have been made. Ask for it.")

    async def find(self, key: str) -> Charge | None:
        """What became of a charge; None where the gateway has never heard of it."""
        reply = await self._ask("GET", f"/charges/{key}")
        return None if reply.status_code == httpx.codes.NOT_FOUND else _charge(reply)

    async def refund(self, key: str) -> Charge:
        """Give the money back; a key that was never charged is closed, so that a charge on its way is refused."""
        return _charge(await self._ask("POST", f"/charges/{key}/refund"))

    async def give_back(self, key: str, refund_key: str, amount: Decimal) -> str:
        """Give a part of a charge back, once for each `refund_key`; gives the receipt.

        Raises:
            RefundRefused: the gateway did not do it, and will not.
        """
        headers = {"Idempotency-Key": refund_key}
        reply = await self._ask("POST", f"/charges/{key}/refunds", json={"amount": f"{amount:.2f}"}, headers=headers)
        if reply.status_code == httpx.codes.CREATED:
            return str(reply.json()["receipt"])
        if reply.status_code == httpx.codes.CONFLICT:
            raise RefundRefused(reply.json()["detail"])
        raise GatewaySilent(f"The gateway answered {reply.status_code} to a refund; it may have been made. Ask again.")

    async def close(self) -> None:
        """Let go of all connections."""
        await self._client.aclose()

    async def _ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return await self._client.request(method, path, **request)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise GatewayUnreachable("The gateway could not be reached; nothing was charged. Try again.") from error
        except httpx.TransportError as error:
            raise GatewaySilent("The gateway did not answer; it may have charged. Ask it by the key.") from error


def _charge(reply: httpx.Response) -> Charge:
    if not reply.is_success:
        raise GatewaySilent(f"The gateway answered {reply.status_code}; what it did is not known. Ask again.")
    told = reply.json()
    return Charge(told["state"], told.get("receipt"))
