"""Mutants are noticed by the first schedule that breaks an invariant: to shrink it takes longer than to find it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from semel_lab.simulate import explore


def unshrunk() -> AbstractContextManager[Any]:
    """Failing schedules are as they were found."""
    return patch.object(explore, "_MOST_SHRINKING", 0)
