"""A process that was stopped past its lease: it is told before it writes, and says that it stood still."""

import json
import re
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from semel import Policy, Semel
from tests.decorated import CallStyle, call
from tests.faults.stalls.running import PATIENCE, program
from tests.faults.users import Colour

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_a_process_that_was_stopped_past_its_lease_says_so_and_writes_nothing(
    colour: Colour, call_style: CallStyle, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'semel.db'}"
    patient = Policy(wait_for=timedelta(seconds=PATIENCE))
    with Semel(url, policy=patient) as elsewhere, program("stopped", call_style, colour, url) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n", "the process did not come as far as its handler"
        process.send_signal(signal.SIGSTOP)
        taken_over = call(call_style, elsewhere, "k", lambda: "successor", operation="stall")
        assert (taken_over.value, taken_over.replayed) == ("successor", False)
        process.send_signal(signal.SIGCONT)
        line = process.stdout.readline()
        assert re.search(r"^stalled .*stood still for \d+\.\d s; 1 lease lapsed$", line), line
        out, _ = process.communicate("go on\n", timeout=PATIENCE)
        told = json.loads(out.splitlines()[-1])
        assert told == {"ended": "successor", "ran": []}, "a step ran, or was recorded, although the lease was over"
