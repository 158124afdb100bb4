"""How scenarios are called, by `run` or through decorated functions: all in both styles on memory, by turns elsewhere.

What always holds: a test with the parameters `colour` and `call_style` that waits for files or servers is run in one
style, and in the other one in the other colour, so that every topic is called in every style and colour. The full
effort leaves nothing out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.effort import FULL

ON_MEMORY = Path(__file__).parent / "contract" / "test_memory.py"


class Case(NamedTuple):
    """One scenario on one store, with its parameters, in one colour and one style of calling."""

    store: str
    topic: str
    scenario: str
    colour: str
    style: str


def case_of(item: pytest.Item) -> Case | None:
    """The case that a test is; None for a test that is called in one style anyway."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    style, colour = item.callspec.params.get("call_style"), item.callspec.params.get("colour")
    if not isinstance(style, str) or not isinstance(colour, str):
        return None
    others = [part for part in item.callspec.id.split("-") if part not in (style, colour)]
    scenario = f"{item.originalname}{others}"
    if item.cls is None:
        return Case(str(item.path), item.path.stem, scenario, colour, style)
    topic = next(base for base in item.cls.__mro__ if item.originalname in vars(base))
    return Case(item.cls.__name__, topic.__name__, scenario, colour, style)


def choose(cases: Iterable[Case]) -> set[Case]:
    """One style for each scenario, by turns within a topic, and the other one in the other colour."""
    styles: dict[Case, list[Case]] = defaultdict(list)
    for case in cases:
        styles[case._replace(style="")].append(case)
    turns: dict[tuple[str, str, str], int] = {}
    chosen: set[Case] = set()
    for scenario, offered in styles.items():
        if len(offered) == 1:
            chosen.add(offered[0])  # there is nothing to choose
            continue
        topic = scenario.store, scenario.topic, scenario.colour
        turn = turns[topic] = turns.get(topic, scenario.colour in ("async", "loop")) + 1
        chosen.add(offered[turn % len(offered)])
    return chosen


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what would only repeat, with files or servers, what memory proves in both styles."""
    if FULL:
        return
    cases = {item: case for item in items if item.path != ON_MEMORY and (case := case_of(item)) is not None}
    chosen = choose(cases.values())
    left_out = {item for item, case in cases.items() if case not in chosen}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
