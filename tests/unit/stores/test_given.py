"""The values of settings, as URLs and keywords give them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from semel.errors import UsageError
from semel.stores.settings import count, read, seconds, text, truth


@pytest.mark.parametrize(
    ("given", "used"), [("1.5", 1.5), (2, 2.0), (timedelta(milliseconds=20), 0.02), ("60", 60.0), ("1e-3", 0.001)]
)
def test_seconds_are_a_number_or_a_timedelta(given: Any, used: float) -> None:
    assert seconds(60)("timeout", given) == used


@pytest.mark.parametrize("given", ["", "soon", None, 0, -1, "nan", "inf", 60.1, timedelta(0), 10**400, b"x", True])
def test_seconds_out_of_reach_are_refused(given: Any) -> None:
    with pytest.raises(
        UsageError, match=r"timeout must be a timedelta or a number of seconds.* at most 60 seconds, not .*; nothing"
    ):
        seconds(60)("timeout", given)


@pytest.mark.parametrize(("given", "used"), [("7", 7), (1, 1), (10, 10), (3.0, 3)])
def test_a_count_is_a_whole_number(given: Any, used: int) -> None:
    assert count(1, 10)("pool_size", given) == used


@pytest.mark.parametrize("given", ["", "many", "1.5", 1.5, None, 0, 11, float("inf"), float("nan"), []])
def test_a_count_out_of_reach_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match=r"pool_size must be a whole number from 1 to 10, not .*; nothing was opened"):
        count(1, 10)("pool_size", given)


def test_a_count_may_have_no_end() -> None:
    assert count(0)("local", 10**30) == 10**30
    with pytest.raises(UsageError, match="local must be a whole number from 0 on, not -1"):
        count(0)("local", -1)


@pytest.mark.parametrize(
    ("given", "used"), [("true", True), ("YES", True), (1, True), (False, False), ("no", False), ("0", False)]
)
def test_a_truth_is_written_in_several_ways(given: Any, used: bool) -> None:
    assert truth("listen", given) is used


@pytest.mark.parametrize("given", ["", "perhaps", None, 2])
def test_what_is_neither_true_nor_false_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match=r"listen must be true or false, not .*; nothing was opened"):
        truth("listen", given)


def test_a_text_is_taken_as_it_is_and_nothing_else_is_one() -> None:
    assert text("region", "") == ""
    with pytest.raises(UsageError, match="region must be a text, not 7; nothing was opened"):
        text("region", 7)


def test_what_has_no_reader_is_left_alone() -> None:
    assert read({"timeout": "5", "clock": None}, {"timeout": seconds(60), "listen": truth}) == {
        "timeout": 5.0,
        "clock": None,
    }
