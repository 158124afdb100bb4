"""Asking from tasks of an event loop: the modes with `AsyncSemel`. `threads.py` is the twin with `Semel`."""

import asyncio
from collections.abc import Callable

from semel import AsyncSemel, Policy
from semel.engine.call_flow import Result
from semel.errors import InDoubt, LeaseLost, TryLater
from tests.kill.asker import Asker, row_of
from tests.kill.grounds.ground import AsyncSession, Ground
from tests.kill.positions import At, Mode
from tests.kill.watched import current_slot

_NOTHING_TO_DO = 0.004


async def ask_in_task(asker: Asker, semel: AsyncSemel, ground: Ground, gone: Callable[[], bool]) -> None:
    """Ask until the board says stop."""
    current_slot.set(asker.slot)
    session = ground.async_session()
    asking = _Asking(asker, semel, session, ground)
    while not (asker.board.stopping or gone()):
        key = asker.next_key()
        if key is None:
            await asyncio.sleep(_NOTHING_TO_DO)
        else:
            await asking.ask(key)
        asker.slot.mark(At.IDLE)
    await session.close()


class _Asking:
    def __init__(self, asker: Asker, semel: AsyncSemel, session: AsyncSession, ground: Ground) -> None:
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

    async def ask(self, key: int) -> None:
        policy = self._asker.begin(key)
        try:
            result = await self._ask(key, policy)
        except self._asked_again as error:
            await self._session.rollback()
            self._asker.end_badly(key, error)
        else:
            self._asker.end(key, result)

    async def _ask(self, key: int, policy: Policy) -> Result[str]:
        mode = self._asker.mode_of(key)
        if self._asker.joins(key, cached=self._cached):
            return await self._within(key, policy)
        return await self._semel.run(
            str(key), self._handlers.get(mode, self._effect), operation=mode.name, fingerprint=None, policy=policy
        )

    async def _effect(self) -> str:
        value = self._asker.effect(self._semel.current())
        if self._asker.random.random() < 0.1:
            await asyncio.sleep(0.001)
        self._asker.slot.mark(At.RETURNING)
        return value

    async def _within(self, key: int, policy: Policy) -> Result[str]:
        # On SQLite nothing here really waits between begin and commit: another task of this loop, blocked on the write
        # lock in its own sqlite3 call, would keep this one from ever committing.
        await self._session.begin(self._asker.random)
        self._asker.slot.mark(At.BEGUN)
        async with self._semel.within(self._session.raw):
            result = await self._semel.run(
                str(key), self._row, operation=Mode.WITHIN.name, fingerprint=None, policy=policy
            )
        await self._commit(At.COMMITTING, At.COMMITTED)
        return result

    async def _never(self) -> str:
        message = "a committed record was not replayed"
        raise AssertionError(message)

    async def _row(self) -> str:
        line = self._asker.row(self._semel.current())
        await self._session.insert(row_of(line))
        self._asker.slot.mark(At.JOINED_EFFECT)
        return line.value

    async def _commit(self, during: At, after: At) -> None:
        """Commit, if there is something to commit."""
        if self._session.in_transaction:
            self._asker.slot.mark(during)
            await self._session.commit()
            self._asker.slot.mark(after)

    async def _by_steps(self) -> str:
        asker, attempt = self._asker, self._semel.current()
        asker.slot.mark(At.STARTED)
        await attempt.step("reserve", self._step, 1)
        await self._session.begin_step()
        await attempt.step("book", self._step_row, 2, within=self._session.raw)
        await self._commit(At.STEP_COMMITTING, At.STEP_COMMITTED)
        await attempt.step("tell", self._step, 3)
        return asker.last_step_done(attempt)

    async def _by_plain_steps(self) -> str:
        asker, attempt = self._asker, self._semel.current()
        asker.slot.mark(At.STARTED)
        for step, name in enumerate(("reserve", "book", "tell"), start=1):
            await attempt.step(name, self._step, step)
        return asker.last_step_done(attempt)

    async def _step(self, step: int) -> int:
        return self._asker.step(step, self._semel.current())

    async def _step_row(self, step: int) -> int:
        line = self._asker.step_row(step, self._semel.current())
        await self._session.insert(row_of(line))
        self._asker.slot.mark(At.STEP_JOINED_EFFECT)
        return line.sequence
