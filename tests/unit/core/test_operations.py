"""Giving back: what undoes a claim that was granted to a caller who is gone."""

from typing import Any

import pytest

from semel.core.operations import Found, Granted, InDoubtAnswer, Replay, Reused, Running, give_back
from semel.errors import StoreUnavailable
from tests.unit.core.records import claim, granted, record, running


@pytest.mark.parametrize(
    ("facts", "ending", "doubtful"),
    [({}, "retry", False), ({"in_doubt": True}, "doubt", True), ({"in_doubt": True, "reconcile": True}, "doubt", True)],
)
def test_a_grant_is_given_back_as_it_was_found(facts: dict[str, Any], ending: str, doubtful: bool) -> None:
    wanted = claim(nonce=b"mine")
    undo = give_back(granted(wanted, **facts))
    assert undo is not None
    assert (undo.lease.nonce, undo.ending, undo.doubtful, undo.started) == (b"mine", ending, doubtful, False)


@pytest.mark.parametrize(
    "answer",
    [
        Replay(record()),
        Running(5),
        Reused(record()),
        InDoubtAnswer(record(), None),
        Found(None, 0),
        StoreUnavailable("The store did not answer; nothing ran."),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_there_is_nothing_to_give_back_without_a_grant(answer: Any) -> None:
    assert give_back(answer) is None


def test_a_grant_inside_a_transaction_names_it_in_the_lease() -> None:
    assert Granted(running(nonce=b"n"), transaction="t-1").lease.transaction == "t-1"
