"""A run that was overtaken while the store is silent: it is told that it lost its lease, and never that nothing ran."""

from collections.abc import Sequence
from typing import Any

import pytest

from semel import Semel
from semel.core.operations import Answer, Complete, Lost, Operation, Read
from semel.core.store import Answers, Plan
from semel.errors import LeaseLost, StoreUnavailable
from semel.stores.memory import MemoryStore


class Overtaken(MemoryStore):
    """A store that refuses every completion, and then cannot be read."""

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        if isinstance(operations[0], (Complete, Read)):
            return _answering(operations)
        return super().plan(operations, joined=joined)


def _answering(operations: Sequence[Operation]) -> Plan:
    silent = StoreUnavailable("It was not asked; nothing ran.", asked=False)
    answers: list[Answer | Exception] = [Lost() if isinstance(one, Complete) else silent for one in operations]
    given: Answers = answers
    yield from ()
    return given


def test_a_run_that_was_overtaken_is_not_told_that_nothing_ran() -> None:
    ran: list[Any] = []
    with Semel(Overtaken()) as semel, pytest.raises(LeaseLost) as told:
        semel.run("o-1", lambda: ran.append(1), operation="pay", fingerprint=None)
    assert ran == [1]
    assert isinstance(told.value.__cause__, StoreUnavailable)
