"""Which scenarios are called in which style: all in both on memory, each in one of the two elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.contract.styles import case_of, choose

FULL = os.environ.get("SEMEL_EFFORT") == "full"
HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only repeats, on a store with files or servers, what memory proves in both styles."""
    if FULL:
        return
    elsewhere = [item for item in items if item.path.parent == HERE and item.path.name != "test_memory.py"]
    cases = {item: case for item in elsewhere if (case := case_of(item)) is not None}
    chosen = choose(cases.values())
    left_out = [item for item, case in cases.items() if case not in chosen]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
