"""Names of operations as labels: so many, and one word for all others.

- A label is a time series for as long as the process lives, so the number of names is bounded: whoever makes up names
  of operations at run time cannot make a server of metrics run out of memory.
- A name keeps the label that it was given first.
"""

from __future__ import annotations

from typing import Final

from semel.errors import UsageError

OTHER: Final = "other"
"""The label of all operations beyond the bound."""
MAX_OPERATIONS: Final = 200
"""How many operations get a label of their own where nothing else is said."""


class OperationLabels:
    """Gives each operation its label.

    Raises:
        UsageError: the bound is less than one.
    """

    def __init__(self, most: int = MAX_OPERATIONS) -> None:
        if type(most) is not int or most < 1:
            message = f"max_operations must be a whole number, one or more, not {most!r}; nothing was set up."
            raise UsageError(message)
        self._most = most
        self._labels: dict[str, str] = {}

    def label(self, operation: str) -> str:
        """The operation itself, or `other` once there are as many as may be."""
        known = self._labels.get(operation)
        if known is not None:
            return known
        if len(self._labels) >= self._most:
            return OTHER
        return self._labels.setdefault(operation, operation)
