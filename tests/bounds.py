"""Bounds of a test run: signals as a terminal would give them, and an end for every test.

Invariants: no test waits for longer than its timeout and the grace after it, whatever it waits for; a run started in
the background, with SIGINT ignored, ends as one on a terminal does.
"""

import faulthandler
import functools
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

GRACE: Final = 120.0
"""How many seconds a test that met its timeout may take to clean up before its process is ended."""

PURE: Final = {
    "tests/unit": 30.0,
    "tests/contract/test_memory.py": 30.0,
    "tests/simulate": 60.0,
}
"""Where tests do little I/O, how many seconds each may take; generous by a factor of ten on a busy machine."""

_ROOT: Final = Path(__file__).parents[1]
_STDERR: Final = pytest.StashKey[int]()
_STOPPING: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def restore_signals() -> None:
    """Hear the signals that end a program, even where the shell had them ignored, as it does in the background.

    Child processes inherit that: a test that sends Ctrl-C to one would otherwise wait for an end that never comes.
    """
    for number in _STOPPING:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_STOPPING, signal.SIGALRM, signal.SIGCHLD})


def pytest_configure(config: pytest.Config) -> None:
    """Restore signals before there is a child process; keep a way to the real standard error, past all capturing."""
    restore_signals()
    config.stash[_STDERR] = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give it back."""
    faulthandler.cancel_dump_traceback_later()
    os.close(config.stash[_STDERR])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests without much I/O a bound of their own, so that a hang is told soon."""
    if os.environ.get("SEMEL_EFFORT") == "full":
        return
    for item in items:
        seconds = _seconds_at(item.path)
        if seconds and item.get_closest_marker("timeout") is None and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.timeout(seconds))


@functools.cache
def _seconds_at(path: Path) -> float | None:
    """How many seconds a test in this file may take, if less than others."""
    place = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path
    return next((seconds for folder, seconds in PURE.items() if place.is_relative_to(folder)), None)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """End the process of a test that its timeout could not end: it may wait again while it cleans up.

    Where tests run side by side, the run goes on, and says which test was running.
    """
    if settings.timeout:
        seconds = settings.timeout + GRACE
        faulthandler.dump_traceback_later(seconds, exit=True, file=item.config.stash[_STDERR])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Bound the whole test: its timeout is called off already when it fails, before it cleans up."""
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Bound what a test that failed cleans up: pytest calls every bound off then, in case somebody debugs it."""
    if isinstance(node, pytest.Item):
        faulthandler.dump_traceback_later(GRACE, exit=True, file=node.config.stash[_STDERR])


def pytest_enter_pdb() -> None:
    """Whoever debugs has all the time in the world."""
    faulthandler.cancel_dump_traceback_later()
