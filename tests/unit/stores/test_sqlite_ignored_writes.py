"""A write that the database does not take, without an error, is no write: nobody is told that it was recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from semel.core.operations import Complete, Fail, Lost, Operation
from semel.core.record import Failure, Lease
from tests.unit.stores.kit import connected, opened

OOPS = Failure("app.Broke", "why")


@pytest.mark.parametrize(
    "make",
    [
        lambda lease: Complete(lease, b"outcome"),
        lambda lease: Fail(lease, "final", OOPS, doubtful=False),
        lambda lease: Fail(lease, "doubt", OOPS, doubtful=True),
    ],
    ids=["complete", "fail", "doubt"],
)
def test_an_end_that_is_ignored_is_not_recorded(path: Path, make: Callable[[Lease], Operation]) -> None:
    with opened(path) as asker:
        lease = asker.granted().lease
        with connected(path, isolation_level=None) as connection:
            connection.execute("CREATE TRIGGER deaf BEFORE UPDATE ON semel_record BEGIN SELECT RAISE(IGNORE); END")
        assert asker.perform(asker.store.plan([make(lease)], joined=False)) == [[Lost()]]
