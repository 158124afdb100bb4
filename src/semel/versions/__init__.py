"""Upserts and versioned writes for the caller's own rows: `WHERE version = expected`, in the caller's transaction.

What always holds: a write is a value that does nothing until `run` or `arun` carries it out on a connection; nothing
here begins, commits or rolls back; what decides is one compare-and-set statement, never a read before it.
"""

from __future__ import annotations

from semel.errors import ConcurrentModification
from semel.versions.connections import arun, run
from semel.versions.write import Unchanged, Write, Written, update_versioned, upsert

__all__ = ["ConcurrentModification", "Unchanged", "Write", "Written", "arun", "run", "update_versioned", "upsert"]
