"""The order of tests: long ones first, so that all workers end at about the same time.

What always holds: every worker is given the same order. Workers are dealt equal parts of it, one after the other, and
whoever is done takes from the end of another's part; so each part begins with its share of the tests that may take
longer than others, and what is left in the end is short. The order is otherwise that of collecting, and the long tests
of a file stay together, because tests that use something in common are best run in a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Arrange the tests for as many workers as there are."""
    usual = float(config.getini("timeout"))
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    long = [item for item in items if is_long(item, usual)]
    short = [item for item in items if not is_long(item, usual)]
    items[:] = arrange(long, short, workers, lambda item: item.path)


def is_long(item: pytest.Item, usual: float) -> bool:
    """Whether a test says that it may take longer than is usual."""
    marker = item.get_closest_marker("timeout")
    return marker is not None and bool(marker.args) and float(marker.args[0]) > usual


def arrange(long: Sequence[T], short: Sequence[T], workers: int, group: Callable[[T], Hashable]) -> list[T]:
    """All of them, in equal parts for the workers, each of which begins with its share of the groups of long ones."""
    groups: dict[Hashable, list[T]] = defaultdict(list)
    for one in long:
        groups[group(one)].append(one)
    shares: list[list[T]] = [[] for _ in range(workers)]
    for together in sorted(groups.values(), key=len, reverse=True):
        min(shares, key=len).extend(together)
    arranged: list[T] = []
    waiting = list(short)
    for number, share in enumerate(shares):
        left = len(long) + len(short) - len(arranged)
        room = max(0, left // (workers - number) - len(share))
        arranged += share + waiting[:room]
        del waiting[:room]
    return arranged + waiting
