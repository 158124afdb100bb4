"""What the processes of the hospital are told by whoever starts them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

SEMEL: Final = Path(__file__).with_name("semel.toml")
_PREFIX: Final = "HOSPITAL_"


@dataclass(frozen=True)
class Settings:
    """Where everything is.

    Attributes:
        database: processes, what became of their tasks, and the records of semel.
        insurer: the address of the insurer.
        books: the address of the financial system.
        codes: the file of the coder.
        poll_every: how many seconds a worker waits before it looks for work again.
    """

    database: str
    insurer: str
    books: str
    codes: Path
    poll_every: float = 0.2

    @classmethod
    def from_environment(cls) -> Self:
        """As the environment says."""
        found = {name: os.environ[_PREFIX + name] for name in ("DATABASE", "INSURER", "BOOKS", "CODES")}
        return cls(found["DATABASE"], found["INSURER"], found["BOOKS"], Path(found["CODES"]))

    def to_environment(self) -> dict[str, str]:
        """Variables that `from_environment` reads, with those of semel."""
        return {
            f"{_PREFIX}DATABASE": self.database,
            f"{_PREFIX}INSURER": self.insurer,
            f"{_PREFIX}BOOKS": self.books,
            f"{_PREFIX}CODES": str(self.codes),
            "SEMEL_STORE": self.database,
        }
