"""Asking from threads: the modes with `Semel`. `tasks.py` is the twin with `AsyncSemel`."""

import time
from collections.abc import Callable

from semel import Policy, Semel
from semel.engine.call_flow import Result
from semel.errors import InDoubt, LeaseLost, TryLater
from tests.kill.asker import Asker, row_of
from tests.kill.grounds.ground import Ground, Session
from tests.kill.positions import At, Mode
from tests.kill.watched import current_slot

_NOTHING_TO_DO = 0.004


def ask_in_thread(asker: Asker, semel: Semel, ground: Ground, gone: Callable[[], bool]) -> None:
    """Ask until the board says stop."""
    current_slot.set(asker.slot)
    session = ground.session()
    asking = _Asking(asker, semel, session, ground)
    while not (asker.board.stopping or gone()):
        key = asker.next_key()
        if key is None:
            time.sleep(_NOTHING_TO_DO)
        else:
            asking.ask(key)
        asker.slot.mark(At.IDLE)
    session.close()


class _Asking:
    def __init__(self, asker: Asker, semel: Semel, session: Session, ground: Ground) -> None:
        self._asker = asker
        self._session = session
        self._asked_again: tuple[type[Exception], ...] = (InDoubt, LeaseLost, TryLater, *ground.lost)
        self._cached = ground.cache is not None
        self._semel = semel
        self._handlers = {
            Mode.STEPS: self._by_steps,
            Mode.PLAIN_STEPS: self._by_plain_steps,
            Mode.WITHIN: self._never,
        }

    def ask(self, key: int) -> None:
        policy = self._asker.begin(key)
        try:
            result = self._ask(key, policy)
        except self._asked_again as error:
            self._session.rollback()
            self._asker.end_badly(key, error)
        else:
            self._asker.end(key, result)

    def _ask(self, key: int, policy: Policy) -> Result[str]:
        mode = self._asker.mode_of(key)
        if self._asker.joins(key, cached=self._cached):
            return self._within(key, policy)
        return self._semel.run(
            str(key), self._handlers.get(mode, self._effect), operation=mode.name, fingerprint=None, policy=policy
        )

    def _effect(self) -> str:
        value = self._asker.effect(self._semel.current())
        if self._asker.random.random() < 0.1:
            time.sleep(0.001)
        self._asker.slot.mark(At.RETURNING)
        return value

    def _within(self, key: int, policy: Policy) -> Result[str]:
        self._session.begin(self._asker.random)
        self._asker.slot.mark(At.BEGUN)
        with self._semel.within(self._session.raw):
            result = self._semel.run(str(key), self._row, operation=Mode.WITHIN.name, fingerprint=None, policy=policy)
        self._commit(At.COMMITTING, At.COMMITTED)
        return result

    def _never(self) -> str:
        message = "a committed record was not replayed"
        raise AssertionError(message)

    def _row(self) -> str:
        line = self._asker.row(self._semel.current())
        self._session.insert(row_of(line))
        self._asker.slot.mark(At.JOINED_EFFECT)
        return line.value

    def _commit(self, during: At, after: At) -> None:
        """Commit, if there is something to commit."""
        if self._session.in_transaction:
            self._asker.slot.mark(during)
            self._session.commit()
            self._asker.slot.mark(after)

    def _by_steps(self) -> str:
        asker, attempt = self._asker, self._semel.current()
        asker.slot.mark(At.STARTED)
        attempt.step("reserve", self._step, 1)
        self._session.begin_step()
        attempt.step("book", self._step_row, 2, within=self._session.raw)
        self._commit(At.STEP_COMMITTING, At.STEP_COMMITTED)
        attempt.step("tell", self._step, 3)
        return asker.last_step_done(attempt)

    def _by_plain_steps(self) -> str:
        asker, attempt = self._asker, self._semel.current()
        asker.slot.mark(At.STARTED)
        for step, name in enumerate(("reserve", "book", "tell"), start=1):
            attempt.step(name, self._step, step)
        return asker.last_step_done(attempt)

    def _step(self, step: int) -> int:
        return self._asker.step(step, self._semel.current())

    def _step_row(self, step: int) -> int:
        line = self._asker.step_row(step, self._semel.current())
        self._session.insert(row_of(line))
        self._asker.slot.mark(At.STEP_JOINED_EFFECT)
        return line.sequence
