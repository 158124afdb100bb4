"""Upserts and versioned writes for the caller's own rows: `WHERE version = expected`, in the caller's transaction.

On DynamoDB the rows are items, and the same is a condition of the one request that writes.

What always holds: a write is a value that does nothing until `run` or `arun` carries it out on a connection; nothing
here begins, commits or rolls back; what decides is one compare-and-set statement, never a read before it.
"""

from __future__ import annotations

from semel.errors import ConcurrentModification
from semel.versions.connections import arun, run
from semel.versions.dynamodb import transact_item
from semel.versions.write import Items, Unchanged, Write, Written, update_versioned, upsert

__all__ = [
    "ConcurrentModification",
    "Items",
    "Unchanged",
    "Write",
    "Written",
    "arun",
    "run",
    "transact_item",
    "update_versioned",
    "upsert",
]
