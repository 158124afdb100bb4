"""A SQLite store that tells how far a request has come: claimed, kept, answered, recorded. It changes nothing else."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from semel.core.operations import Checkpoint, Claim, Complete, Granted, Operation, Recorded
from semel.core.store import Answers, Plan
from semel.stores.settings import machine_clock
from semel.stores.sqlite import SqliteStore
from semel.stores.sqlite.driver import AsyncSqliteDriver, SqliteDriver
from semel.stores.sqlite.settings import Settings
from tests.client.kill.positions import At

Tell = Callable[[At], None]

_COMMITTED: Final[dict[type[Operation], At]] = {Claim: At.CLAIMED, Checkpoint: At.KEPT, Complete: At.RECORDED}


class WatchedStore(SqliteStore):
    """The file at `path`, with a clock that is `ahead`; `tell` is called with each position, and may never return."""

    def __init__(self, path: Path, ahead: int, tell: Tell) -> None:
        super().__init__(path, clock=lambda: machine_clock() + ahead)
        self._tell = tell
        self._written: list[At] = []

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The plan of the store, which tells."""
        if isinstance(operations[0], Complete):
            self._tell(At.ANSWERED)
        answers = yield from super().plan(operations, joined=joined)
        committed = _COMMITTED.get(type(operations[0]))
        if committed is not None and any(isinstance(answer, (Granted, Recorded)) for answer in answers):
            self._written.append(committed)
        return answers

    def driver(self) -> SqliteDriver:
        """For threads."""
        return _WatchedDriver(self._settings, self.committed)

    def async_driver(self) -> AsyncSqliteDriver:
        """For event loops."""
        return _AsyncWatchedDriver(self._settings, self.committed)

    def committed(self) -> None:
        """A round is over: what was written is on disk."""
        written, self._written = self._written, []
        for at in written:
            self._tell(at)


class _WatchedDriver(SqliteDriver):
    def __init__(self, settings: Settings, committed: Callable[[], None]) -> None:
        super().__init__(settings)
        self._committed = committed

    def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        replies = super().perform(plans)
        self._committed()
        return replies


class _AsyncWatchedDriver(AsyncSqliteDriver):
    def __init__(self, settings: Settings, committed: Callable[[], None]) -> None:
        super().__init__(settings)
        self._committed = committed

    async def perform(self, plans: Sequence[Plan]) -> list[Answers | Exception]:
        replies = await super().perform(plans)
        self._committed()
        return replies
