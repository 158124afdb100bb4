"""What Temporal tells of its history, where a real development server tells only one thing: refusals and silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceResponse, GetSystemInfoResponse
from temporalio.api.workflowservice.v1.service_pb2_grpc import (
    WorkflowServiceServicer,
    add_WorkflowServiceServicer_to_server,
)

from semel.errors import UsageError
from semel.workflow.engines import temporal
from semel.workflow.engines.history import EngineHistory

pytestmark = pytest.mark.slow


class Server(WorkflowServiceServicer):
    """As much of the server as describing a namespace takes."""

    def __init__(self, refusal: grpc.StatusCode | None = None, *, is_silent: bool = False) -> None:
        self.refusal = refusal
        self.is_silent = is_silent

    async def GetSystemInfo(self, request: Any, context: Any) -> Any:  # type: ignore[override]  # noqa: N802
        """What a client asks first."""
        return GetSystemInfoResponse()

    async def DescribeNamespace(self, request: Any, context: Any) -> Any:  # type: ignore[override]  # noqa: N802
        """A namespace without a limit."""
        if self.refusal is not None:
            await context.abort(self.refusal, "a text that may be private")
        if self.is_silent:
            await asyncio.Event().wait()
        return DescribeNamespaceResponse()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Answer inside, at the address that this gives."""
        server = grpc.aio.server()
        add_WorkflowServiceServicer_to_server(self, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        yield f"127.0.0.1:{port}"
        await server.stop(None)


def read(refusal: grpc.StatusCode | None = None, *, is_silent: bool = False) -> EngineHistory:
    """Ask a server that answers so."""
    server = Server(refusal, is_silent=is_silent)  # type: ignore[abstract]  # what no test asks for

    async def ask() -> EngineHistory:
        async with server.serve() as address:
            return await temporal.read_history(address, "claims")

    return asyncio.run(ask())


def test_a_namespace_that_says_nothing_has_no_limit() -> None:
    assert read() == EngineHistory("namespace claims", None, "its retention")


@pytest.mark.parametrize("refusal", [grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED])
def test_a_user_who_may_not_look_is_told_so(refusal: grpc.StatusCode) -> None:
    with pytest.raises(UsageError, match="may not look at the namespace 'claims'"):
        read(refusal)


def test_a_server_that_fails_is_no_answer() -> None:
    with pytest.raises(ConnectionError, match=r"^INTERNAL$"):
        read(grpc.StatusCode.INTERNAL)


def test_a_server_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporal, "_WITHIN", 0.5)
    with pytest.raises(ConnectionError, match="no answer within"):
        read(is_silent=True)


def test_a_configuration_that_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "temporal.toml"
    broken.write_text("[profile")
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(broken))
    with pytest.raises(UsageError, match="configuration of Temporal"):
        asyncio.run(temporal.read_history())
