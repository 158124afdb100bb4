"""The order of tests: those that may take longer than others first, so that all workers end at about the same time.

What always holds: the order is otherwise that of collecting, so that tests which use something in common stay beside
each other.
"""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the long ones first: one that began last would run while the other workers have nothing left to do."""
    usual = float(config.getini("timeout"))
    items.sort(key=lambda item: not is_long(item, usual))


def is_long(item: pytest.Item, usual: float) -> bool:
    """Whether a test says that it may take longer than is usual."""
    marker = item.get_closest_marker("timeout")
    return marker is not None and bool(marker.args) and float(marker.args[0]) > usual
