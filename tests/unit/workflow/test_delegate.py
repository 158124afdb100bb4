"""How delegates are declared: what is refused when the class is made, and what an object of it compares."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from semel import AsyncSemel, Attempt, Semel
from semel.errors import UsageError
from semel.stores.memory import MemoryStore
from semel.workflow import BpmnError, Completed, Delegate, delegate


@pytest.fixture
def semel() -> Semel:
    return Semel(MemoryStore())


class Submit(Delegate[Semel]):
    """Submits a claim."""

    operation = "CLAIM_SUBMISSION"
    key = ("claimId", "insuranceId")
    runs: ClassVar[list[str]] = []

    def execute(self, claimId: str, insuranceId: str, notes: str = "") -> str:  # noqa: N803
        self.runs.append(claimId)
        return f"P-{len(self.runs)}"

    def outputs(self, value: str, v: Mapping[str, Any]) -> dict[str, Any]:
        return {"submissionProtocol": value, "claimSubmitted": True}


def with_outputs(outputs: Callable[..., Any]) -> type[Delegate[Semel]]:
    return type("Made", (Submit,), {"outputs": outputs})


def test_an_output_named_like_an_input_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(UsageError, match="'notes'"):

        class Overwrites(Submit):
            def outputs(self, value: str, v: Mapping[str, Any]) -> dict[str, Any]:
                return {"done": True, "notes": value}


def test_an_output_named_like_a_key_part_that_is_no_input_is_refused() -> None:
    with pytest.raises(UsageError, match="'region'"):

        class Overwrites(Submit):
            key = ("claimId", "region")

            def outputs(self, value: str, v: Mapping[str, Any]) -> dict[str, Any]:
                made = {}
                made["region"] = value
                return made


def by_claim(v: Mapping[str, Any]) -> Any:
    return v.get("claim")


@pytest.mark.parametrize("rule", ["key", "scope"])
def test_an_output_named_like_what_a_method_reads_is_refused_when_the_class_is_made(rule: str) -> None:
    with pytest.raises(UsageError, match="'claim'"):
        type("Overwrites", (Submit,), {rule: staticmethod(by_claim), "outputs": outputs_of_claim})
    with pytest.raises(UsageError, match="'region'"):

        class Overwrites(Submit):
            def key(self, v: Mapping[str, Any]) -> Any:  # type: ignore[override]  # the class above names them
                return v["region"], v["claimId"]

            def outputs(self, value: str, v: Mapping[str, Any]) -> dict[str, Any]:
                return {"region": value}


def outputs_of_claim(self: Any, value: str, v: Mapping[str, Any]) -> dict[str, Any]:
    return {"claim": value}


def test_an_output_named_like_what_a_method_reads_unseen_is_refused_when_it_is_made(semel: Semel) -> None:
    names = ["region"]

    class Overwrites(Submit):
        def key(self, v: Mapping[str, Any]) -> Any:  # type: ignore[override]  # the class above names them
            return tuple(v[name] for name in names)

        def outputs(self, value: str, v: Mapping[str, Any]) -> dict[str, Any]:
            return {"region": value}

    with pytest.raises(UsageError, match="'region'"):
        Overwrites(semel).run({"claimId": "1", "insuranceId": "2", "region": "north"})


def test_an_output_that_the_source_does_not_show_is_refused_when_it_is_made(semel: Semel) -> None:
    names = ["notes"]
    made = with_outputs(lambda self, value, v: dict.fromkeys(names, value))(semel)
    with pytest.raises(UsageError, match="'notes'"):
        made.run({"claimId": "1", "insuranceId": "2"})


def test_an_output_that_semel_sets_itself_is_refused() -> None:
    with pytest.raises(UsageError, match="idempotencyKey"):

        class Overwrites(Submit):
            def outputs(self, value: str, v: Mapping[str, Any]) -> dict[str, Any]:
                return dict(idempotencyKey=value)  # noqa: C408 - another way to write it


def test_outputs_that_are_no_mapping_are_refused(semel: Semel) -> None:
    with pytest.raises(UsageError, match="mapping"):
        with_outputs(lambda self, value, v: [value])(semel).run({"claimId": "1", "insuranceId": "2"})


def test_a_delegate_without_a_key_is_refused() -> None:
    with pytest.raises(UsageError, match="key"):

        class Keyless(Delegate[Semel]):
            def execute(self, claimId: str) -> None: ...  # noqa: N803


def test_a_parameter_that_takes_whatever_is_left_is_refused() -> None:
    with pytest.raises(UsageError, match="by name"):

        class Greedy(Delegate[Semel]):
            key = "claimId"

            def execute(self, **rest: Any) -> None: ...


def test_an_input_that_semel_sets_is_refused() -> None:
    with pytest.raises(UsageError, match="idempotencyDuplicate"):

        class Curious(Delegate[Semel]):
            key = "claimId"

            def execute(self, idempotencyDuplicate: bool) -> None: ...  # noqa: N803


def test_a_code_that_cannot_be_one_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(UsageError, match="code"):

        class Mistaken(Submit):
            errors: ClassVar = {ValueError: ""}


def test_a_function_of_the_other_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="async def"):
        Submit(AsyncSemel(MemoryStore()))  # type: ignore[arg-type]  # what is tested


def test_a_delegate_keeps_for_seven_days_unless_it_says_otherwise(semel: Semel) -> None:
    assert Submit(semel).policy.keep_for == timedelta(days=7)


def test_a_missing_or_null_variable_takes_its_default(semel: Semel) -> None:
    submit = Submit(semel)
    submit.run({"claimId": "1", "insuranceId": "2"})
    again = submit.run({"claimId": "1", "insuranceId": "2", "notes": None})
    assert isinstance(again, Completed)
    assert again.variables["idempotencyDuplicate"] is True


def test_a_key_part_that_is_missing_takes_the_default_of_its_parameter(semel: Semel) -> None:
    @delegate(semel, operation="DEFAULTED", key=("claimId", "kind"))
    def appeal(claimId: str, kind: str = "technical") -> str:  # noqa: N803
        return kind

    assert appeal.identify({"claimId": "1"}) == appeal.identify({"claimId": "1", "kind": "technical"})


def test_a_missing_variable_without_a_default_is_refused(semel: Semel) -> None:
    class Needs(Submit):
        def execute(self, claimId: str, insuranceId: str, guide: str) -> str:  # type: ignore[override]  # noqa: N803
            raise AssertionError

    with pytest.raises(UsageError, match="'guide'"):
        Needs(semel).run({"claimId": "1", "insuranceId": "2"})


def test_what_is_ignored_is_not_compared(semel: Semel) -> None:
    class Careless(Submit):
        ignore = ("notes",)

    submit = Careless(semel)
    submit.run({"claimId": "i1", "insuranceId": "2", "notes": "a"})
    assert isinstance(submit.run({"claimId": "i1", "insuranceId": "2", "notes": "b"}), Completed)


def test_a_key_may_come_from_a_method(semel: Semel) -> None:
    class ByMethod(Submit):
        def key(self, v: Mapping[str, Any]) -> Any:  # type: ignore[override]  # the class above names them
            return v["claimId"].upper()

    submit = ByMethod(semel)
    submit.run({"claimId": "m1", "insuranceId": "2"})
    assert submit.identify({"claimId": "M1"}) == submit.identify({"claimId": "m1"})
    assert submit.identify({"claimId": "M1"}).value == "(V1, M1)"


def test_a_scope_keeps_tenants_apart(semel: Semel) -> None:
    class Scoped(Submit):
        scope = "tenant"

    submit = Scoped(semel)
    first = submit.run({"claimId": "s1", "insuranceId": "2", "tenant": "a"})
    other = submit.run({"claimId": "s1", "insuranceId": "2", "tenant": "b"})
    assert isinstance(first, Completed)
    assert isinstance(other, Completed)
    assert other.variables["idempotencyDuplicate"] is False
    assert submit.identify({"claimId": "s1", "insuranceId": "2", "tenant": "a"}).scope == "a"


def test_a_single_parameter_v_takes_all_variables_and_compares_what_the_task_did_not_set(semel: Semel) -> None:
    class TakesAll(Delegate[Semel]):
        operation = "ALL"
        key = "claimId"

        def execute(self, v: Mapping[str, Any]) -> str:
            return str(v["amount"])

        def outputs(self, value: str, v: Mapping[str, Any]) -> dict[str, Any]:
            return {"paid": value}

    pay = TakesAll(semel)
    first = pay.run({"claimId": "1", "amount": 5})
    assert isinstance(first, Completed)
    again = pay.run({"claimId": "1", "amount": 5, **first.variables})
    assert isinstance(again, Completed)
    assert again.variables["idempotencyDuplicate"] is True
    changed = pay.run({"claimId": "1", "amount": 6})
    assert isinstance(changed, BpmnError)
    assert changed.code == "KEY_REUSED"


def test_a_function_may_ask_for_its_attempt(semel: Semel) -> None:
    class Derives(Delegate[Semel]):
        operation = "DERIVES"
        key = "claimId"

        def execute(self, claimId: str, attempt: Attempt) -> str:  # noqa: N803
            return attempt.derive("bank")

    derives = Derives(semel)
    end = derives.run({"claimId": "1"})
    assert isinstance(end, Completed)
    assert end.value == derives.identify({"claimId": "1"}).derive("bank")


def test_a_function_becomes_a_delegate_by_decoration(semel: Semel) -> None:
    runs = []

    @delegate(semel, operation="APPEAL", key=("glosaId",), keep_for=60, outputs=lambda value, v: {"appeal": value})
    def appeal(glosaId: str, amount: Decimal) -> str:  # noqa: N803
        runs.append(glosaId)
        return f"A-{amount}"

    appeal.run({"glosaId": "1", "amount": "10.0"})
    end = appeal.run({"glosaId": "1", "amount": 10})
    assert isinstance(end, Completed)
    assert end.variables["appeal"] == "A-10.0"
    assert runs == ["1"]
    assert appeal.policy.keep_for == timedelta(seconds=60)


def test_what_an_outcome_is_about_can_be_said(semel: Semel) -> None:
    class AboutPatients(Submit):
        def about(self, v: Mapping[str, Any]) -> Mapping[str, Any]:
            return {"subject": v["patient"], "tags": {"ward": "3"}}

    submit = AboutPatients(semel)
    variables = {"claimId": "a1", "insuranceId": "2", "patient": "patient-7"}
    submit.run(variables, activity="SUB_06", instance="p", business_key="b")
    record = semel.read(submit.identify(variables))
    assert record is not None
    assert record.about.subject == "patient-7"
    assert record.about.business_key == "b"
    assert dict(record.about.tags) == {"activity": "SUB_06", "ward": "3"}


def test_a_business_error_with_too_many_variables_is_refused_when_it_is_made() -> None:
    with pytest.raises(UsageError, match="1000"):
        BpmnError("X", "", {"text": "x" * 2000})


def test_a_business_error_is_equal_by_code_message_and_variables() -> None:
    error = BpmnError("X", "why", {"amount": Decimal("1.50")})
    assert error == BpmnError("X", "why", {"amount": "1.50"})
    assert error != BpmnError("X", "why")
    assert pickle.loads(pickle.dumps(error)) == error  # noqa: S301 - errors cross process pools


@pytest.mark.parametrize(
    "longest",
    [
        BpmnError("C" * 100, "\N{BOMB}" * 500, {"t": "\N{BOMB}" * 240}),
        BpmnError("C" * 100, "\n" * 500, {"t": "x" * 900}),
        BpmnError('"' * 100, '"' * 500, {"t": "x" * 900}),
        BpmnError("C", "\x01" * 500),
    ],
    ids=["wide", "lines", "quotes", "control characters"],
)
def test_the_longest_business_error_is_kept_whole(semel: Semel, longest: BpmnError) -> None:
    class Fails(Submit):
        operation = "LONGEST"

        def execute(self, claimId: str, insuranceId: str) -> str:  # type: ignore[override]  # noqa: N803
            raise longest

    fails = Fails(semel)
    variables = {"claimId": "1", "insuranceId": "2"}
    assert fails.run(variables) == fails.run(variables) == longest


def test_a_message_is_cut_no_more_than_a_record_needs() -> None:
    lines = BpmnError("DECLINED", "<reason>no</reason>\n" * 30)
    assert len(lines.message) == 500
    assert 250 < len(BpmnError("DECLINED", "\x01" * 500).message) < 500


def test_a_returned_business_error_is_the_end_of_the_task(semel: Semel) -> None:
    @delegate(semel, operation="RETURNED", key="claimId")
    def refuse(claimId: str) -> None:  # noqa: N803
        return BpmnError("NO")  # type: ignore[return-value]  # as untyped code may do

    assert refuse.run({"claimId": "1"}) == refuse.run({"claimId": "1"}) == BpmnError("NO")
