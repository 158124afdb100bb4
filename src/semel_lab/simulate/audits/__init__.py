"""The simulator of the audit chain: real plans on tables whose statements take turns, with crashes and lost replies."""

from semel_lab.simulate.audits.simulation import AuditSimulation
from semel_lab.simulate.audits.world import AUDIT_SOMETIMES, AUDIT_WORLDS, AuditWorld

__all__ = ["AUDIT_SOMETIMES", "AUDIT_WORLDS", "AuditSimulation", "AuditWorld"]
