"""The bounds of a test run: started in the background it hears Ctrl-C, and no test of it waits without an end."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import bounds
from tests.processes import child, group_members, run_bounded

ROOT = Path(__file__).parents[2]
LONGEST = 90.0
STOPPING = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
ASK_A_CHILD = "import signal; print([number for number in (2, 3, 15) if signal.getsignal(number) == signal.SIG_IGN])"
STUBBORN = """
import subprocess, threading
subprocess.Popen(["sleep", "1000"])
print("started", flush=True)
threading.Event().wait()
"""
# Memory takes the system a while to free, and for as long a process that was killed is still there.
LARGE = """
import subprocess, sys, threading
hold = "import threading; memory = b'x' * 300_000_000; print('started', flush=True); threading.Event().wait()"
subprocess.Popen([sys.executable, "-c", hold])
threading.Event().wait()
"""
STUCK = """
import threading

def test_that_waits_again_when_it_is_over():
    try:
        threading.Event().wait()
    finally:
        threading.Event().wait()

def test_after_it():
    pass
"""
STUCK_AFTER_A_FAILURE = """
import threading
import pytest

@pytest.fixture
def waits_again_when_it_is_over():
    yield
    threading.Event().wait()

def test_that_fails(waits_again_when_it_is_over):
    assert False

def test_after_it():
    pass
"""
SHORT_GRACE = """
import tests.bounds
tests.bounds.GRACE = 2.0
"""


def test_a_test_and_its_children_hear_the_signals_that_end_a_program() -> None:
    assert [number for number in STOPPING if signal.getsignal(number) is signal.SIG_IGN] == []
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {*STOPPING, signal.SIGALRM} == set()
    assert run_bounded([sys.executable, "-c", ASK_A_CHILD], LONGEST).stdout == "[]\n"


def start_in_the_background() -> None:
    """What a shell without job control does, and more."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGALRM})


@pytest.mark.slow
def test_that_holds_too_for_a_run_in_the_background() -> None:
    test = "tests/shape/test_bounds.py::test_a_test_and_its_children_hear_the_signals_that_end_a_program"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", test]
    pipe = subprocess.PIPE
    with child(command, cwd=ROOT, stdout=pipe, stderr=pipe, preexec_fn=start_in_the_background) as process:
        out, err = process.communicate(timeout=LONGEST)
    assert "1 passed" in out, out + err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "name"),
    [(STUCK, "test_that_waits_again_when_it_is_over"), (STUCK_AFTER_A_FAILURE, "test_that_fails")],
    ids=["in the test", "in a fixture"],
)
@pytest.mark.parametrize("side_by_side", [[], ["-n", "1"]], ids=["alone", "side by side"])
def test_a_test_that_its_timeout_cannot_end_is_ended_and_named(
    tmp_path: Path, side_by_side: list[str], program: str, name: str
) -> None:
    (tmp_path / "test_stuck.py").write_text(program)
    (tmp_path / "short_grace.py").write_text(SHORT_GRACE)
    options = [
        "-p",
        "short_grace",
        "-p",
        "tests.bounds",
        "-p",
        "no:cacheprovider",
        "--timeout=1",
        "-v",
        "--rootdir",
        str(tmp_path),
    ]
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = run_bounded(
        [sys.executable, "-m", "pytest", *options, *side_by_side, str(tmp_path)],
        LONGEST,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode != 0
    assert name in done.stdout + done.stderr
    assert "Timeout (0:00:0" in done.stderr, done.stdout + done.stderr
    if side_by_side:
        assert re.search(r"\d failed, 1 passed", done.stdout), done.stdout


def test_a_test_without_much_io_has_a_short_bound(request: pytest.FixtureRequest) -> None:
    assert {folder for folder in bounds.PURE if not (ROOT / folder).exists()} == set()
    assert max(bounds.PURE.values()) < float(request.config.getini("timeout"))


def test_a_process_that_does_not_end_is_killed_with_what_it_started() -> None:
    with pytest.raises(AssertionError, match="did not end within 1"):
        run_bounded([sys.executable, "-c", STUBBORN], 1.0)


@pytest.mark.parametrize("program", [STUBBORN, LARGE], ids=["small", "large"])
def test_nothing_of_a_process_is_left_when_its_test_goes_on(program: str) -> None:
    with child([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert len(group_members(process.pid)) == 2
    assert group_members(process.pid) == {}
