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
        """`command` with what only the place knows filled in."""
        clock = self.settings.clock
        text, values, then = command.text, command.values, command.then
        if clock is None and Known.INSTALL not in values and then is None:
            return command
        if clock is not None:
            text = text.replace(NOW, str(clock()))
        if Known.INSTALL in values:
            values = tuple(self.install_id if value is Known.INSTALL else value for value in values)
        return replace(command, text=text, values=values, then=None if then is None else self.spoken(then))
