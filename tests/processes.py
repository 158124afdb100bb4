"""Child processes of tests, each in a process group of its own: when its test ends, nothing of the group is left."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

_POLL = 0.01
_ENDED_AT_ONCE = 30.0
"""How many seconds the system may take to end processes that were killed."""


@contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """A process that is killed, with all that it started, when this is left; `options` are those of `Popen`.

    A plain `with Popen(...)` waits without an end for a process that does not end, even when the test has failed.
    """
    with subprocess.Popen(command, text=True, process_group=0, **options) as process:
        try:
            yield process
        finally:
            kill_group(process.pid)
            process.wait(_ENDED_AT_ONCE)
            wait_for_group(process.pid)


def run_bounded(
    command: Sequence[str],
    seconds: float,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[str] = subprocess.DEVNULL,
) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end; if that takes too long, it is killed with all that it started, and the test fails."""
    pipe = subprocess.PIPE
    with child(command, cwd=cwd, env=env, stdin=stdin, stdout=pipe, stderr=pipe) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            kill_group(process.pid)
            out, err = process.communicate(timeout=_ENDED_AT_ONCE)
            message = f"{' '.join(command)} did not end within {seconds} s.\n{out[-5000:]}\n{err[-5000:]}"
            raise AssertionError(message) from None
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def kill_group(group: int) -> None:
    """Kill every process of a group."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def wait_for_group(group: int, seconds: float = _ENDED_AT_ONCE) -> None:
    """Wait until the processes of a group have ended that were told to: a signal only says that each of them shall.

    Somebody else reaps those that are not our children, perhaps never, so this looks at what they do.
    """
    deadline = time.monotonic() + seconds
    while _is_known(group) and (left := group_members(group)):
        assert time.monotonic() < deadline, f"processes go on although they were told to end: {left}"
        time.sleep(_POLL)


def _is_known(group: int) -> bool:
    """Whether the system has any process of the group, dead ones with them; asking is cheaper than to look at all."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def group_members(group: int) -> dict[int, str]:
    """The living processes of a group, and how each was called."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - tests that wait look often, and there may be hundreds
        if name.isdecimal():
            with suppress(OSError):
                state, _parent, of_group = _read(f"/proc/{name}/stat").rpartition(")")[2].split()[:3]
                if int(of_group) == group and state not in "ZX":
                    found[int(name)] = _read(f"/proc/{name}/cmdline").replace("\0", " ").strip()
    return found


def _read(path: str) -> str:
    with open(path, errors="replace") as file:  # noqa: PTH123 - the same
        return file.read()
