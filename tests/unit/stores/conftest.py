"""A store in a fresh file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.stores.kit import Asker, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "semel.db"


@pytest.fixture
def asker(path: Path) -> Iterator[Asker]:
    with opened(path) as it:
        yield it
