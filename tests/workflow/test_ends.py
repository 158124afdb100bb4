"""How tasks end: what runs once, what is replayed, what an engine is told; on stores, with functions of both kinds."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from semel import AsyncAttempt, Attempt, Cancelled, DidNotHappen, Happened, Unknown
from semel.errors import KeyMissing, UsageError
from semel.testing import Crash
from semel.workflow import BpmnError, Completed, Incident, Retry
from tests.workflow.clinic import VARIABLES, CardDeclined, LineDown, PayClaim, Payment, SyncPayClaim, fail
from tests.workflow.conftest import Clinic

pytestmark = [pytest.mark.slow, pytest.mark.covering(shared=("kind",))]
LEASE = timedelta(seconds=31)


def crash(clinic: Clinic, **place: Any) -> None:
    """Have a worker die in the task."""
    clinic.gateway.after = fail(Crash())
    with pytest.raises(Crash):
        clinic.run(VARIABLES, **place)
    clinic.gateway.after = None


def test_a_task_runs_once_and_its_duplicate_has_equal_outputs(clinic: Clinic) -> None:
    first, second = clinic.run(VARIABLES), clinic.run(VARIABLES)
    assert isinstance(first, Completed)
    assert first.variables["receipt"] == second.variables["receipt"] == "R-CLAIM-001-1"
    assert first.value == second.value
    assert clinic.gateway.charges == {"CLAIM-001": 1}


def test_the_four_variables_say_how_it_came_about(clinic: Clinic) -> None:
    first, second = clinic.run(VARIABLES), clinic.run(VARIABLES)
    assert first.variables["idempotencyKey"] == clinic.pay.identify(VARIABLES).reference
    assert (first.variables["idempotencyDuplicate"], second.variables["idempotencyDuplicate"]) == (False, True)
    assert first.variables["idempotencyFromCache"] is False
    assert first.variables["idempotencyExecutionTimeMs"] >= 0
    assert second.variables["idempotencyExecutionTimeMs"] == 0


def test_a_second_start_of_the_process_is_no_second_charge(clinic: Clinic) -> None:
    clinic.run(VARIABLES, instance="proc-1", activity="SUB_08")
    again = clinic.run(VARIABLES, instance="proc-2", activity="SUB_08")
    assert again.variables["idempotencyDuplicate"] is True
    assert clinic.gateway.charges == {"CLAIM-001": 1}


def test_a_duplicate_path_never_runs_the_operation_again(clinic: Clinic) -> None:
    clinic.run(VARIABLES)
    clinic.gateway.before = fail(AssertionError("it ran again"))
    assert isinstance(clinic.run(VARIABLES), Completed)


def test_outputs_of_a_first_pass_do_not_change_the_second(clinic: Clinic) -> None:
    first = clinic.run(VARIABLES)
    later = clinic.run({**VARIABLES, **first.variables, "loopCounter": 1, "now": "2026-01-01"})
    assert later.variables["idempotencyDuplicate"] is True


def test_a_changed_amount_under_the_same_key_is_a_business_error(clinic: Clinic) -> None:
    clinic.run(VARIABLES)
    end = clinic.run({**VARIABLES, "amount": "1600.00"})
    assert isinstance(end, BpmnError)
    assert end.code == "KEY_REUSED"
    assert clinic.gateway.charges == {"CLAIM-001": 1}


def test_an_amount_is_compared_by_its_value(clinic: Clinic) -> None:
    clinic.run(VARIABLES)
    assert clinic.run({**VARIABLES, "amount": 1500}).variables["idempotencyDuplicate"] is True


def test_another_version_does_it_anew(clinic: Clinic) -> None:
    class Second(PayClaim):
        version = "PAYMENT_V2"

    class SyncSecond(SyncPayClaim):
        version = "PAYMENT_V2"

    clinic.run(VARIABLES)
    clinic.run(VARIABLES, clinic.make(Second, SyncSecond))
    assert clinic.gateway.charges == {"CLAIM-001": 2}


def test_a_mapped_error_is_a_business_error_and_its_replay_is_equal(clinic: Clinic) -> None:
    clinic.gateway.before = fail(CardDeclined("no money"))
    first = clinic.run(VARIABLES)
    clinic.gateway.before = None
    assert first == clinic.run(VARIABLES) == BpmnError("PAYMENT_DECLINED", "no money")
    assert not clinic.gateway.charges


def test_a_raised_business_error_is_recorded_with_its_variables(clinic: Clinic) -> None:
    raised = BpmnError("LIMIT", "too much ç", {"limit": 1000, "by": ["bank", None]})
    clinic.gateway.before = fail(raised)
    first = clinic.run(VARIABLES)
    clinic.gateway.before = None
    assert first == clinic.run(VARIABLES) == raised
    assert clinic.run(VARIABLES).variables == {"limit": 1000, "by": ["bank", None]}


def test_an_error_before_any_effect_is_tried_again_and_counts(clinic: Clinic) -> None:
    clinic.gateway.before = fail(LineDown())
    end = clinic.run(VARIABLES)
    assert isinstance(end, Retry)
    assert end.counts
    assert end.after <= timedelta(seconds=1)
    clinic.gateway.before = None
    assert isinstance(clinic.run(VARIABLES), Completed)


def test_while_another_worker_runs_it_the_engine_waits_without_counting(clinic: Clinic) -> None:
    crash(clinic)
    end = clinic.run(VARIABLES)
    assert isinstance(end, Retry)
    assert not end.counts
    assert timedelta() < end.after <= timedelta(seconds=30)


def test_a_task_whose_worker_died_is_taken_over(clinic: Clinic) -> None:
    crash(clinic)
    clinic.clock.advance(LEASE)
    end = clinic.run(VARIABLES)
    assert isinstance(end, Completed)
    assert clinic.gateway.charges == {"CLAIM-001": 2}, "rerun is at least once, and a second run of the function"


class PayInSteps(PayClaim):
    """Reserves, and then charges."""

    async def execute(  # type: ignore[override]  # takes its attempt, too
        self,
        claimId: str,  # noqa: N803
        paymentId: str,  # noqa: N803
        amount: Decimal,
        attempt: AsyncAttempt,
    ) -> Payment:
        async def reserve() -> str:
            self.gateway.charge(f"reserve {claimId}", amount)
            return paymentId

        await attempt.step("reserve", reserve)
        return self.gateway.charge(claimId, amount)


class SyncPayInSteps(SyncPayClaim):
    """The same for threads."""

    def execute(  # type: ignore[override]  # takes its attempt, too
        self,
        claimId: str,  # noqa: N803
        paymentId: str,  # noqa: N803
        amount: Decimal,
        attempt: Attempt,
    ) -> Payment:
        def reserve() -> str:
            self.gateway.charge(f"reserve {claimId}", amount)
            return paymentId

        attempt.step("reserve", reserve)
        return self.gateway.charge(claimId, amount)


def test_a_task_that_is_tried_again_goes_on_after_its_last_finished_step(clinic: Clinic) -> None:
    pay = clinic.make(PayInSteps, SyncPayInSteps)
    clinic.gateway.before = lambda: fail(LineDown())() if clinic.gateway.charges else None
    assert isinstance(clinic.run(VARIABLES, pay), Retry)
    clinic.gateway.before = None
    assert isinstance(clinic.run(VARIABLES, pay), Completed)
    assert clinic.gateway.charges == {"reserve CLAIM-001": 1, "CLAIM-001": 1}


def held(clinic: Clinic) -> Any:
    """A delegate that runs at most once."""

    class Held(PayClaim):
        in_doubt = "hold"

    class SyncHeld(SyncPayClaim):
        in_doubt = "hold"

    return clinic.make(Held, SyncHeld)


def test_in_doubt_under_hold_is_an_incident_until_somebody_resolves_it(clinic: Clinic) -> None:
    pay = held(clinic)
    clinic.gateway.after = fail(RuntimeError("no answer"))
    first = clinic.run(VARIABLES, pay)
    clinic.gateway.after = None
    key = pay.identify(VARIABLES)
    assert first == clinic.run(VARIABLES, pay) == Incident(key.reference)
    clinic.call(clinic.semel.resolve, key, DidNotHappen(), reason="asked the bank")
    assert isinstance(clinic.run(VARIABLES, pay), Completed)


@pytest.mark.parametrize("answer", [Happened(Payment("R-7", Decimal(1500))), DidNotHappen(), Unknown()])
def test_in_doubt_with_a_hook_asks_it_first(clinic: Clinic, answer: Any) -> None:
    class Asks(PayClaim):
        in_doubt = "reconcile"

        def reconcile(self, attempt: Any) -> Any:
            return answer

    class SyncAsks(SyncPayClaim):
        in_doubt = "reconcile"

        def reconcile(self, attempt: Any) -> Any:
            return answer

    pay = clinic.make(Asks, SyncAsks)
    clinic.gateway.after = fail(RuntimeError("no answer"))
    assert isinstance(clinic.run(VARIABLES, pay), Retry)
    clinic.gateway.after = None
    clinic.clock.advance(timedelta(seconds=61))
    end = clinic.run(VARIABLES, pay)
    charges = clinic.gateway.charges["CLAIM-001"]
    if isinstance(answer, Unknown):
        assert isinstance(end, Retry)
        assert charges == 1
    else:
        assert isinstance(end, Completed)
        assert charges == (1 if isinstance(answer, Happened) else 2)


def test_after_the_last_attempt_a_person_has_to_look(clinic: Clinic) -> None:
    class Twice(PayClaim):
        max_attempts = 2

    class SyncTwice(SyncPayClaim):
        max_attempts = 2

    pay = clinic.make(Twice, SyncTwice)
    clinic.gateway.before = fail(LineDown())
    assert isinstance(clinic.run(VARIABLES, pay), Retry)
    assert isinstance(clinic.run(VARIABLES, pay), Incident)
    assert isinstance(clinic.run(VARIABLES, pay), Incident)


def test_a_task_that_was_cancelled_is_an_incident(clinic: Clinic) -> None:
    pay = held(clinic)
    clinic.gateway.after = fail(RuntimeError())
    clinic.run(VARIABLES, pay)
    clinic.call(clinic.semel.resolve, pay.identify(VARIABLES), Cancelled(), reason="paid by hand")
    assert isinstance(clinic.run(VARIABLES, pay), Incident)


def test_a_missing_key_part_is_refused(clinic: Clinic) -> None:
    with pytest.raises(KeyMissing, match="claimId"):
        clinic.run({**VARIABLES, "claimId": None}, clinic.pay)


def test_a_variable_that_is_not_as_annotated_is_refused_without_its_value(clinic: Clinic) -> None:
    with pytest.raises(UsageError, match="'amount'") as caught:
        clinic.run({**VARIABLES, "amount": "secret"})
    assert "secret" not in str(caught.value)


def test_records_are_found_by_instance_business_key_and_activity(clinic: Clinic) -> None:
    clinic.run(VARIABLES, instance="proc-1", activity="SUB_08")
    record = clinic.call(clinic.semel.read, clinic.pay.identify(VARIABLES))
    assert record.about.process_instance == "proc-1"
    assert record.about.business_key == "revenue-cycle-test"
    assert record.about.tags == {"activity": "SUB_08"}
    assert record.key.operation == "PAYMENT_PROCESSING"
