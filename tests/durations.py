"""How long each folder of tests takes: `pytest --durations-by-folder` prints it, the longest first.

The seconds are those of the tests, from set-up to clean-up, of all workers together; on a busy machine they are more.
"""

from collections import Counter, defaultdict

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Make the option known."""
    parser.addoption("--durations-by-folder", action="store_true", help="say how long the tests of each folder take")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table if it was asked for."""
    if not config.getoption("--durations-by-folder"):
        return
    seconds: dict[str, float] = defaultdict(float)
    tests = Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = "/".join(report.nodeid.partition("::")[0].split("/")[:-1][:2])
                seconds[folder] += report.duration
                tests[folder] += report.when == "setup"
    terminalreporter.write_sep("=", "seconds in each folder, all workers together")
    for folder, spent in sorted(seconds.items(), key=lambda row: -row[1]):
        terminalreporter.write_line(f"{spent:8.1f} s {tests[folder]:7,} tests  {folder}")
