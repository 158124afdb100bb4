"""Each rule of the tiers is needed: broken, it is noticed in the very world in which the real tiers pass."""

import pytest

from tests.simulate.tiers.mutants import WORLDS
from tests.simulate.tiers.world import Violation


@pytest.mark.parametrize("name", WORLDS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    broken, _ = WORLDS[name]
    with pytest.raises(Violation):
        broken().explore()


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_the_real_tiers_pass_where_it_is(name: str) -> None:
    _, real = WORLDS[name]
    assert real().explore()[1] > 1
