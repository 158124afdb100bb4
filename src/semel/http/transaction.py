"""The transaction that a request runs in, for the code of its view.

What always holds: it is there exactly where the route has `within=`, from before the view is called until its response
and its effects are committed together.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from semel.errors import UsageError


@dataclass
class Running:
    """A request's transaction, for as long as it is open."""

    connection: Any | None

    def end(self) -> None:
        """It is decided: what runs on in the context of the request, such as background work, finds none."""
        self.connection = None


_current: contextvars.ContextVar[Running | None] = contextvars.ContextVar("semel_http_transaction", default=None)


def transaction() -> Any:
    """The session or connection that `within=` of the route gave for this request.

    Raises:
        UsageError: there is none here.
    """
    running = _current.get()
    if running is None or running.connection is None:
        message = (
            "transaction() was called where no request runs in a transaction of its route; nothing was written. "
            "Give the route within=…, and call it from its view."
        )
        raise UsageError(message)
    return running.connection


@contextmanager
def running_in(connection: Any | None) -> Iterator[Running]:
    """Views called inside find this transaction, until it is said to have ended."""
    running = Running(connection)
    token = _current.set(running)
    try:
        yield running
    finally:
        _current.reset(token)
