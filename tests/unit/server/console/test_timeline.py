"""The time line of a record."""

from datetime import UTC, datetime

import pytest

from semel import Cancelled, Policy, Semel
from semel.server.console.timeline import timeline_of
from semel.testing import Crash

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_finished_steps_stay_in_the_time_line_after_a_decision() -> None:
    def ship() -> None:
        semel.current().step("label", lambda: 1)
        raise Crash

    with Semel("memory://") as semel:
        with pytest.raises(Crash):
            semel.run("k", ship, operation="ship", fingerprint=None, policy=Policy(in_doubt="hold"))
        semel.resolve("k", Cancelled(), operation="ship", reason="gone", force=True)
        record = semel.read("k", operation="ship")
        assert record is not None
        moments = timeline_of(record, semel.history("k", operation="ship"), NOW)
    told = {moment.title: moment.steps for moment in moments if moment.steps}
    assert told == {"Attempt 1 ended without a known outcome": ("label",)}
    assert moments[-2].title == "Resolved: cancelled"
