"""The gateway over HTTP: charge, find and refund by key. Somebody else's system, so nothing of semel is in here.

What always holds: an answer is sent only after its line is on the disk, and the same key gets the same answer; once a
key is closed or refunded, a charge under it is refused.
"""

import asyncio
import os
import re
from decimal import Decimal
from typing import Any
from weakref import WeakValueDictionary

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.hotel.gateway.faults import Faults, hang_up
from examples.hotel.gateway.ledger import Asked, Entry, Ledger

SLOW_CARD = "tok_slow"
SLOW_CARD_SECONDS = 3.0
_KEY = re.compile(r'("?)([A-Za-z0-9._~:-]{1,255})\1')  # in quotes as the header's draft has it, or bare
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,4})?")


class Refused(Exception):
    """A request that changes nothing: the status, a code for programs and a sentence for people."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code


def make_app(ledger: Ledger, faults: Faults) -> Starlette:
    """The gateway as an ASGI application. Everything runs on one loop, so the ledger has one user at a time."""
    gateway = _Gateway(ledger, faults)
    return Starlette(
        routes=[
            Route("/charges", gateway.charge, methods=["POST"]),
            Route("/charges/{key}", gateway.find, methods=["GET"]),
            Route("/charges/{key}/refund", gateway.refund, methods=["POST"]),
            Route("/charges/{key}/refunds", gateway.give_back, methods=["POST"]),
            Route("/faults", gateway.faults, methods=["GET", "POST"]),
            Route("/health", _health, methods=["GET"]),
        ],
        exception_handlers={Refused: _refusal},
    )


class _Gateway:
    def __init__(self, ledger: Ledger, faults: Faults) -> None:
        self._ledger = ledger
        self._faults = faults
        # A lock lives as long as somebody holds it or waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def charge(self, request: Request) -> Response:
        key = _key(request.headers.get("idempotency-key", ""))
        asked = _asked(await _json(request))
        self._faults.under_way += 1
        try:
            # The second request with a key waits for the first, also while that one is delayed.
            async with self._locks.setdefault(key, asyncio.Lock()):
                entry = await self._charged(key, asked)
        finally:
            self._faults.under_way -= 1
        if self._faults.take("lose_reply"):
            await hang_up(request)
            return Response()
        if self._faults.take("error_reply"):
            raise Refused(500, "internal", "Something went wrong here; whether the charge was made is not said.")
        return _answer(entry, asked)

    async def _charged(self, key: str, asked: Asked) -> Entry:
        if self._ledger.find(key) is None:
            await self._faults.pause(SLOW_CARD_SECONDS if asked.card == SLOW_CARD else 0)
        if self._faults.take("die_before"):
            os._exit(1)
        # The ledger looks again: a refund may have closed the key during the delay.
        entry = self._ledger.charge(key, asked)
        if self._faults.take("die_after"):
            os._exit(1)
        return entry

    async def find(self, request: Request) -> Response:
        key = _key(request.path_params["key"])
        entry = self._ledger.find(key)
        if entry is None:
            raise Refused(404, "unknown-key", "No charge under this key is in the ledger. One may still be under way.")
        return JSONResponse(entry.described())

    async def refund(self, request: Request) -> Response:
        # No lock: a refund need not wait for a delayed charge. It closes the key, and the charge is refused later.
        return JSONResponse(self._ledger.refund(_key(request.path_params["key"])).described())

    async def give_back(self, request: Request) -> Response:
        refund_key = _key(request.headers.get("idempotency-key", ""))
        amount = _part(await _json(request))
        try:
            given = self._ledger.give_back(_key(request.path_params["key"]), refund_key, amount)
        except ValueError as error:
            raise Refused(409, "not-refundable", f"Nothing was given back: {error}.") from error
        if self._faults.take("lose_reply"):
            await hang_up(request)
            return Response()
        return JSONResponse({"receipt": given.receipt}, 201)

    async def faults(self, request: Request) -> Response:
        if request.method == "POST":
            try:
                self._faults.change(await _json(request))
            except ValueError as error:
                raise Refused(400, "bad-faults", f"Nothing was changed: {error}.") from error
        return JSONResponse(self._faults.described())


def _answer(entry: Entry, asked: Asked) -> Response:
    if entry.state in ("closed", "refunded"):
        raise Refused(410, entry.state, f"This key is {entry.state}; no money is taken under it. Take a new key.")
    if entry.asked != asked:
        raise Refused(422, "key-reused", "This key was used for another charge; this one did not run. Take a new key.")
    if entry.state == "declined":
        raise Refused(402, "declined", "The card was declined; no money was taken. Take a new key and another card.")
    return JSONResponse({"receipt": entry.receipt}, 201)


def _key(text: str) -> str:
    match = _KEY.fullmatch(text)
    if match is None:
        detail = "Nothing ran. A key is 1 to 255 of A-Z a-z 0-9 . _ ~ : - in the header Idempotency-Key or the path."
        raise Refused(400, "bad-key", detail)
    return match[2]


async def _json(request: Request) -> Any:
    try:
        return await request.json()
    except (ValueError, ClientDisconnect) as error:
        raise Refused(400, "bad-body", "Nothing ran. The body is not JSON, or did not come whole.") from error


def _asked(body: object) -> Asked:
    match body:
        case {"amount": str(amount), "currency": str(currency), "card": str(card), "reference": str(reference)} if (
            _AMOUNT.fullmatch(amount) and Decimal(amount) > 0
        ):
            return Asked(Decimal(amount), currency, card, reference)
    detail = 'Nothing ran. Send {"amount": "240.00", "currency", "card", "reference"}, all text, the amount above zero.'
    raise Refused(400, "bad-body", detail)


def _part(body: object) -> Decimal:
    match body:
        case {"amount": str(amount)} if _AMOUNT.fullmatch(amount) and Decimal(amount) > 0:
            return Decimal(amount)
    raise Refused(400, "bad-body", 'Nothing ran. Send {"amount": "12.50"}, as text, above zero.')


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse({"error": error.code, "detail": str(error)}, error.status)


async def _health(request: Request) -> Response:
    return Response(status_code=204)
