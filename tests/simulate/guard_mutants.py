"""Mistakes one could make in the guard of a store, as switches; what they break is watched where rounds are sent."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from semel.core import circuit
from semel.core.operations import Lost, Renew, Reused, Running
from semel.errors import StoreUnavailable
from semel_lab.simulate import World
from tests.simulate.mutants import BY_NAME, PAIR, Mutant

QUICK_TO_GIVE_UP = World(name="quick to give up", askers=PAIR, failures=1)
_right = circuit._verdict


def conflicts_count() -> AbstractContextManager[Any]:
    """Whoever is told that somebody else runs, or has the key, takes it for silence."""

    def verdict(replies: Any) -> Any:
        lists = [reply for reply in replies if isinstance(reply, list)]
        conflicts = any(isinstance(answer, (Running, Reused, Lost)) for list_ in lists for answer in list_)
        return StoreUnavailable("A conflict.") if conflicts else _right(replies)

    return patch.object(circuit, "_verdict", verdict)


def runs_are_refused() -> AbstractContextManager[Any]:
    """Completions wait outside like everybody else."""
    return patch.object(circuit, "RUNNING", (Renew,))


def answers_do_not_count() -> AbstractContextManager[Any]:
    """Nothing ends the rest."""

    def verdict(replies: Any) -> Any:
        right = _right(replies)
        return None if right is True else right

    return patch.object(circuit, "_verdict", verdict)


def guarded(name: str, switch: Any, world: World) -> Mutant:
    return Mutant(name, switch, (world,), frozenset({"guard"}))


GUARD_MUTANTS = [
    guarded("a conflict counts as a store that does not answer", conflicts_count, QUICK_TO_GIVE_UP),
    guarded("a store that is left alone is not told how a run ended", runs_are_refused, BY_NAME["left alone"]),
    guarded("a store that answers again is left alone all the same", answers_do_not_count, BY_NAME["left alone"]),
]
