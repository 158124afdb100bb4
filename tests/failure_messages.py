"""What a failed assertion says: beside the values, as in `assert 0 == 1`, the statement in which they were compared."""

from collections.abc import Generator
from typing import Final

import pytest

_LONGEST: Final = 200


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the statement to the message, which the summary of a run shows without any source."""
    report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    if call.excinfo is not None and crash is not None and crash.message.startswith("assert "):
        statement = " ".join(str(call.excinfo.traceback[-1].statement).split())
        values, _, rest = crash.message.partition("\n")
        if statement.startswith("assert ") and statement != values:
            crash.message = "\n".join(filter(None, [f"{statement[:_LONGEST]} -> {values}", rest]))
    return report
