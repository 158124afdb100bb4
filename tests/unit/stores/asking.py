"""Asking a store for operations without an engine, for whoever has a store and a way to run plans on it.

What always holds: an error is raised, never taken for an answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from semel.core.operations import Answer, Operation
from semel.core.store import Answers, Plan, Store

T = TypeVar("T", bound=Answer)


class Asking(ABC):
    """Somebody who asks one store."""

    store: Store

    @abstractmethod
    def perform(self, *plans: Plan) -> list[Answers | Exception]:
        """Run one round."""

    def all(self, operations: Sequence[Operation]) -> Answers:
        """Ask for several of one kind; an error that befell all of them is raised."""
        (reply,) = self.perform(self.store.plan(operations, joined=False))
        if isinstance(reply, Exception):
            raise reply
        return reply

    def one(self, operation: Operation, kind: type[T]) -> T:
        """Ask for one, and expect this kind of answer."""
        (answer,) = self.all([operation])
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, kind), answer
        return answer
