"""A store's place: its settings, dialect and schema, and what was learnt of it from the first connection."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from semel.stores.served.command import NOW, Command, Known
from semel.stores.served.dialect import Dialect
from semel.stores.served.marks import Marks
from semel.stores.served.opening import Schema
from semel.stores.served.settings import Settings


@dataclass(slots=True)
class Place:
    """Shared by every driver and joined connection of a store."""

    settings: Settings
    dialect: Dialect
    schema: Schema
    install_id: bytes | None = field(default=None)
    marks: Marks | None = field(default=None)

    @property
    def name(self) -> str:
        """For messages."""
        return self.settings.name

    def spoken(self, command: Command) -> Command:
        """`command` with what only the place knows filled in; itself, where there is nothing to fill in."""
        clock = self.settings.clock
        then = None if command.then is None else self.spoken(command.then)
        if clock is None and then is command.then and Known.INSTALL not in command.values:
            return command
        text = command.text if clock is None else command.text.replace(NOW, str(clock()))
        values = tuple(self.install_id if value is Known.INSTALL else value for value in command.values)
        return replace(command, text=text, values=values, then=then)
