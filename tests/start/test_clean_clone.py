"""`make run` in a clean clone: how long it takes until the page answers, and that every button works there.

What it needs is installed first, from a package index. The full effort does all of it; the small one sees that a clone
has all that the page is made of.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final

import pytest
from playwright.sync_api import Browser

from examples.start.everything import NAMES
from tests.effort import FULL
from tests.processes import child, run_bounded
from tests.servers import server
from tests.start.conftest import PATIENCE, ROOT, launched
from tests.start.test_start import press_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
MOST_SECONDS: Final = 15.0


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What somebody gets who clones what is committed here."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    folder = tmp_path / "semel"
    run_bounded(["git", "clone", "--quiet", str(ROOT), str(folder)], 120)
    return folder


@contextmanager
def made_to_run(clone: Path, port: int) -> Iterator[tuple[Popen[str], float, str]]:
    """`make run`, once everything answers; after how many seconds that was, and where."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    began = time.monotonic()
    with child(["make", "run", f"ARGS=--port {port}"], cwd=clone, env=environment, stdout=PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"Start at (http://\S+)", line):
                yield process, time.monotonic() - began, found[1]
                return
        raise AssertionError("it ended before it said where it is")


def test_a_clone_has_all_that_the_start_page_is_made_of(clone: Path, tmp_path: Path) -> None:
    with launched(tmp_path, "--port", str(server.free_port()), root=clone) as run:
        assert run.address


@pytest.mark.skipif(not FULL, reason="installs what it needs; make verify")
def test_make_run_is_up_in_time_and_every_button_works(clone: Path, browser: Browser) -> None:
    port = server.free_port()
    installed = run_bounded(["make", "setup-run"], 900, cwd=clone)
    assert installed.returncode == 0, installed.stderr
    with made_to_run(clone, port) as (process, seconds, address):
        print(f"make run answered after {seconds:.1f} s")
        page = browser.new_context().new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(address)
        lines = press_all(page)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        process.wait(PATIENCE)
    assert {name.partition("-")[0] for name in lines} == set(NAMES)
    assert seconds < MOST_SECONDS
