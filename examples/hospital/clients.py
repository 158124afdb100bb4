"""How the hospital talks to the systems around it: each request under a key, by which a repeat of it is known there.

What always holds: an answer is a value or a refusal. Where there is none, it may have been done.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import httpx


class AnswerLost(Exception):
    """It may have happened: the answer did not arrive, or did not say."""


class KeyTaken(Exception):
    """The key was used for something else before; nothing was done, and never is under it."""


class ClaimDenied(Exception):
    """The insurer refuses to pay the claim; `glosa` is the number of its refusal."""

    def __init__(self, reason: str, glosa: str) -> None:
        super().__init__(reason)
        self.glosa = glosa


@dataclass(frozen=True)
class Receipt:
    """What a system says when it has done something: the number that it gave it, and the day."""

    number: str
    day: date


class System:
    """A system at `address`."""

    def __init__(self, address: str, timeout: float = 30.0) -> None:
        self._client = httpx.Client(base_url=address, timeout=timeout, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def entries(self, kind: str) -> list[dict[str, Any]]:
        """What its ledger has of a kind."""
        found: list[dict[str, Any]] = self._client.get(f"/{kind}").raise_for_status().json()
        return found

    def faults(self, **wanted: float) -> dict[str, float]:
        """Set the faults that are named; all of them as they are now."""
        answer: dict[str, float] = self._client.post("/faults", json=wanted).raise_for_status().json()
        return answer

    def _ask(self, kind: str, key: str, body: dict[str, str]) -> Receipt:
        try:
            reply = self._client.post(f"/{kind}", json=body, headers={"Idempotency-Key": key})
        except httpx.TransportError as error:
            raise AnswerLost(f"no answer to {kind} ({type(error).__name__})") from error
        if reply.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
            raise ClaimDenied(reply.json()["error"], reply.json()["glosa"])
        if reply.status_code == httpx.codes.CONFLICT:
            raise KeyTaken(f"{kind}: this key was used for something else before; nothing was done now")
        if reply.status_code != httpx.codes.CREATED:
            raise AnswerLost(f"{reply.status_code} as an answer to {kind}")
        return Receipt(str(reply.json()["number"]), date.fromisoformat(reply.json()["day"]))


class Insurer(System):
    """The insurer."""

    def submit(self, key: str, claim: str, guide: str, document: bytes) -> Receipt:
        """Hand a claim in, and get the number of its protocol, and its day.

        Raises:
            ClaimDenied: it refuses the guide.
            KeyTaken: the key is that of another claim.
            AnswerLost: it may have it.
        """
        return self._ask("claims", key, {"claim": claim, "guide": guide, "document": document.decode()})

    def appeal(self, key: str, claim: str, glosa: str, kind: str) -> Receipt:
        """Ask it to look at a refusal again.

        Raises:
            KeyTaken: the key is that of another appeal.
            AnswerLost: it may have it.
        """
        return self._ask("appeals", key, {"claim": claim, "glosa": glosa, "kind": kind})


class Books(System):
    """The financial system."""

    def post(self, key: str, claim: str, amount: Decimal) -> Receipt:
        """Book a payment.

        Raises:
            KeyTaken: the key is that of another payment.
            AnswerLost: it may have been booked.
        """
        return self._ask("postings", key, {"claim": claim, "amount": str(amount)})
