"""The audit chain: who did what to what, why, and what came of it, in an order that cannot be changed unnoticed."""

from semel.core.operators.verification import Anchor, AuditFault
from semel.server.audit.anchors import read_anchors, write_anchors
from semel.server.audit.chain import Audit
from semel.server.audit.flows import AuditEntry, AuditReport
from semel.server.audit.recording import RecordedAction

__all__ = [
    "Anchor",
    "Audit",
    "AuditEntry",
    "AuditFault",
    "AuditReport",
    "RecordedAction",
    "read_anchors",
    "write_anchors",
]
