"""The launcher: one command that starts everything, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE

import httpx
import pytest

from tests.hospital.conftest import ROOT
from tests.processes import child

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PATIENCE = 120.0  # for a loaded machine; what is waited for comes at once or never


def _wait_for_end(address: str, place: str) -> str:
    """The page of an instance that has ended."""
    deadline = time.monotonic() + PATIENCE
    while 'data-state="ended"' not in (page := httpx.get(address + place, timeout=PATIENCE, trust_env=False).text):
        assert time.monotonic() < deadline, page
        time.sleep(0.1)
    return page


def test_it_serves_a_claim_and_stops_cleanly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.hospital", "--port", "18000", "--delay", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with child(command, cwd=tmp_path, env=environment, stdout=PIPE, stderr=PIPE) as launcher:
        assert launcher.stdout is not None
        said = [launcher.stdout.readline() for _ in range(5)]
        address = re.search(r"http://\S+", said[0])
        assert address, said
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        assert len(children) == 4
        place = httpx.post(f"{address[0]}/instances", timeout=PATIENCE, trust_env=False).headers["location"]
        page = _wait_for_end(address[0], place)
        assert re.findall(r"<dd>(1 \w+)</dd>", page) == ["1 claim", "1 payment"]
        launcher.send_signal(signal.SIGINT)
        out, errors = launcher.communicate(timeout=PATIENCE)
        assert (launcher.returncode, out, errors) == (0, "Stopped.\n", "")
        assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    assert (tmp_path / ".hospital" / ".gitignore").read_text() == "*\n"
