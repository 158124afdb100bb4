"""Completed records for tests of the tiers."""

from semel.core.key import Key
from semel.core.operations import Complete, Granted
from semel.core.record import StoredRecord
from semel.stores.memory import Table
from tests.unit.stores.operations import START, claim


def completed(key: Key) -> StoredRecord:
    """A completed record, as a store has it."""
    table = Table()
    granted = table.claim(claim(key), START)
    assert isinstance(granted, Granted)
    table.complete(Complete(granted.lease, b"body"), START)
    return table.records[key.digest]
