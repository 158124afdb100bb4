"""A real server for a model to be compared with: the driver of a lane, and the connections of callers.

What always holds: an act goes to the server through the store's own plans, on the lane as on a caller's connection.
Beginning a transaction is left to the connection, which does so with its first statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from semel.core.store import Store
from semel_lab.simulate.models import Act, Begin, Commit, Rollback
from tests.effort import FULL
from tests.simulate.sequences import Real

SEQUENCES: Final = 10_000 if FULL else 120
FEWER: Final = SEQUENCES if FULL else 60
"""For a server that takes ten times as long to answer as the others do."""
PARTS: Final = 10 if FULL else 1
"""In how many tests of their own the sequences are run, so that workers can share them."""
TIME_LIMIT: Final = 3600 if FULL else 300
CALLERS: Final = 2


class Served(Real):
    """A store on a server. Whoever is one opens `_callers`, in the way of the library."""

    _callers: list[Any]

    def __init__(self, store: Store, stack: ExitStack) -> None:
        self._store = store
        self._driver = store.driver()
        stack.callback(self._driver.close)
        self._driver.perform([store.plan([], joined=False)])

    def perform(self, session: int, act: Act) -> Any:
        """On the lane, or on the connection of a caller."""
        if session == 0:
            return self._first(self._driver.perform([self._store.plan([act], joined=False)])[0])  # type: ignore[list-item]
        caller = self._callers[session - 1]
        match act:
            case Begin():
                return None
            case Commit():
                return caller.commit()
            case Rollback():
                return caller.rollback()
        try:
            return self._first(self._store.join(caller).perform(self._store.plan([act], joined=True)))
        except Exception as error:  # noqa: BLE001 - what it is, is what is compared
            return error

    @staticmethod
    def _first(answers: Sequence[Any] | Exception) -> Any:
        return answers if isinstance(answers, Exception) else answers[0]
