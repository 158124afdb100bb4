"""A service with a worker as real processes, and somebody with a browser in front of it."""

import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from subprocess import PIPE

import pytest
from playwright.sync_api import Browser, expect

from examples.payments.settings import Settings
from tests.hotel.front_desk import Gateway
from tests.payments.browser.office import PATIENCE, Office
from tests.payments.killing import ROOT, variables, working
from tests.processes import child

ARTIFACTS = ROOT / "artifacts" / "payments"
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def address(one_gateway: Gateway, file_with_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server answers that has a worker beside it."""
    file = tmp_path_factory.mktemp("office") / "payments.db"
    file.write_bytes(file_with_tables.read_bytes())
    settings = replace(
        Settings(),
        database=f"sqlite:///{file}",
        gateway=one_gateway.address,
        lease_for=timedelta(minutes=2),
        gateway_timeout=timedelta(minutes=2),
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd = listener.fileno()
        command = [sys.executable, "-m", "examples.payments.serving", "--fd", str(fd)]
        with (
            child(command, cwd=ROOT, env=variables(settings), pass_fds=[fd], stdout=PIPE) as server,
            working(settings),
        ):
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(params=["light"] if os.environ.get("SEMEL_EFFORT") != "full" else ["light", "dark"])
def office(address: str, gateway: Gateway, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Office]:
    """Somebody who has just signed in; at the end there is a picture of what they saw."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, color_scheme=request.param, reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    page.get_by_label("Your company").fill("Harbour Light Ltd")
    page.get_by_role("button", name="Open an account").click()
    yield Office(address, gateway, page)
    gateway.faults(delay=0)
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"{request.node.name.replace('/', '-')}.png", full_page=True)
    context.close()
    assert errors == []
