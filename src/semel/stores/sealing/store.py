"""A store that keeps outcomes, steps, errors, events, letters and items sealed, in front of any other one.

- Operations are sealed before the store behind plans them, and answers are opened after it: no plan, no statement and
  no flow of the engine knows of it, and a store without a sealer does nothing for it.
- What was written before sealing was switched on is read as it is.
- A claim whose stored answer cannot be opened is answered by `RecordUnreadable`, never by a grant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from semel.core.operations import Operation
from semel.core.sealing.values import Sealer
from semel.core.store import AsyncDriver, Capability, Plan, SeparateLoop, Store
from semel.errors import UsageError
from semel.stores.sealing.answers import open_answer
from semel.stores.sealing.operations import seal_operation
from semel.stores.wrapper import StoreWrapper


class SealedStore(StoreWrapper):
    """Seals with `sealer` what `store` keeps.

    Raises:
        UsageError: a cache already stands in front of the store, and would keep what is opened.
    """

    def __init__(self, store: Store, sealer: Sealer) -> None:
        if Capability.LANE_WRAPPER in store.capabilities:
            message = (
                f"{store.name} has a cache in front of it, which would keep what was opened; nothing was opened. Give "
                f"the store itself, with seal= and cache= beside it."
            )
            raise UsageError(message)
        self._store = store
        self._sealer = sealer

    def _behind(self) -> Store:
        return self._store

    def separate_async_driver(self) -> AsyncDriver:
        """A driver of the store behind for another event loop than the caller's."""
        return cast("SeparateLoop", self._store).separate_async_driver()

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands of the store behind, for sealed operations; its answers, opened."""
        sealer = self._sealer
        sealed = [seal_operation(sealer, operation) for operation in operations]
        answers = yield from self._store.plan(sealed, joined=joined)
        return [open_answer(sealer, operation, answer) for operation, answer in zip(sealed, answers, strict=True)]
