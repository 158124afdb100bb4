"""The transaction that a request runs in, for the code of its view.

What always holds: it is there exactly where the route has `within=`, from before the view is called until its response
and its effects are committed together.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from semel.errors import UsageError

_current: contextvars.ContextVar[Any] = contextvars.ContextVar("semel_http_transaction", default=None)


def transaction() -> Any:
    """The session or connection that `within=` of the route gave for this request.

    Raises:
        UsageError: there is none here.
    """
    found = _current.get()
    if found is None:
        message = (
            "transaction() was called where no request runs in a transaction of its route; nothing was written. "
            "Give the route within=…, and call it from its view."
        )
        raise UsageError(message)
    return found


@contextmanager
def running_in(connection: Any | None) -> Iterator[None]:
    """Views called inside find this transaction."""
    token = _current.set(connection)
    try:
        yield
    finally:
        _current.reset(token)
