"""Workflow: tasks of processes whose effects happen once, in any engine."""

from __future__ import annotations

from semel.workflow.delegate import Delegate, delegate
from semel.workflow.ends import BpmnError, Completed, Incident, Retry

__all__ = ["BpmnError", "Completed", "Delegate", "Incident", "Retry", "delegate"]
