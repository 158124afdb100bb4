"""How long each folder of tests takes: `pytest --durations-by-folder` prints it, the longest first.

Seconds of processor time are those of the tests and of child processes that ended with them, from set-up to clean-up;
a busy machine changes them little. Elapsed seconds are those of all workers together. What the servers of the run take
is told apart: they serve tests of all folders.
"""

import os
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Generator

import pytest

_PROPERTY = "processor seconds"
_BEGAN = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Make the option known."""
    parser.addoption("--durations-by-folder", action="store_true", help="say how long the tests of each folder take")


def processor_seconds() -> float:
    """What this process and its children that have ended took so far."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def processor_seconds_of(pid: int) -> float:
    """What another process and its children that have ended took so far; nothing if it is not there."""
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - one line
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note where the clock of the processor stands when a test begins."""
    item.stash[_BEGAN] = processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell the process that reports what a test took, with its last report."""
    report = yield
    if call.when == "teardown" and item.config.getoption("--durations-by-folder"):
        report.user_properties.append((_PROPERTY, processor_seconds() - item.stash[_BEGAN]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table if it was asked for."""
    if not config.getoption("--durations-by-folder"):
        return
    elapsed: dict[str, float] = defaultdict(float)
    processor: dict[str, float] = defaultdict(float)
    tests = Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = "/".join(report.nodeid.partition("::")[0].split("/")[:-1][:2])
                elapsed[folder] += report.duration
                tests[folder] += report.when == "setup"
                processor[folder] += sum(value for name, value in report.user_properties if name == _PROPERTY)  # type: ignore[misc]
    terminalreporter.write_sep("=", "seconds in each folder, all workers together: processor, elapsed")
    for folder, spent in sorted(processor.items(), key=lambda row: -row[1]):
        terminalreporter.write_line(f"{spent:8.1f} s {elapsed[folder]:8.1f} s {tests[folder]:7,} tests  {folder}")
    total = f"{sum(processor.values()):8.1f} s {sum(elapsed.values()):8.1f} s {sum(tests.values()):7,} tests in all"
    terminalreporter.write_line(total)
