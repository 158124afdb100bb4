"""Worker processes that are killed, and what they have charged."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

from examples.payments.settings import Settings
from tests.processes import child

ROOT = Path(__file__).parents[2]


def variables(settings: Settings) -> dict[str, str]:
    """The environment of a process with these settings; a lease ends when a test ends it, and never by itself."""
    return {
        **os.environ,
        "PAYMENTS_DATABASE": settings.database,
        "PAYMENTS_GATEWAY": settings.gateway,
        "PAYMENTS_LEASE_FOR": str(settings.lease_for.total_seconds()),
        "PAYMENTS_GATEWAY_TIMEOUT": str(settings.gateway_timeout.total_seconds()),
        "PAYMENTS_SWEEP_EVERY": "0",
        "PAYMENTS_POLL_EVERY": "0.2",
    }


@contextmanager
def working(settings: Settings) -> Iterator[Popen[str]]:
    """A worker; it is killed at the end."""
    command = [sys.executable, "-m", "examples.payments.working"]
    with child(command, cwd=ROOT, env=variables(settings), stdout=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
