"""Starting the programs of this folder, and ending them whatever the test did."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 120.0
"""Seconds that nobody waits for longer, however slow the machine is."""


@contextmanager
def program(name: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A program of this folder, with its standard input and output."""
    command = [sys.executable, "-W", "error", "-m", f"tests.faults.stalls.{name}", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
