"""The restore mark on MySQL and MariaDB: a trigger that is there only while it stands, and a row that tells of it.

What always holds: the server ends a transaction at every CREATE, so the trigger comes first and the row that tells of
it last: an interrupted run holds too much, never too little. One mark replaces another without a moment between them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import msgspec

from semel.errors import StoreUnavailable, UsageError
from semel.stores.mysql.dialect import clock_text, table_names
from semel.stores.served.command import Command, Row
from semel.stores.served.migrate import Migrations, locked, patiently
from semel.stores.served.restored import RESTORED, Mark, Marked
from semel.stores.served.settings import Settings
from semel.stores.sql import load_statements

_NAME: Final = "restored"
_NEXT: Final = "restored_next"  # stands while the other one is replaced
Doing = Generator[Command, list[Row], None]


class MysqlRestoring:
    """The mark of one place."""

    def __init__(self, settings: Settings, migrations: Migrations) -> None:
        self._settings = settings
        self._migrations = migrations

    def marking(
        self, at_us: int, for_us: int, operations: tuple[str, ...] | None
    ) -> Generator[Command, list[Row], Marked]:
        """Set the mark."""
        now = (yield Command(self._texts()["now"]))[0][0]
        if at_us > now:
            message = "The restore point is in the future of the store's clock; nothing was changed. Look at --at."
            raise UsageError(message)
        mark = Mark(at_us, now, now + for_us, operations)
        yield from locked(self._migrations)
        try:
            held, forgotten = yield from patiently(self._migrations, lambda: self._setting(mark))
        except StoreUnavailable as error:
            message = (
                f"{error.message} The mark may be set in part: keys without a record may be held already. "
                f"Run it again, or take it back: semel restored --end."
            )
            raise StoreUnavailable(message) from error
        yield self._migrations.unlock()
        return Marked(mark, held, forgotten)

    def ending(self) -> Generator[Command, list[Row], bool]:
        """Take the mark away."""
        yield from locked(self._migrations)
        there = yield from patiently(self._migrations, self._removing)
        yield self._migrations.unlock()
        return there

    def mark(self) -> Generator[Command, list[Row], Mark | None]:
        """The mark that stands."""
        rows = yield Command(self._texts()["mark"])
        return msgspec.json.decode(bytes(rows[0][0]), type=Mark) if rows else None

    def _setting(self, mark: Mark) -> Generator[Command, list[Row], tuple[int, int]]:
        yield self._migrations.lock()  # once more, because a failure lets go of it once
        yield from self._triggers(mark)
        chosen = mark.operations or ()
        texts = self._texts("AND r.operation IN", chosen)
        yield Command("BEGIN")
        expired, unsettled = (mark.marked_us, *chosen), (mark.at_us, *chosen)
        # The rows are locked from here on, so that what is counted is what is changed.
        forgotten = yield Command(texts["expired_ones"], expired)
        yield Command(texts["forget_steps"], expired)
        yield Command(texts["forget"], expired)
        held = yield Command(texts["unsettled_ones"], unsettled)
        yield Command(texts["hold"], (RESTORED.type, RESTORED.message, mark.marked_us, *unsettled))
        note = msgspec.json.encode(mark)
        yield Command(texts["note"], (note, note))
        yield Command("COMMIT")
        yield self._migrations.unlock()
        return held[0][0], forgotten[0][0]

    def _triggers(self, mark: Mark) -> Doing:
        """Two in turn: one of them stands at every moment from the first on."""
        chosen = mark.operations or ()
        values = (mark.until_us, *chosen, RESTORED.type, RESTORED.message)
        for name, other in ((_NEXT, _NAME), (_NAME, _NEXT)):
            texts = self._texts("AND NEW.operation IN", chosen, name)
            yield Command(texts["gone"])
            yield Command(texts["trigger"], values)
            yield Command(self._texts(name=other)["gone"])

    def _removing(self) -> Generator[Command, list[Row], bool]:
        yield self._migrations.lock()
        texts, prefix = self._texts(), self._settings.prefix
        there = yield Command(texts["there"], (self._settings.schema or None, f"{prefix}{_NAME}", f"{prefix}{_NEXT}"))
        for name in (_NAME, _NEXT):
            yield Command(self._texts(name=name)["gone"])
        yield Command(texts["unnote"])
        yield self._migrations.unlock()
        return bool(there)

    def _texts(self, restricted: str = "", chosen: tuple[str, ...] = (), name: str = _NAME) -> dict[str, str]:
        within = f"`{self._settings.schema}`." if self._settings.schema else ""
        return load_statements(
            "semel.stores.mysql",
            "restored.sql",
            {
                **table_names(self._settings),
                "clock": clock_text(self._settings),
                "trigger": f"{within}`{self._settings.prefix}{name}`",
                "chosen": f"{restricted} ({', '.join('?' * len(chosen))})" if chosen else "",
            },
        )
