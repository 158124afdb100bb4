"""A run on a SQL database, whichever it is: records and effects can be looked at together.

What always holds: one statement sees one snapshot, so what it counts is of one instant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from tests.kill.grounds.ground import Row
from tests.kill.positions import JOINING, Modes

COLUMNS = "mode, key_number, step, fence, life, sequence"
TABLE = f"CREATE TABLE effect ({COLUMNS.replace(',', ' INTEGER,')} INTEGER)"
_COUNTS = """
SELECT (SELECT count(*) FROM effect WHERE mode = 1), (SELECT count(DISTINCT key_number) FROM effect WHERE mode = 1),
    (SELECT count(*) FROM semel_record WHERE operation = 'WITHIN' AND status = 'completed'),
    (SELECT count(*) FROM semel_record WHERE operation = 'WITHIN')
"""


class SqlGround(ABC):
    """One database."""

    modes: ClassVar[Modes] = JOINING

    def rows(self) -> list[Row]:
        """The effects that are in the database."""
        return [Row(*row) for row in self.fetch(f"SELECT {COLUMNS} FROM effect")]  # noqa: S608 - names of ours

    def missing(self, folder: Path) -> list[str]:
        """Each row of a caller has its completed record, and the other way round."""
        del folder
        ((rows, distinct, completed, records),) = self.fetch(_COUNTS)
        if rows == distinct == completed == records:
            return []
        return [f"within: {rows} rows of {distinct} keys, {records} records of which {completed} are completed"]

    @abstractmethod
    def fetch(self, text: str) -> list[tuple[Any, ...]]:
        """What one statement finds."""
