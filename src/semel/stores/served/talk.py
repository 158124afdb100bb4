"""One connection for what operators do: flows that are neither claims nor rounds.

What always holds: nothing is asked of the connection beforehand, so it works where tables are missing or too old;
nothing is sent a second time; the connection is closed at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from semel.core.flow import run
from semel.stores.served.command import Command, Row
from semel.stores.served.library import Library
from semel.stores.served.place import Place
from semel.stores.served.troubles import OfOneOperation, translated, translated_connecting

T = TypeVar("T")
LONG: Final = 24 * 3600.0
"""Seconds that a statement of a migration may take: an index over many records takes its time."""


class Talk:
    """A connection that flows are run on, one after the other."""

    def __init__(self, place: Place, library: Library, *, statement_timeout: float | None = None) -> None:
        self._place = place
        self._library = library
        settings = place.settings
        self._settings = dataclasses.replace(
            settings, statement_timeout=statement_timeout or settings.statement_timeout
        )

    def __enter__(self) -> Self:
        try:
            self._connection: Any = self._library.connect(self._settings)
        except Exception as error:
            raise translated_connecting(error, self._library.trouble(error), self._place.name) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.close(self._connection)

    def run(self, flow: Generator[Command, list[Row], T]) -> T:
        """Run a flow and answer what it returns."""
        return run(flow, self._execute)

    def _execute(self, command: Command) -> list[Row]:
        try:
            return self._library.execute(self._connection, self._place.spoken(command))
        except Exception as error:
            raise self._meaning(error) from error

    def _meaning(self, error: Exception) -> Exception:
        meant = translated(error, self._library.trouble(error), self._place.name)
        return meant.error if isinstance(meant, OfOneOperation) else meant
