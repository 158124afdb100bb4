"""What is written twice, for threads and for event loops, becomes less and never more."""

from tests.shape.twins import count_equal_lines

LIMIT = 149
"""Equal lines in all. A change that lowers the sum lowers this figure, too."""


def test_few_lines_are_kept_twice_by_hand() -> None:
    equal = count_equal_lines()
    total = sum(equal.values())
    assert total <= LIMIT, f"{total} lines are written twice: {equal}. Write them once, or generate one of the two"
