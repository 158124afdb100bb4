"""Clients that keep their keys: every unsafe request gets one, on disk before the first byte is sent.

`semel.client` has the clients and transports for httpx; `semel.client.requests` has the adapter for requests. Nothing
of either library is loaded before it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.client.httpx import AsyncClient, AsyncOnceTransport, Client, OnceTransport
    from semel.client.models import INTENT, SUBJECT
    from semel.client.pending import Pending, Resumed

_HOMES = {
    "INTENT": "semel.client.models",
    "SUBJECT": "semel.client.models",
    "AsyncClient": "semel.client.httpx",
    "AsyncOnceTransport": "semel.client.httpx",
    "Client": "semel.client.httpx",
    "OnceTransport": "semel.client.httpx",
    "Pending": "semel.client.pending",
    "Resumed": "semel.client.pending",
}

__all__ = ["INTENT", "SUBJECT", "AsyncClient", "AsyncOnceTransport", "Client", "OnceTransport", "Pending", "Resumed"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
