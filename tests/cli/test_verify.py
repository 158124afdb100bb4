"""`semel verify`: the report of a real run, and what a violation looks like."""

import io
import os
import pty
import select
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from semel_lab import simulate
from semel_lab.commands.verify import shown
from semel_lab.simulate import SMALL, Failing, Report
from tests.cli.conftest import Run, command, environment
from tests.processes import child, group_members, run_bounded, wait_for_group

LONGEST = 50.0
LOOK_EVERY = 0.05
LARGER = 20_000  # enough to reach everything; the same number always gives the same run

GOOD = Report(
    schedules=1234,
    cut=5,
    states=6,
    moves=7000,
    longest=80,
    seconds=2.0,
    seed=42,
    worlds=(simulate.Explored("two workers", 2, 1, 1000, 5, 6, complete=True),),
    by_chance=234,
    seen=dict.fromkeys(simulate.SOMETIMES, 3),
    missing=(),
    failing=(),
)
BAD = replace(GOOD, failing=(Failing(SMALL[0], (1, 0, 2), "I4", "two owners wrote", "42:17"),))


def text(report: Report, width: int = 100) -> str:
    output = io.StringIO()
    console = Console(file=output, width=width, highlight=False, markup=False)
    for part in shown(report, width):
        console.print(part)
    return output.getvalue()


def returning(report: Report) -> object:
    return lambda schedules, seed, workers, progress: report


def test_a_real_run_is_reported(run: Run) -> None:
    done = run("verify", "--schedules", "40", "--workers", "1", "--seed", "3")
    assert done.stderr == ""
    assert "40  (0 exhaustive, 40 by chance)" in done.stdout
    assert "✔ held" in done.stdout
    # So few schedules cannot reach everything, and that is not a pass.
    assert done.returncode == 1
    assert "Not proved" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_larger_run_over_two_processes_passes(run: Run) -> None:
    done = run("verify", "--schedules", str(LARGER), "--workers", "2")
    assert done.returncode == 0, done.stdout
    assert "Every invariant held" in done.stdout


def test_a_good_report_passes(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "verify", returning(GOOD))
    done = call("verify")
    assert done.returncode == 0
    for words in ("1,234", "7,000", "two workers", "I10", "seed", "42", "2.0 s", "fault: lose"):
        assert words in done.stdout


def test_a_violation_gives_seed_trace_and_a_failure(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "verify", returning(BAD))
    done = call("verify")
    assert done.returncode == 1
    assert "I4 does not hold" in done.stdout
    assert "two owners wrote" in done.stdout
    assert "42:17" in done.stdout
    assert "[1, 0, 2]" in done.stdout
    assert done.stdout.count("✘ broken") == 1


def test_what_was_never_reached_is_named() -> None:
    told = text(replace(GOOD, missing=("fault: lose",)))
    assert "never  fault: lose" in told
    assert "Not proved: 1" in told


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_report_fits_the_terminal(width: int) -> None:
    assert max(map(len, text(GOOD, width).splitlines())) <= width


def test_an_error_of_the_simulator_comes_through(call: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_arguments: object) -> Report:
        raise ZeroDivisionError

    monkeypatch.setattr(simulate, "verify", breaks)
    with pytest.raises(ZeroDivisionError):
        call("verify")


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [1, 5], ids="{} processes are there".format)
def test_ctrl_c_ends_all_processes_quietly(wanted: int) -> None:
    controller, terminal = pty.openpty()
    with child(
        command(["verify", "--schedules", "1000000", "--workers", "3"]),
        env=environment(TERM="xterm"),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        output = b""
        deadline = time.monotonic() + LONGEST
        while b"schedules" not in output or len(group_members(process.pid)) < wanted:
            assert time.monotonic() < deadline, f"not within {LONGEST} s: {wanted} processes; {output.decode()}"
            time.sleep(LOOK_EVERY)  # the screen is drawn again and again, and to look takes its time
            output += read_some(controller, 0)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
        deadline = time.monotonic() + LONGEST
        while process.poll() is None:
            assert time.monotonic() < deadline, f"still running {LONGEST} s after Ctrl-C; {output.decode()[-4000:]}"
            output += read_some(controller, 0.1)
        while more := read_some(controller, 0):
            output += more
        assert b"Traceback" not in output, output.decode()[-4000:]
        assert process.returncode == 130
        wait_for_group(process.pid, LONGEST)  # they end once they notice, which may be after their parent did
    os.close(controller)


INTERRUPTED_AT_START = """
import multiprocessing.util, os, signal, sys, threading
if sys.orig_argv[1:3] == ["-m", "semel"]:
    threading.Thread(target=threading.Event().wait, daemon=True).start()  # one more that may take the signal
    spawn, spawned = multiprocessing.util.spawnv_passfds, []

    def spawn_and_interrupt(*arguments):
        process = spawn(*arguments)
        spawned.append(process)
        if len(spawned) == int(os.environ["INTERRUPT_AT"]):
            os.kill(0, signal.SIGINT)  # what a terminal does
        return process

    multiprocessing.util.spawnv_passfds = spawn_and_interrupt
"""


@pytest.mark.parametrize("number", [1, 2, 4], ids="process {}".format)
def test_ctrl_c_in_the_middle_of_starting_a_process_is_quiet(number: int, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_AT_START)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    done = run_bounded(
        command(["verify", "--schedules", "1000000", "--workers", "3"]),
        LONGEST,
        env=environment(PYTHONPATH=path, INTERRUPT_AT=str(number)),
    )
    assert (done.returncode, done.stderr) == (130, "semel: interrupted: Interrupted.\n")


def read_some(terminal: int, seconds: float) -> bytes:
    """What stands on a terminal; nothing if that takes too long, or if the other end is closed."""
    try:
        return os.read(terminal, 65536) if select.select([terminal], [], [], seconds)[0] else b""
    except OSError:
        return b""
