"""Writes under a lease, as the models see them."""

from __future__ import annotations

from semel.core.operations import Checkpoint, Complete, Fail, Renew
from semel.core.record import Lease, Record

Write = Renew | Complete | Fail | Checkpoint


def shows(lease: Lease, record: Record) -> bool:
    """Whether `lease` is the current one of this version."""
    return record.nonce == lease.nonce and record.fence == lease.fence
