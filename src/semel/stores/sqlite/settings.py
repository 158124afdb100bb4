"""The settings of an SQLite store: checked once, frozen, shared by its drivers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from os import PathLike
from typing import Literal, get_args

from semel.errors import UsageError
from semel.stores.clock import StoreClock
from semel.stores.sqlite.place import local_path

Synchronous = Literal["FULL", "EXTRA", "NORMAL"]
_LONGEST_WAIT = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the file is and how it is used. `busy_for` is in seconds."""

    path: str
    synchronous: Synchronous
    busy_for: float
    clock: StoreClock
    migrate: bool

    @property
    def name(self) -> str:
        """How the store is called in messages."""
        return f"sqlite:///{self.path}"

    @staticmethod
    def of(
        path: str | PathLike[str], synchronous: str, busy_for: timedelta, clock: StoreClock, *, migrate: bool
    ) -> Settings:
        """The settings, checked.

        Raises:
            UsageError: the path is no file, a word is unknown or a duration impossible.
        """
        words = get_args(Synchronous)
        if synchronous not in words:
            message = (
                f"synchronous must be one of {', '.join(words)}, not {synchronous!r}; nothing ran. "
                f"FULL keeps every acknowledged commit, NORMAL may lose the last ones when the power fails."
            )
            raise UsageError(message)
        if not isinstance(busy_for, timedelta) or not timedelta(0) <= busy_for <= _LONGEST_WAIT:
            message = f"busy_for must be a timedelta between zero and one hour, not {busy_for!r}; nothing ran."
            raise UsageError(message)
        return Settings(local_path(path), synchronous, busy_for.total_seconds(), clock, migrate)  # type: ignore[arg-type]
