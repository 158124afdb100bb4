"""Finished steps go with their record, whichever life of its key they belong to."""

from __future__ import annotations

import pytest

from semel.core.operations import Checkpoint, Complete, Purge
from semel.core.record import Step
from semel.stores.postgresql import PostgresStore
from tests.stores.postgresql.kit import Asker, claim, rows
from tests.unit.stores.operations import Clock

pytestmark = pytest.mark.slow


def test_steps_of_an_earlier_life_are_deleted_with_the_record(url: str, clock: Clock) -> None:
    asker = Asker(PostgresStore(url, clock=clock))
    lease = asker.lease(claim())
    asker.one(Checkpoint(lease, Step(0, "reserve", b"personal")))
    asker.one(Complete(lease, b"\x01"))
    clock.advance(86_401)
    asker.one(Complete(asker.lease(claim()), b"\x01"))
    clock.advance(86_401)
    asker.one(Purge(10))
    asker.close()
    assert rows(url, "SELECT count(*) FROM semel_record") == [(0,)]
    assert rows(url, "SELECT count(*) FROM semel_step") == [(0,)]
