"""A system around the hospital over HTTP: what it is asked for under a key it does once. Nothing of semel is in here.

What always holds: an answer is sent after its entry is in the ledger, and the same key gets the same answer. On request
it is slow, loses answers or says 500, each after the entry is made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.hospital.outside.ledger import Ledger
from examples.hotel.gateway.faults import Droppable, Faults, hang_up
from examples.launching.serving import serve

REFUSED_GUIDES = "TISS-R"
"""Guides whose numbers begin so are refused by the insurer."""


class System:
    """The handlers of one system.

    Args:
        ledger: what it has done.
        faults: what it does wrong.
        kinds: what it can be asked for, by path, with the first letters of the numbers it gives.
    """

    def __init__(self, ledger: Ledger, faults: Faults, kinds: Mapping[str, str]) -> None:
        self._ledger = ledger
        self._faults = faults
        self._kinds = kinds

    def make_app(self) -> Starlette:
        """The system as an ASGI application."""
        kinds = [Route(f"/{kind}", self._handle, methods=["GET", "POST"], name=kind) for kind in self._kinds]
        return Starlette(routes=[*kinds, Route("/faults", self._change_faults, methods=["GET", "POST"])])

    async def _handle(self, request: Request) -> Response:
        kind = request.url.path.strip("/")
        if request.method == "GET":
            return JSONResponse([asdict(entry) for entry in self._ledger.entries(kind)])
        key, asked = request.headers.get("idempotency-key", ""), await _read(request)
        if not key or asked is None:
            return JSONResponse({"error": "Nothing was done: a key and a JSON object are needed."}, 400)
        self._faults.under_way += 1
        try:
            return await self._do(request, key, kind, asked)
        finally:
            self._faults.under_way -= 1

    async def _do(self, request: Request, key: str, kind: str, asked: dict[str, Any]) -> Response:
        text = json.dumps(asked, sort_keys=True)
        is_refused = kind == "claims" and str(asked.get("guide")).startswith(REFUSED_GUIDES)
        entered, prefix = ("glosas", "G") if is_refused else (kind, self._kinds[kind])
        entry = self._ledger.enter(key, entered, prefix, text)
        await self._faults.pause(0)
        if self._faults.take("lose_reply"):
            await hang_up(request)
            return Response()
        if self._faults.take("error_reply"):
            return JSONResponse({"error": "Something went wrong here; whether it was done is not said."}, 500)
        if (entry.kind, entry.asked) != (entered, text):
            return JSONResponse({"error": "This key was used for something else; nothing was done."}, 409)
        if is_refused:
            return JSONResponse({"error": f"glosa for guide {asked['guide']}", "glosa": entry.number}, 422)
        return JSONResponse({"number": entry.number, "day": entry.day}, 201)

    async def _change_faults(self, request: Request) -> Response:
        if request.method == "POST":
            try:
                self._faults.change(await _read(request))
            except ValueError as error:
                return JSONResponse({"error": f"Nothing was changed: {error}."}, 400)
        return JSONResponse(self._faults.described())


async def _read(request: Request) -> dict[str, Any] | None:
    try:
        body = await request.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def serve_system(module: str, kinds: Mapping[str, str]) -> None:
    """Serve a system with its ledger in the file `LEDGER`, each new request taking `DELAY` seconds."""

    def make() -> Starlette:
        faults = Faults(float(os.environ.get("DELAY", "0")))
        return System(Ledger(Path(os.environ["LEDGER"])), faults, kinds).make_app()

    serve(module, make, protocol=Droppable)
