"""A thread that is interrupted while it leads: its claim is given back, and those who wait are led on."""

from collections.abc import Sequence

import pytest

from semel import Policy, Semel
from semel.core.operations import Operation, Recorded, Tally
from semel.core.record import Status
from semel.core.store import Answers, Plan
from semel.engine.lane import Lane
from semel.engine.sync_lane import CombiningLane
from semel.stores.memory import MemoryStore
from semel.stores.memory.store import MemoryDriver


class Interrupted(MemoryDriver):
    """A driver whose first round takes effect, and is interrupted before its replies are there."""

    rounds = 0

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        replies = super().perform(plans)
        self.rounds += 1
        if self.rounds == 1:
            raise KeyboardInterrupt
        return replies


class InterruptedStore(MemoryStore):
    """A store whose drivers are interrupted once; it takes one operation at a time."""

    batch = 1

    def driver(self) -> MemoryDriver:
        return Interrupted(self)


@pytest.mark.parametrize("in_doubt", ["rerun", "hold"])
def test_a_claim_that_was_interrupted_on_its_way_is_given_back(in_doubt: str) -> None:
    policy = Policy(in_doubt=in_doubt)  # type: ignore[arg-type]  # one of the two words
    with Semel(InterruptedStore(), policy=policy) as semel:
        with pytest.raises(KeyboardInterrupt):
            semel.run("o-1", lambda: 7, operation="pay")
        record = semel.read("o-1", operation="pay")
        assert record is not None
        assert (record.status, record.attempts) == (Status.FAILED, 0)
        assert semel.run("o-1", lambda: 7, operation="pay").value == 7


def test_a_list_that_was_interrupted_leaves_the_lane_to_others() -> None:
    store = InterruptedStore()
    lane = CombiningLane(Lane(store), store.driver(), lambda _: None)
    tallies: list[Operation] = [Tally(bytes([number]) * 32, 1) for number in range(3)]
    with pytest.raises(KeyboardInterrupt):
        lane.perform_all(tallies)
    assert isinstance(lane.perform(tallies[0]), Recorded)
