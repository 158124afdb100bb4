"""Records in this process's memory: for tests, for one process, and as the plainest statement of the rules."""

from semel.stores.memory.store import MemoryStore
from semel.stores.memory.table import Table

__all__ = ["MemoryStore", "Table"]
