"""The transaction that a step within() writes sends: its token, and what a refusal of the record's own write means."""

from typing import Any

import pytest

from semel.core.operations import Checkpoint
from semel.core.record import Step
from semel.errors import UsageError
from semel.stores.dynamodb import Writes
from semel.stores.dynamodb.clock import Moment
from semel.stores.dynamodb.commands import Call, Cancelled, Now, Steps
from semel.stores.dynamodb.transact import Opened, inside
from tests.unit.core.records import lease

LEASE = lease(b"n" * 16)
TOKEN_LIMIT = 36


def sent(index: int = 0, amount: str = "10") -> tuple[Steps, Call]:
    """A step that writes an amount, up to its transaction."""
    writes = Writes()
    writes.open(Opened(LEASE.nonce.hex()))
    writes.add({"Put": {"TableName": "ledger", "Item": {"amount": {"N": amount}}}})
    work = inside("records", writes, Checkpoint(LEASE, Step(index, "hold", b"x")))
    assert next(work) == Now()
    call = work.send(Moment(1_000, 1_000))
    assert isinstance(call, Call)
    return work, call


def token(**asked: Any) -> str:
    text: str = sent(**asked)[1].parameters["ClientRequestToken"]
    return text


@pytest.mark.parametrize("index", [0, 1_000, 1_000_000])
def test_the_token_of_every_step_is_short_enough_for_the_service(index: int) -> None:
    assert 0 < len(token(index=index)) <= TOKEN_LIMIT


def test_the_same_transaction_has_the_same_token() -> None:
    assert token() == token()


def test_a_step_that_is_tried_again_with_other_writes_has_another_token() -> None:
    assert token(amount="10") != token(amount="11")


def test_a_step_whose_result_no_item_can_hold_is_told_as_such() -> None:
    work, _ = sent()
    message = "Item size to update has exceeded the maximum allowed size"
    with pytest.raises(UsageError, match="larger than the 400 KiB"):
        work.send(Cancelled(({"Code": "ValidationError", "Message": message}, {"Code": "None"})))
