"""What a task costs: which operations the store is asked for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from semel import Semel
from semel.core.operations import Operation
from semel.stores.memory import MemoryStore
from semel.stores.postgresql import PostgresStore
from semel.stores.statement_log import LoggedStore
from semel.workflow import delegate
from tests.workflow.clinic import VARIABLES, Gateway, SyncPayClaim


class Counting(MemoryStore):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def plan(self, operations: Sequence[Operation], *, joined: bool = False) -> Any:
        self.asked += [type(operation).__name__ for operation in operations]
        return super().plan(operations, joined=joined)

    def taken(self) -> list[str]:
        """What was asked for since the last time, without what a process says of itself."""
        asked, self.asked = self.asked, []
        return [name for name in asked if name in ("Claim", "Complete", "Fail", "Read")]


def test_a_task_is_two_statements_and_its_duplicate_two_more_at_most() -> None:
    store = Counting()
    with Semel(store) as semel:
        pay = SyncPayClaim(semel, Gateway())
        pay.run(VARIABLES)
        assert store.taken() == ["Claim", "Complete"]
        pay.run(VARIABLES)
        assert store.taken() == ["Claim", "Read"], "the second one looks for a compensation"
        pay.run({**VARIABLES, "amount": 1})
        assert store.taken() == ["Claim"]


def test_a_duplicate_that_cannot_be_compensated_is_one_statement() -> None:
    store = Counting()
    with Semel(store) as semel:

        @delegate(semel, operation="PLAIN", key="claimId")
        def plain(claimId: str) -> int:  # noqa: N803
            return 1

        plain.run(VARIABLES)
        store.taken()
        plain.run(VARIABLES)
        assert store.taken() == ["Claim"]


@pytest.mark.slow
def test_postgresql_is_sent_two_statements_for_a_task_and_two_for_its_duplicate(
    postgresql: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def take() -> list[str]:
        sent = [line.getMessage().partition(",")[0] for line in caplog.records if line.name == "semel.statements"]
        caplog.clear()
        return sent

    caplog.set_level(logging.DEBUG, "semel.statements")
    with Semel(LoggedStore(PostgresStore(postgresql.new_database()))) as semel:
        pay = SyncPayClaim(semel, Gateway())
        pay.run({**VARIABLES, "claimId": "the first one that a database ever has"})
        take()
        pay.run(VARIABLES, instance="proc-1", activity="SUB_08")
        assert take() == ["Claim", "Complete"]
        pay.run(VARIABLES, instance="proc-2", activity="SUB_08")
        assert take() == ["Claim", "Read"]
