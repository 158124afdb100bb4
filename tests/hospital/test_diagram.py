"""The diagram: what is drawn of a BPMN file, and how it is coloured."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.hospital.diagram import find_states, find_ways, read_diagram
from examples.hospital.instances import Became, Instance, TaskRun
from examples.hospital.process import DIAGRAM

SMALL = """<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:b="http://www.omg.org/spec/BPMN/20100524/DI"
  xmlns:c="http://www.omg.org/spec/DD/20100524/DC" xmlns:d="http://www.omg.org/spec/DD/20100524/DI"><process id="p">
  <exclusiveGateway id="g" name="Owes?"/><endEvent id="e"/><sequenceFlow id="f" name="no" sourceRef="g" targetRef="e"/>
  </process><b:BPMNShape bpmnElement="g"><c:Bounds x="10" y="20" width="40" height="40"/></b:BPMNShape>
  <b:BPMNEdge bpmnElement="f"><d:waypoint x="50" y="40"/><d:waypoint x="90" y="40"/></b:BPMNEdge></definitions>"""


def instance(ended_at: str | None = None) -> Instance:
    return Instance("1", 0.0, {}, None, "open", None, ended_at, "")


def runs(**became: Became) -> list[TaskRun]:
    return [TaskRun(number, name, how, "", 1, "") for number, (name, how) in enumerate(became.items())]


def test_every_node_and_every_arrow_is_drawn() -> None:
    diagram = read_diagram(DIAGRAM)
    kinds = {shape.id: shape.kind for shape in diagram.shapes}
    tasks = dict.fromkeys(("SUB_05", "SUB_06", "SUB_08", "SUB_APPEAL"), "task")
    assert kinds == {**tasks, "start": "event", "glosa": "boundary", "paid": "end", "appealed": "end"}
    assert len(diagram.flows) == 6
    assert diagram.name_of("SUB_APPEAL") == "Appeal against the glosa"


def test_a_gateway_is_a_diamond_and_an_arrow_has_its_label(tmp_path: Path) -> None:
    file = tmp_path / "small.bpmn"
    file.write_text(SMALL)
    diagram = read_diagram(file)
    assert (diagram.shapes[0].kind, diagram.shapes[0].corners) == ("gateway", "30,20 50,40 30,60 10,40")
    assert (diagram.flows[0].points, diagram.flows[0].label, diagram.flows[0].middle) == ("50,40 90,40", "no", (70, 40))


def test_a_shape_without_bounds_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "small.bpmn"
    file.write_text(SMALL.replace('<c:Bounds x="10" y="20" width="40" height="40"/>', ""))
    with pytest.raises(ValueError, match="'g' has no bounds"):
        read_diagram(file)


def test_a_task_stands_as_its_last_run_did() -> None:
    diagram = read_diagram(DIAGRAM)
    again = [*runs(SUB_05="ran", SUB_06="in-doubt"), *runs(SUB_06="ran")]
    states = find_states(diagram, instance(), again)
    assert states == {"start": "passed", "SUB_05": "ran", "SUB_06": "ran"}
    assert find_ways(diagram, states) == {"to_coding", "to_submission"}


def test_a_refused_claim_went_through_its_boundary_event() -> None:
    diagram = read_diagram(DIAGRAM)
    states = find_states(diagram, instance("appealed"), runs(SUB_05="ran", SUB_06="refused", SUB_APPEAL="ran"))
    assert (states["glosa"], states["appealed"]) == ("passed", "passed")
    assert find_ways(diagram, states) == {"to_coding", "to_submission", "to_appeal", "to_appealed"}
