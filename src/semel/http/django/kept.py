"""What is kept of a stream while its chunks pass.

What always holds: what was promised by Content-Length is not passed on whole before the outcome is recorded, because a
client that has all of it takes it for the end.
"""

from __future__ import annotations

from typing import Any


class Kept:
    """The chunks of one response, up to a limit.

    Attributes:
        held: what may not leave yet.
    """

    def __init__(self, response: Any, most: int) -> None:
        self.held: list[bytes] = []
        self._chunks: list[bytes] | None = []
        self._most = most
        self._seen = 0
        promised = response.headers.get("Content-Length", "")
        self._promised = int(promised) if promised.isdigit() else None

    def passes(self, chunk: bytes) -> bool:
        """Look at the next chunk; whether it may leave now. If not, it is among `held`."""
        self._seen += len(chunk)
        if self._seen > self._most:
            self._chunks = None
        elif self._chunks is not None:
            self._chunks.append(chunk)
        if self._promised is not None and self._seen >= self._promised:
            self.held.append(chunk)
            return False
        return True

    @property
    def body(self) -> bytes | None:
        """All of it; None where it is over the limit."""
        return None if self._chunks is None else b"".join(self._chunks)
