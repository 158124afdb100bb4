"""A store with records of every kind, people who look after them, and an audit chain that can be read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from semel import AsyncSemel, Policy, Record, Unknown
from semel.server import User
from semel.server.actions import Actions
from semel.server.audit import Audit, AuditEntry
from semel.testing import Crash, VirtualClock

VIEWER = User("vera", {"viewer"})
OPERATOR = User("olga", {"operator"})
ERASER = User("emil", {"eraser"})
ADMIN = User("adam", {"admin"})
ACME = User("anna", {"admin"}, scopes={"acme"})
WHY = "the bank says so"


class Broken(Exception):
    """What a handler raises here."""


@dataclass
class Desk:
    """An engine on a store in memory, whose time is told, and what operators do with it."""

    clock: VirtualClock
    semel: AsyncSemel
    audit: Audit
    actions: Actions

    async def entries(self) -> list[AuditEntry]:
        """What is in the audit chain, oldest first."""
        return [entry async for entry in self.audit.entries()][::-1]

    async def outcomes(self) -> list[str]:
        """What came of what is in it; of what has only begun, that."""
        return [entry.outcome or entry.phase for entry in await self.entries()]

    async def completed(self, key: str = "done", value: Any = "ch_1", scope: str = "acme") -> Record:
        async def handler() -> Any:
            return value

        await self.semel.run(key, handler, operation="charge", scope=scope, fingerprint=None)
        return await self.read(key, scope)

    async def failed(self, key: str = "failed", scope: str = "acme") -> Record:
        async def handler() -> None:
            raise Broken("declined")

        policy = Policy(final_errors=(Broken,))
        with pytest.raises(Broken):
            await self.semel.run(key, handler, operation="charge", scope=scope, fingerprint=None, policy=policy)
        return await self.read(key, scope)

    async def running(self, key: str = "running", scope: str = "acme", policy: Policy | None = None) -> Record:
        """A record whose worker is gone: its lease ends when time passes."""

        async def handler() -> Any:
            raise Crash

        with pytest.raises(Crash):
            await self.semel.run(
                key,
                handler,
                operation="charge",
                scope=scope,
                fingerprint=None,
                policy=policy or Policy(in_doubt="hold"),
            )
        return await self.read(key, scope)

    async def in_doubt(self, key: str = "doubt", scope: str = "acme", policy: Policy | None = None) -> Record:
        await self.running(key, scope, policy)
        self.clock.advance(3600)
        await self.semel.sweep()
        return await self.read(key, scope)

    async def read(self, key: str, scope: str = "acme") -> Record:
        record = await self.semel.read(key, operation="charge", scope=scope)
        assert record is not None
        return record


@dataclass
class Site:
    """The server, and whoever asks it."""

    app: Starlette
    client: httpx.AsyncClient

    async def get(self, path: str, user: str = "olga", **named: Any) -> httpx.Response:
        return await self.client.get(f"/api/v1{path}", headers={"x-user": user}, **named)

    async def post(self, path: str, body: Any, user: str = "olga", **headers: str) -> httpx.Response:
        told = {"x-user": user, "origin": "http://semel.test", **headers}
        return await self.client.post(f"/api/v1{path}", json=body, headers=told)


async def cannot_tell(attempt: Any) -> Unknown:
    return Unknown()


RECONCILED = Policy(in_doubt="reconcile", reconcile=cannot_tell, reconcile_after=timedelta(0))
RERUN = Policy(in_doubt="rerun")
