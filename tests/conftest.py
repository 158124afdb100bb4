"""What every test shares: the event loop in use, and the figures that proofs report."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

# Assertions are explained in the modules that tests share too, not in test modules alone; said before their import.
pytest.register_assert_rewrite(*(f"tests.{path.name}" for path in Path(__file__).parent.iterdir() if path.is_dir()))

from tests.servers.trust import trust_nobody  # noqa: E402 - one of them

trust_nobody()  # before anybody makes a client

pytest_plugins = [
    "tests.bounds",
    "tests.durations",
    "tests.effort",
    "tests.failure_messages",
    "tests.ordering",
    "tests.styles",
    "tests.servers.plugin",
    "tests.servers.browser",
]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from the tests: there are tens of thousands, and all live as long as the run.

    While they are collected it would look at all of them again and again, and later with every full collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests recorded under the property "figures": how much a proof did belongs to its verdict."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, text in report.user_properties:
            if name == "figures":
                terminalreporter.write_sep("-", report.nodeid)
                terminalreporter.write_line(str(text))
