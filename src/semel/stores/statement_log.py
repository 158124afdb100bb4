"""A log of statements: one line for each command that a store sends, with its duration and the size of its reply.

- A line names the operation that the command belongs to; it never holds a key, a value or the text of an error.
- It is a store in front of another one, so that a store without a log does nothing for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from semel.core.operations import Operation
from semel.core.store import AsyncDriver, Plan, SeparateLoop, Store
from semel.stores.wrapper import StoreWrapper

_log: Final = logging.getLogger("semel.statements")


class LoggedStore(StoreWrapper):
    """Logs every command of `store` to the logger `semel.statements`, at the level DEBUG."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic

    def _behind(self) -> Store:
        return self._store

    def separate_async_driver(self) -> AsyncDriver:
        """A driver of the store behind for another event loop than the caller's."""
        return cast("SeparateLoop", self._store).separate_async_driver()

    def plan(self, operations: Sequence[Operation], *, joined: bool) -> Plan:
        """The commands of the store behind, logged."""
        name = type(operations[0]).__name__
        return self._log_commands(self._store.plan(operations, joined=joined), name, len(operations))

    def _log_commands(self, plan: Plan, name: str, count: int, *, requests: bool = False) -> Plan:
        """The commands of `plan`, each logged with its reply; with `requests` only those that are sent."""
        number = 0
        try:
            command = next(plan)
            while True:
                chains = getattr(command, "chains", None)
                if chains is not None:  # requests that go side by side are logged one by one
                    logged = tuple(self._log_commands(chain, name, 1, requests=True) for chain in chains)
                    command = plan.send((yield replace(command, chains=logged)))
                    continue
                is_sent = not requests or hasattr(command, "action")
                number += is_sent
                began = self._monotonic()
                try:
                    reply = yield command
                except Exception as error:  # noqa: BLE001 - thrown on into the plan, which decides
                    if is_sent:
                        self._write(name, number, count, began, f"failed: {type(error).__name__}")
                    command = plan.throw(error)
                else:
                    if is_sent:
                        self._write(name, number, count, began, _size(reply))
                    command = plan.send(reply)
        except StopIteration as end:
            answers: list[Any] = end.value
            return answers
        finally:
            plan.close()

    def _write(self, name: str, number: int, count: int, began: float, size: str) -> None:
        milliseconds = (self._monotonic() - began) * 1000
        _log.debug("%s, statement %d, operations %d: %.3f ms, %s", name, number, count, milliseconds, size)


def _size(reply: Any) -> str:
    """How many rows a reply has, and how many bytes of texts and values."""
    rows = reply[0] if isinstance(reply, tuple) and reply and isinstance(reply[0], list) else reply
    if not isinstance(rows, list):
        return f"bytes {_bytes(reply)}"
    return f"rows {len(rows)}, bytes {_bytes(rows)}"


def _bytes(value: Any) -> int:
    if isinstance(value, str | bytes | bytearray | memoryview):
        return len(value)
    if isinstance(value, dict):
        return sum(_bytes(name) + _bytes(inner) for name, inner in value.items())
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0
