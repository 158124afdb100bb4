"""The processes of the asset service: servers on one socket."""

from __future__ import annotations

import socket

from examples.assets.serving import DATABASE
from examples.launching.children import Child
from examples.launching.launcher import Supervision, start_all


async def start(supervision: Supervision, listener: socket.socket, *, url: str) -> Child:
    """Start the service; it makes its tables by itself, and answers on `listener`."""
    fd = listener.fileno()
    server = Child(
        "examples.assets.serving",
        *("--fd", str(fd)),
        pipe=supervision.watched,
        fds=[fd],
        variables={DATABASE: url},
    )
    await start_all([server], supervision)
    return server
