"""SpiffWorkflow: processes from BPMN files whose service tasks are delegates, saved, resumed, and started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from SpiffWorkflow.bpmn.parser.ValidationException import ValidationException
from SpiffWorkflow.bpmn.serializer import BpmnWorkflowSerializer
from SpiffWorkflow.bpmn.workflow import BpmnWorkflow
from SpiffWorkflow.spiff.parser.process import SpiffBpmnParser
from SpiffWorkflow.spiff.serializer.config import SPIFF_CONFIG
from SpiffWorkflow.task import TaskState

from semel import AsyncSemel, Semel
from semel.errors import UsageError
from semel.stores.memory import MemoryStore
from semel.workflow import BpmnError, Incident, Retry, delegate
from semel.workflow.engines.spiff import CamundaParser, ScriptEngine, TaskNotDone, reset_failed_tasks
from tests.workflow.clinic import VARIABLES, CardDeclined, Gateway, LineDown, PayClaim, SyncPayClaim, fail

CAMUNDA = ("camunda_7", "camunda_8")
"""Processes whose files were drawn for the one and the other."""
PROCESSES = Path(__file__).parent / "processes"
SERIALIZER = BpmnWorkflowSerializer(BpmnWorkflowSerializer.configure(SPIFF_CONFIG))


class Office:
    """Processes of the clinic, whose service tasks are delegates of one kind."""

    def __init__(self, kind: str) -> None:
        self.gateway = Gateway()
        store = MemoryStore()
        self.semel: Any = AsyncSemel(store) if kind == "async" else Semel(store)
        pay: Any = PayClaim if kind == "async" else SyncPayClaim
        self.pay = pay(self.semel, self.gateway)
        self.engine = ScriptEngine({"payments/charge": self.pay, "payment": self.pay})

    def start(self, variables: Any = VARIABLES, *, process: str = "revenue_cycle") -> Any:
        """A new instance of the process."""
        parser = CamundaParser() if process in CAMUNDA else SpiffBpmnParser()
        folder = PROCESSES / "camunda" if process in CAMUNDA else PROCESSES
        parser.add_bpmn_files([str(path) for path in folder.glob("*.bpmn")])
        specs = parser.get_subprocess_specs(process)
        workflow = BpmnWorkflow(parser.get_spec(process), specs, script_engine=self.engine)
        workflow.task_tree.data.update(variables)
        return workflow

    def save(self, workflow: Any) -> str:
        """What is kept of it."""
        return str(SERIALIZER.serialize_json(workflow))

    def load(self, saved: str) -> Any:
        """An instance as it was saved."""
        workflow = SERIALIZER.deserialize_json(saved)
        workflow.script_engine = self.engine
        return workflow

    def close(self) -> None:
        """End it."""
        if isinstance(self.semel, AsyncSemel):
            self.engine.run_coroutine(self.semel.close())
        else:
            self.semel.close()
        self.engine.close()


@pytest.fixture(params=["sync", "async"])
def office(request: pytest.FixtureRequest) -> Iterator[Office]:
    made = Office(request.param)
    yield made
    made.close()


def ended_at(workflow: Any) -> list[str]:
    """The end events that a process has reached."""
    return [
        task.task_spec.name
        for task in workflow.get_tasks()
        if task.task_spec.name in ("paid", "not_paid") and task.has_state(TaskState.COMPLETED)
    ]


def test_a_service_task_runs_its_delegate_and_outputs_become_data(office: Office) -> None:
    workflow = office.start()
    workflow.do_engine_steps()
    assert workflow.completed
    assert ended_at(workflow) == ["paid"]
    assert workflow.data["receipt"] == "R-CLAIM-001-1"
    assert workflow.data["payment"]["idempotencyDuplicate"] is False


def test_a_second_start_of_the_process_is_no_second_charge(office: Office) -> None:
    for duplicate in (False, True):
        workflow = office.start()
        workflow.do_engine_steps()
        assert workflow.data["idempotencyDuplicate"] is duplicate
    assert office.gateway.charges == {"CLAIM-001": 1}


def test_state_that_was_lost_after_the_effect_is_made_up_from_the_record(office: Office) -> None:
    workflow = office.start()
    saved = office.save(workflow)
    workflow.do_engine_steps()
    again = office.load(saved)
    again.do_engine_steps()
    assert again.data["receipt"] == workflow.data["receipt"]
    assert again.data["idempotencyDuplicate"] is True
    assert office.gateway.charges == {"CLAIM-001": 1}


def test_a_business_error_takes_the_way_of_its_boundary_event_every_time(office: Office) -> None:
    office.gateway.before = fail(CardDeclined("no money"))
    for _ in range(2):
        workflow = office.start()
        workflow.do_engine_steps()
        assert ended_at(workflow) == ["not_paid"]
        office.gateway.before = None
    assert not office.gateway.charges


def test_a_business_error_reaches_the_boundary_event_of_the_subprocess_around_its_task(office: Office) -> None:
    office.gateway.before = fail(CardDeclined("no money"))
    workflow = office.start(process="nested_cycle")
    workflow.do_engine_steps()
    assert ended_at(workflow) == ["not_paid"]
    assert workflow.completed


def test_a_business_error_that_nothing_catches_stops_the_process(office: Office) -> None:
    office.start().do_engine_steps()
    workflow = office.start({**VARIABLES, "amount": 1})
    with pytest.raises(TaskNotDone, match="KEY_REUSED") as caught:
        workflow.do_engine_steps()
    assert isinstance(caught.value.end, BpmnError)
    assert not workflow.completed
    assert office.gateway.charges == {"CLAIM-001": 1}


def test_a_task_that_is_to_be_tried_again_is_tried_again_after_saving(office: Office) -> None:
    office.gateway.before = fail(LineDown())
    workflow = office.start()
    with pytest.raises(TaskNotDone) as caught:
        workflow.do_engine_steps()
    assert isinstance(caught.value.end, Retry)
    office.gateway.before = None
    again = office.load(office.save(workflow))
    assert reset_failed_tasks(again) == 1
    again.do_engine_steps()
    assert ended_at(again) == ["paid"]
    assert office.gateway.charges == {"CLAIM-001": 1}


def test_what_needs_a_person_is_an_incident(office: Office) -> None:
    class Held(type(office.pay)):  # type: ignore[misc]  # of either kind
        in_doubt = "hold"

    office.engine = ScriptEngine({"payments/charge": Held(office.semel, office.gateway)})
    office.gateway.after = fail(RuntimeError("no answer"))
    with pytest.raises(TaskNotDone) as caught:
        office.start().do_engine_steps()
    assert isinstance(caught.value.end, Incident)


def test_an_operator_without_a_delegate_is_refused(office: Office) -> None:
    office.engine = ScriptEngine({"payments/refund": office.pay})
    with pytest.raises(UsageError, match="payments/charge"):
        office.start().do_engine_steps()


def test_a_record_is_found_by_the_process_and_its_task(office: Office) -> None:
    workflow = office.start()
    workflow.do_engine_steps()
    read = office.semel.read(office.pay.identify(VARIABLES))
    record = office.engine.run_coroutine(read) if isinstance(office.semel, AsyncSemel) else read
    assert record.about.process_instance == str(workflow.task_tree.id)
    assert record.about.tags == {"activity": "SUB_08"}


@pytest.mark.parametrize("process", CAMUNDA)
def test_a_service_task_of_a_camunda_file_is_saved_resumed_and_done_once(office: Office, process: str) -> None:
    office.gateway.before = fail(LineDown())
    workflow = office.start(process=process)
    with pytest.raises(TaskNotDone):
        workflow.do_engine_steps()
    office.gateway.before = None
    saved = office.save(workflow)
    for is_duplicate in (False, True):  # the state after the first pass is lost
        again = office.load(saved)
        reset_failed_tasks(again)
        again.do_engine_steps()
        assert ended_at(again) == ["paid"]
        assert again.data["receipt"] == "R-CLAIM-001-1"
        assert again.data["idempotencyDuplicate"] is is_duplicate
    assert office.gateway.charges == {"CLAIM-001": 1}


@pytest.mark.parametrize("process", CAMUNDA)
def test_a_business_error_of_a_camunda_file_takes_the_way_of_its_boundary_event(office: Office, process: str) -> None:
    office.gateway.before = fail(CardDeclined("no money"))
    workflow = office.load(office.save(office.start(process=process)))
    workflow.do_engine_steps()
    assert ended_at(workflow) == ["not_paid"]


@pytest.mark.parametrize(
    ("process", "drawn", "instead", "why"),
    [
        ("camunda_7", 'camunda:topic="payment"', 'camunda:topic="${topic}"', "not by an expression"),
        ("camunda_7", 'camunda:topic="payment"', 'camunda:class="org.example.Pay"', "names its delegate"),
        ("camunda_8", 'type="payment"', 'type="= topic"', "not by an expression"),
        (
            "camunda_8",
            '<zeebe:taskDefinition type="payment" retries="3" />',
            '<zeebe:taskDefinition type="payment" /><zeebe:ioMapping />',
            "Mappings",
        ),
    ],
)
def test_what_of_a_camunda_file_would_be_left_out_in_silence_is_refused(
    tmp_path: Path, process: str, drawn: str, instead: str, why: str
) -> None:
    text = (PROCESSES / "camunda" / f"{process}.bpmn").read_text()
    assert drawn in text
    file = tmp_path / "drawn.bpmn"
    file.write_text(text.replace(drawn, instead))
    parser = CamundaParser()
    parser.add_bpmn_file(str(file))
    with pytest.raises(ValidationException, match=why):
        parser.get_spec(process)


def test_a_parser_of_camunda_files_takes_tasks_of_spiffworkflow_too() -> None:
    parser = CamundaParser()
    parser.add_bpmn_file(str(PROCESSES / "payment.bpmn"))
    assert parser.get_spec("revenue_cycle").task_specs["SUB_08"].operation_name == "payments/charge"


def test_what_a_task_gave_is_no_part_of_its_question_in_the_next_pass() -> None:
    with Semel(MemoryStore()) as semel:
        office = Office("sync")

        @delegate(semel, operation="ALL", key="claimId", outputs=lambda value, v: {"paid": value})
        def pay(v: Any) -> str:
            return str(v["amount"])

        office.engine = ScriptEngine({"payment": pay})
        first = office.start(process="camunda_7")
        first.do_engine_steps()
        second = office.start(dict(first.data), process="camunda_7")
        second.do_engine_steps()
        assert second.data["idempotencyDuplicate"] is True
        office.close()
