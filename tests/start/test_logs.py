"""What the processes of the examples write to the terminal, below the start page and by themselves."""

from __future__ import annotations

import logging
import os
import sys

import pytest

from examples.launching.logs import AGAIN_AFTER, LINES, VARIABLE, RepeatFilter
from tests.processes import run_bounded
from tests.start.conftest import ROOT

FAILS = """
import logging
from examples.launching.logs import set_up_logging

set_up_logging()
try:
    raise OSError("refused\\nby the server")
except OSError:
    logging.getLogger("uvicorn.error").exception("Exception in ASGI application\\n")
raise ValueError("no such bulk")
"""


def write_errors(how: str | None) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"} | ({} if how is None else {VARIABLE: how})
    ended = run_bounded([sys.executable, "-c", FAILS], 60, env=environment)
    assert ended.returncode == 1
    return ended.stderr.splitlines()


def record(message: str, seconds: float) -> logging.LogRecord:
    made = logging.LogRecord("examples", logging.ERROR, "", 0, message, None, None)
    made.created = seconds
    return made


def test_below_the_start_page_an_error_is_one_line() -> None:
    assert write_errors(LINES) == [
        "ERROR:uvicorn.error:Exception in ASGI application (OSError: refused by the server)",
        "CRITICAL:examples:The process ends. (ValueError: no such bulk)",
    ]


def test_by_itself_an_example_writes_tracebacks() -> None:
    written = write_errors(None)
    assert written.count("Traceback (most recent call last):") == 2
    assert written[-1] == "ValueError: no such bulk"


@pytest.mark.parametrize(
    ("message", "seconds", "is_written"), [("no store", 9.9, False), ("no store", 10.0, True), ("no lease", 1.0, True)]
)
def test_an_error_that_repeats_is_written_now_and_then(message: str, seconds: float, is_written: bool) -> None:
    repeats = RepeatFilter()
    assert repeats.filter(record("no store", 0.0))
    assert repeats.filter(record(message, seconds * AGAIN_AFTER / 10)) is is_written
