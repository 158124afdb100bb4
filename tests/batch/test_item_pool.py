"""Items of a batch in a pool of processes that repeats its tasks: every effect is there once, whoever dies where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semel import Semel
from semel.batch import Batches
from tests.batch.repeating_pool import run_repeating
from tests.batch.test_kill import COUNT, TWICE, place
from tests.effort import FULL

__all__ = ["place"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 if FULL else 240)]
ITEMS = 1000 if FULL else 30


def test_every_effect_is_there_once_in_a_pool_that_repeats_tasks(
    place: tuple[str, Callable[[str], list[Any]]],
    tmp_path: Path,
) -> None:
    url, look = place
    ids = [f"i{n}" for n in range(ITEMS)]
    deaths = [(ids[2], "after"), (ids[ITEMS // 2], "committed"), (ids[-1], "before")]
    with Semel(url) as semel:
        batch = Batches(semel).start("pool", [{"id": id_} for id_ in ids], operation="pay", item_id="id")
        given, broken = run_repeating(lambda id_: (url, id_, str(tmp_path), deaths), ids, times=3)
        status = batch.status()
        results = list(batch.results(type=str))
    assert broken == len(deaths)
    assert (status.state, status.completed) == ("completed", ITEMS)
    assert look(TWICE) == []
    assert look(COUNT)[0][0] == ITEMS
    assert [{result.value} for result in results] == [given[id_] for id_ in ids]
