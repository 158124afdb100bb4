"""Processes of real servers: started without root's rights, known by their number, ended with all they started.

What always holds: after `kill` and `stop` no process of the tree is left, whoever started it.
"""

import contextlib
import os
import pwd
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LONG = 30.0
"""Seconds that a server may take to start or to end before it counts as broken."""


def account() -> dict[str, Any]:
    """Arguments of `subprocess` for an ordinary user: database servers refuse to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def hand_over(folder: Path) -> None:
    """Give a folder to the account that servers run under."""
    if who := account():
        os.chown(folder, who["user"], who["group"])


def spawn(
    command: Sequence[str], *, output: Path | None, environment: Mapping[str, str], cwd: str = "/", **who: Any
) -> int:
    """Start a process in a session of its own and return its number."""
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(output.open("ab")) if output else subprocess.DEVNULL
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
            **who,
        )
    # It is known by its number from here on, because another worker may be the one that ends it; this object must not
    # complain that it is still running.
    process.returncode = 0
    return process.pid


def is_alive(pid: int) -> bool:
    """Whether the process still runs; one that ended and was not yet waited for does not."""
    reap(pid)
    status = _status(pid)
    return status is not None and status[0] not in "ZX"


def wait_for_end(pid: int, seconds: float) -> bool:
    """Wait until the process has ended; works for processes that others started."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        ended = bool(poll.poll(seconds * 1000))
    finally:
        os.close(handle)
    reap(pid)
    return ended


def reap(pid: int) -> None:
    """Take the exit status of a child, if it is ours and has ended, so that its number is free."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def kill(pid: int) -> None:
    """End a process and everything it started, at once, as a power cut would."""
    # The parent is stopped first, so that it cannot start a child between looking and killing. PostgreSQL gives each of
    # its processes a group of its own, so the group of the parent is not enough.
    _send(pid, signal.SIGSTOP)
    everyone = _tree(pid)
    for one in everyone:
        _send(one, signal.SIGKILL)
    for one in everyone:
        wait_for_end(one, LONG)


def freeze(pid: int) -> None:
    """Have a process and everything it started stand still: connections stay open, and nobody answers."""
    _send(pid, signal.SIGSTOP)
    for one in _tree(pid):
        _send(one, signal.SIGSTOP)


def thaw(pid: int) -> None:
    """Have them go on."""
    for one in _tree(pid):
        _send(one, signal.SIGCONT)


def stop(pid: int, how: signal.Signals, seconds: float = LONG) -> None:
    """Ask a process to end; kill it if it does not."""
    _send(pid, how)
    if not wait_for_end(pid, seconds):
        kill(pid)


def _send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)


def _tree(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (status := _status(int(entry.name))):
            children.setdefault(status[1], []).append(int(entry.name))
    found = [pid]
    for one in found:
        found.extend(children.get(one, []))
    return found


def _status(pid: int) -> tuple[str, int] | None:
    """The state and the parent of a process; None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program stands in parentheses and may hold anything.
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)
