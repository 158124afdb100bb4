"""A value stated by a person has to be one that the operation could have returned."""

from __future__ import annotations

import pytest

from semel import DidNotHappen, Happened, Semel
from semel.errors import UsageError


def _held(engine: Semel) -> None:
    @engine.once(key="order", operation="charge", in_doubt="hold")
    def charge(order: str) -> int:
        raise OSError(order)

    with pytest.raises(OSError, match="o-1"):
        charge("o-1")


def test_a_value_that_could_not_be_replayed_is_refused() -> None:
    with Semel("memory://") as engine:
        _held(engine)
        with pytest.raises(UsageError, match="nothing was changed"):
            engine.resolve("o-1", Happened("not a number"), operation="charge", reason="seen")


def test_a_refused_value_leaves_the_doubt_to_be_resolved() -> None:
    with Semel("memory://") as engine:
        _held(engine)
        with pytest.raises(UsageError):
            engine.resolve("o-1", Happened("not a number"), operation="charge", reason="seen")
        assert engine.resolve("o-1", DidNotHappen(), operation="charge", reason="seen").retryable
