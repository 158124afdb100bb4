"""What the stores on servers share: a clock that stands still."""

import pytest

from tests.unit.stores.operations import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()
