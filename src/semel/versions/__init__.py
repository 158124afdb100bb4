"""Upserts and versioned writes for the caller's own rows: `WHERE version = expected`, in the caller's transaction.

On DynamoDB the rows are items, and the same is a condition of the one request that writes.

- A write is a value that does nothing until `run` or `arun` executes it on a connection.
- Nothing here begins, commits or rolls back.
- One compare-and-set statement decides, never a read before it.
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
