"""Compensation: once, only of what was done, and the original is marked by it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from semel import Happened
from semel.testing import Crash
from semel.workflow import BpmnError, Completed, Incident, Retry
from tests.workflow.clinic import VARIABLES, CardDeclined, PayClaim, Payment, SyncPayClaim, fail
from tests.workflow.conftest import Clinic

pytestmark = [pytest.mark.slow, pytest.mark.covering(shared=("kind",))]


def test_a_task_that_was_done_is_undone_once(clinic: Clinic) -> None:
    clinic.run(VARIABLES)
    first, second = clinic.compensate(VARIABLES), clinic.compensate(VARIABLES)
    assert isinstance(first, Completed)
    assert isinstance(second, Completed)
    assert second.variables["idempotencyDuplicate"] is True
    assert clinic.gateway.refunds == {"R-CLAIM-001-1": 1}


def test_a_duplicate_of_what_was_compensated_is_a_business_error(clinic: Clinic) -> None:
    clinic.run(VARIABLES)
    clinic.compensate(VARIABLES)
    end = clinic.run(VARIABLES)
    assert isinstance(end, BpmnError)
    assert end.code == "COMPENSATED"
    assert clinic.gateway.charges == {"CLAIM-001": 1}


def test_the_original_is_marked_from_the_moment_its_compensation_begins(clinic: Clinic) -> None:
    clinic.run(VARIABLES)
    clinic.gateway.refunds.clear()
    seen = []
    plain = clinic.gateway.refund

    def refund(receipt: str) -> None:
        plain(receipt)
        raise Crash

    clinic.gateway.refund = refund  # type: ignore[method-assign]
    with pytest.raises(Crash):
        clinic.compensate(VARIABLES)
    seen.append(clinic.run(VARIABLES))
    assert [end.code for end in seen] == ["COMPENSATED"]


def test_what_never_ran_is_not_compensated(clinic: Clinic) -> None:
    assert isinstance(clinic.compensate(VARIABLES), Completed)
    assert not clinic.gateway.refunds


def test_what_failed_is_not_compensated(clinic: Clinic) -> None:
    clinic.gateway.before = fail(CardDeclined("no"))
    clinic.run(VARIABLES)
    assert isinstance(clinic.compensate(VARIABLES), Completed)
    assert not clinic.gateway.refunds


def test_what_is_running_is_waited_for(clinic: Clinic) -> None:
    clinic.gateway.after = fail(Crash())
    with pytest.raises(Crash):
        clinic.run(VARIABLES)
    end = clinic.compensate(VARIABLES)
    assert isinstance(end, Retry)
    assert not end.counts
    assert not clinic.gateway.refunds


def test_what_is_in_doubt_needs_a_person(clinic: Clinic) -> None:
    clinic.gateway.after = fail(Crash())
    with pytest.raises(Crash):
        clinic.run(VARIABLES)
    clinic.clock.advance(timedelta(seconds=31))
    assert clinic.compensate(VARIABLES) == Incident(clinic.pay.identify(VARIABLES).reference)
    assert not clinic.gateway.refunds


def test_a_hook_that_knows_of_the_task_does_not_settle_its_compensation(clinic: Clinic) -> None:
    class Asks(PayClaim):
        in_doubt = "reconcile"

        def reconcile(self, attempt: Any) -> Any:
            return Happened(Payment("R-7", Decimal(1500)))

    class SyncAsks(SyncPayClaim):
        in_doubt = "reconcile"

        def reconcile(self, attempt: Any) -> Any:
            return Happened(Payment("R-7", Decimal(1500)))

    pay = clinic.make(Asks, SyncAsks)
    clinic.run(VARIABLES, pay)

    def lose_the_answer(receipt: str) -> None:
        raise RuntimeError("no answer")

    clinic.gateway.refund = lose_the_answer  # type: ignore[method-assign]
    first = clinic.compensate(VARIABLES, pay)
    assert isinstance(first, Incident)
    clinic.clock.advance(timedelta(hours=1))
    clinic.call(clinic.semel.sweep)
    assert clinic.compensate(VARIABLES, pay) == first


def test_a_compensation_that_failed_for_good_does_not_mark_the_original(clinic: Clinic) -> None:
    class Closed(PayClaim):
        async def compensate(self, value: object, claimId: str, paymentId: str) -> None:  # noqa: N803
            raise BpmnError("BANK_CLOSED")

    class SyncClosed(SyncPayClaim):
        def compensate(self, value: object, claimId: str, paymentId: str) -> None:  # noqa: N803
            raise BpmnError("BANK_CLOSED")

    pay = clinic.make(Closed, SyncClosed)
    clinic.run(VARIABLES, pay)
    assert clinic.compensate(VARIABLES, pay) == BpmnError("BANK_CLOSED")
    assert isinstance(clinic.run(VARIABLES, pay), Completed)


def test_a_task_that_was_done_anew_after_its_record_is_undone_anew(clinic: Clinic) -> None:
    clinic.run(VARIABLES)
    clinic.clock.advance(timedelta(days=80))
    clinic.compensate(VARIABLES)
    clinic.clock.advance(timedelta(days=11))
    again = clinic.run(VARIABLES)
    assert again.variables["receipt"] == "R-CLAIM-001-2"
    clinic.compensate(VARIABLES)
    assert clinic.gateway.refunds == {"R-CLAIM-001-1": 1, "R-CLAIM-001-2": 1}


def test_a_compensation_meets_no_task_whose_key_looks_like_it(clinic: Clinic) -> None:
    def key_of(v: Any) -> tuple[str, ...]:
        return tuple(v["parts"])

    class Named(PayClaim):
        key: Any = staticmethod(key_of)

    class SyncNamed(SyncPayClaim):
        key: Any = staticmethod(key_of)

    pay = clinic.make(Named, SyncNamed)
    one = {**VARIABLES, "parts": ["A"]}
    clinic.run(one, pay)
    clinic.compensate(one, pay)
    assert isinstance(clinic.run({**VARIABLES, "parts": ["A", "compensate"]}, pay), Completed)


def test_a_task_under_the_longest_key_can_be_undone(clinic: Clinic) -> None:
    long = {**VARIABLES, "claimId": "C" * (255 - len("(PAYMENT_V1, , 1)"))}
    clinic.run(long)
    assert isinstance(clinic.run(long), Completed)
    clinic.compensate(long)
    assert clinic.gateway.refunds.total() == 1
