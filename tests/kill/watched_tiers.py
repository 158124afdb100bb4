"""Tiers that show on the board when they look into the cache and when they fill it. They change nothing else."""

from typing import Any

from semel.core.flow import Flow
from semel.core.operations import Answer, Operation
from semel.stores.cache import TieredStore
from semel.stores.cache.operations import CacheGet, CachePut, CacheRequest
from tests.kill.board import Slot
from tests.kill.positions import At
from tests.kill.watched import WatchedStore, current_slot

_WAYS = {CacheGet: At.LOOKING, CachePut: At.FILLING}


class WatchedTiers(TieredStore):
    """A watched store behind a cache."""

    def __init__(self, watched: WatchedStore, cache: str) -> None:
        super().__init__(watched, cache)
        self.new_nonce = watched.new_nonce

    def ask(self, operation: Operation) -> Flow[Answer] | None:
        """The flow of the tiers, with marks; it begins in the thread or task of whoever asks."""
        flow = super().ask(operation)
        return None if flow is None else _marked(flow, current_slot.get())


def _marked(flow: Flow[Answer], slot: Slot) -> Flow[Answer]:
    go_on: Any = flow.send
    reply: Any = None
    while True:
        try:
            wanted = go_on(reply)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        if isinstance(wanted, CacheRequest):
            slot.mark(_WAYS[type(wanted.operation)])
        try:
            go_on, reply = flow.send, (yield wanted)
        except Exception as error:  # noqa: BLE001 - it is the flow's to decide about
            go_on, reply = flow.throw, error
