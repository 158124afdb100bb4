"""What every test shares: the event loop in use, how hard property tests try, and the figures that proofs report."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Assertions are explained in the modules that tests share too, not in test modules alone; said before their import.
pytest.register_assert_rewrite(*(f"tests.{path.name}" for path in Path(__file__).parent.iterdir() if path.is_dir()))

from tests.servers.trust import trust_nobody  # noqa: E402 - one of them

trust_nobody()  # before anybody makes a client

pytest_plugins = ["tests.bounds", "tests.failure_messages", "tests.servers.plugin", "tests.servers.browser"]

# Small runs give the same verdict every time; only the full effort looks for new examples.
settings.register_profile(
    "small", max_examples=100, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("full" if os.environ.get("SEMEL_EFFORT") == "full" else "small")


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
