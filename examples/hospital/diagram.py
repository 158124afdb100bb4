"""The diagram of the process as shapes to draw, read from the BPMN file, and how each of them stands in an instance."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from xml.etree import ElementTree as ET

from examples.hospital.instances import Instance, TaskRun

Kind = Literal["task", "gateway", "event", "end", "boundary"]

_MODEL: Final = "{http://www.omg.org/spec/BPMN/20100524/MODEL}"
_DI: Final = "{http://www.omg.org/spec/BPMN/20100524/DI}"
_BOUNDS: Final = "{http://www.omg.org/spec/DD/20100524/DC}Bounds"
_WAYPOINT: Final = "{http://www.omg.org/spec/DD/20100524/DI}waypoint"
_MARGIN: Final = 12
_LABEL: Final = 16
"""How much the label below an event stands out at its side."""


@dataclass(frozen=True)
class Shape:
    """A node of the diagram, with its label in lines."""

    id: str
    kind: Kind
    lines: tuple[str, ...]
    x: float
    y: float
    width: float
    height: float
    attached_to: str | None = None

    @property
    def center(self) -> tuple[float, float]:
        """Its middle."""
        return self.x + self.width / 2, self.y + self.height / 2

    @property
    def corners(self) -> str:
        """The corners of a diamond in its place, as SVG has points."""
        x, y = self.center
        points = ((x, self.y), (self.x + self.width, y), (x, self.y + self.height), (self.x, y))
        return " ".join(f"{left:g},{top:g}" for left, top in points)


@dataclass(frozen=True)
class Flow:
    """An arrow from one node to another, with its points as SVG has them."""

    id: str
    source: str
    target: str
    points: str
    label: str
    middle: tuple[float, float]


@dataclass(frozen=True)
class Diagram:
    """All of it."""

    shapes: tuple[Shape, ...]
    flows: tuple[Flow, ...]

    @property
    def view_box(self) -> str:
        """The part of the plane that a picture shows, as SVG has it."""
        left, top = (min(getattr(shape, side) for shape in self.shapes) - _MARGIN for side in ("x", "y"))
        right = max(shape.x + shape.width for shape in self.shapes) + _MARGIN + _LABEL
        bottom = max(shape.y + shape.height for shape in self.shapes) + _MARGIN
        return f"{left:g} {top:g} {right - left:g} {bottom - top:g}"

    def name_of(self, activity: str) -> str:
        """The label of a node."""
        return next((" ".join(shape.lines) for shape in self.shapes if shape.id == activity), activity)


def read_diagram(path: Path) -> Diagram:
    """The diagram in a BPMN file.

    Raises:
        ValueError: a shape has no bounds, or an arrow no points.
    """
    root = ET.parse(path).getroot()  # noqa: S314 - a file of this program
    nodes = {node.get("id", ""): node for node in root.iter() if node.tag.startswith(_MODEL)}
    shapes = tuple(_shape(drawn, nodes) for drawn in root.iter(f"{_DI}BPMNShape"))
    flows = tuple(_flow(drawn, nodes) for drawn in root.iter(f"{_DI}BPMNEdge"))
    return Diagram(shapes, flows)


def _shape(drawn: ET.Element, nodes: dict[str, ET.Element]) -> Shape:
    node, bounds = nodes[drawn.get("bpmnElement", "")], drawn.find(_BOUNDS)
    if bounds is None:
        raise ValueError(f"the shape of {node.get('id')!r} has no bounds")
    x, y, width, height = (float(bounds.get(name, "0")) for name in ("x", "y", "width", "height"))
    lines = tuple(textwrap.wrap(node.get("name", ""), 15))
    return Shape(node.get("id", ""), _kind(node), lines, x, y, width, height, node.get("attachedToRef"))


def _kind(node: ET.Element) -> Kind:
    name = node.tag.removeprefix(_MODEL)
    if name == "boundaryEvent":
        return "boundary"
    if name.endswith("Gateway"):
        return "gateway"
    if name.endswith("Event"):
        return "end" if name == "endEvent" else "event"
    return "task"


def _flow(drawn: ET.Element, nodes: dict[str, ET.Element]) -> Flow:
    node = nodes[drawn.get("bpmnElement", "")]
    points = [(float(point.get("x", "0")), float(point.get("y", "0"))) for point in drawn.iter(_WAYPOINT)]
    if len(points) < 2:
        raise ValueError(f"the arrow {node.get('id')!r} has no points")
    (left, top), (right, bottom) = points[0], points[1]
    return Flow(
        node.get("id", ""),
        node.get("sourceRef", ""),
        node.get("targetRef", ""),
        " ".join(f"{x:g},{y:g}" for x, y in points),
        node.get("name", ""),
        ((left + right) / 2, (top + bottom) / 2),
    )


def find_states(diagram: Diagram, instance: Instance, runs: Sequence[TaskRun]) -> dict[str, str]:
    """How each node stands in an instance: what became of its last run, `passed` for an event; none where it is not."""
    states: dict[str, str] = {run.activity: run.became for run in runs}
    if runs:
        states |= {shape.id: "passed" for shape in diagram.shapes if shape.kind == "event"}
    if instance.ended_at is not None:
        states[instance.ended_at] = "passed"
    sources = {flow.source for flow in diagram.flows if flow.target in states}
    caught = [shape for shape in diagram.shapes if shape.kind == "boundary" and shape.id in sources]
    return states | {shape.id: "passed" for shape in caught}


def find_ways(diagram: Diagram, states: dict[str, str]) -> set[str]:
    """The arrows that an instance went along."""
    return {flow.id for flow in diagram.flows if flow.source in states and flow.target in states}
