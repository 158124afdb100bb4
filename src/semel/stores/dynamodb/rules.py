"""What an operation makes of the very record that was seen: the rules of the memory store's table, at two instants.

What always holds: whether time is up is judged at the earliest instant that now can be, and what is written begins at
the latest. The caller writes the result only over what was seen.
"""

from __future__ import annotations

from msgspec.structs import replace

from semel.core.arbitration import Winnable, judge
from semel.core.operations import Answer, Checkpoint, Claim, Fail, Operation, Resolve, Unresolvable
from semel.core.record import Record, Status
from semel.stores.dynamodb.clock import Moment
from semel.stores.memory.table import Table
from semel.stores.storable import storable, stored_failure


def applied(record: Record | None, operation: Operation, digest: bytes, moment: Moment) -> tuple[Answer, Record | None]:
    """The answer, and the record as it then has to be; the same one where nothing has to be written."""
    early = _too_early(record, operation, moment)
    if early is not None:
        return early, record
    table = Table()
    if record is not None:
        table.records[digest] = record
    answer = table.apply(operation, moment.high)
    return answer, table.records.get(digest)


def _too_early(record: Record | None, operation: Operation, moment: Moment) -> Answer | None:
    """The answer where it may be that time is not up yet."""
    match operation:
        case Claim():
            verdict = judge(record, operation, moment.low)
            return None if isinstance(verdict, Winnable) else verdict
        case Resolve() if record is not None and record.nonce != operation.nonce:
            live = record.status is Status.RUNNING and record.lease_us > moment.low
            return Unresolvable(record) if live else None
    return None


def storable_operation(operation: Operation) -> Operation:
    """The operation with its texts as they come back from an item, so that one sent again is recognised."""
    match operation:
        case Fail(_, _, error):
            return replace(operation, error=stored_failure(error))
        case Checkpoint(_, step):
            return replace(operation, step=replace(step, name=storable(step.name)))
    return operation
