"""How the tests ask: one keyed request, as a client of any language would send it."""

from __future__ import annotations

import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.http.sites import Running

ALICE = "Bearer alice"
BOB = "Bearer bob"


def new_key() -> str:
    """A key that was never used."""
    return str(uuid.uuid4())


@dataclass
class Asker:
    """Somebody who sends requests to a site."""

    running: Running
    caller: str | None = ALICE
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(64))

    def ask(
        self,
        path: str,
        key: str | None = None,
        *,
        body: bytes = b'{"amount": 10}',
        method: str = "POST",
        content_type: str = "application/json",
        headers: tuple[tuple[str, str | bytes], ...] = (),
    ) -> httpx.Response:
        """Send one request and give the answer."""
        sent: list[tuple[str, Any]] = [("Content-Type", content_type)] if body else []
        if self.caller is not None:
            sent.append(("Authorization", self.caller))
        if key is not None:
            sent.append(("Idempotency-Key", key))
        return self.running.client.request(method, path, content=body, headers=[*sent, *headers])

    def later(self, path: str, key: str | None = None, **settings: Any) -> Future[httpx.Response]:
        """Send one from another thread."""
        return self.threads.submit(self.ask, path, key, **settings)

    def effects_of(self, *requests: tuple[str, str | None]) -> int:
        """How many effects these requests have, sent one after the other."""
        before = self.running.effects()
        for path, key in requests:
            self.ask(path, key)
        return self.running.effects() - before
