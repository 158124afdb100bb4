"""The choice of one style of calling for each scenario: each topic is called in every style, in both colours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import pytest


class Case(NamedTuple):
    """One scenario on one store, with its parameters, in one colour and one style of calling."""

    store: str
    topic: str
    scenario: str
    colour: str
    style: str


def case_of(item: pytest.Item) -> Case | None:
    """The case that a test is; None for a test that is no scenario."""
    if not isinstance(item, pytest.Function) or item.cls is None or not hasattr(item, "callspec"):
        return None
    style, colour = item.callspec.params.get("call_style"), item.callspec.params.get("colour")
    if not isinstance(style, str) or not isinstance(colour, str):
        return None
    topic = next(base for base in item.cls.__mro__ if item.originalname in vars(base))
    others = [part for part in item.callspec.id.split("-") if part not in (style, colour)]
    return Case(item.cls.__name__, topic.__name__, f"{item.originalname}{others}", colour, style)


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
        turn = turns[topic] = turns.get(topic, scenario.colour == "async") + 1
        chosen.add(offered[turn % len(offered)])
    return chosen
