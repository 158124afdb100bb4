"""Turns: of the requests of a process for one key, one at a time claims in a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from semel import AsyncSemel, Policy, Semel
from semel.core.circuit import Limits
from semel.core.observer import Signal
from semel.engine.engine import engine_of
from semel.errors import InProgress, KeyReentered

ASKED: dict[str, Any] = {"operation": "pay"}
BUSY = InProgress("somebody else runs it")


class Heard:
    """What an observer was told."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def observe(self, event: Signal) -> None:
        self.kinds.append(event.kind)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def semel(heard: Heard) -> Iterator[Semel]:
    with Semel("memory://", observer=heard) as semel:
        yield semel


def test_one_request_has_the_turn(semel: Semel) -> None:
    assert [engine_of(semel).turn("k", **ASKED).take() for _ in range(3)] == [True, False, False]


def test_another_key_has_its_own(semel: Semel) -> None:
    assert [engine_of(semel).turn(key, **ASKED).take() for key in ("k", "other")] == [True, True]


def test_the_next_one_may_when_a_turn_has_ended(semel: Semel) -> None:
    first = engine_of(semel).turn("k", **ASKED)
    first.take()
    first.end()
    assert engine_of(semel).turn("k", **ASKED).take()


def test_a_request_that_does_not_wait_needs_no_turn(semel: Semel) -> None:
    policy = Policy(when_running="reject")
    assert [engine_of(semel).turn("k", **ASKED, policy=policy).take() for _ in range(2)] == [True, True]


def test_the_end_of_a_turn_wakes_who_waits() -> None:
    async def scene() -> bool:
        async with AsyncSemel("memory://") as engine:
            first, second = engine_of(engine).turn("k", **ASKED), engine_of(engine).turn("k", **ASKED)
            assert (first.take(), second.take()) == (True, False)
            waiting = asyncio.create_task(second.wait())
            await asyncio.sleep(0)
            first.end()
            await waiting
            taken = second.take()
            second.end()
            return taken

    assert asyncio.run(scene())


def test_whoever_was_told_that_it_runs_elsewhere_passes_its_turn_on() -> None:
    async def scene() -> list[bool]:
        async with AsyncSemel("memory://") as engine:
            first = engine_of(engine).turn("k", **ASKED)
            first.take()
            waiting = asyncio.create_task(first.wait())
            await asyncio.sleep(0)
            second = engine_of(engine).turn("k", **ASKED)
            taken = [second.take()]
            second.end()
            await waiting
            first.end()
            return taken

    assert asyncio.run(scene()) == [True]


def test_without_time_left_the_refusal_is_raised_and_told(semel: Semel, heard: Heard) -> None:
    turn = engine_of(semel).turn("k", **ASKED, policy=Policy(when_running="reject"))
    with pytest.raises(InProgress):
        turn.refuse(BUSY)
    assert heard.kinds == ["waited"]


def test_with_time_left_nothing_is_told(semel: Semel, heard: Heard) -> None:
    turn = engine_of(semel).turn("k", **ASKED)
    turn.refuse(BUSY)
    turn.end()
    assert heard.kinds == []


def test_where_as_many_wait_as_may_one_more_is_refused(heard: Heard) -> None:
    async def scene() -> None:
        async with AsyncSemel("memory://", observer=heard, limits=Limits(waiters_per_key=1)) as engine:
            first, second, third = (engine_of(engine).turn("k", **ASKED) for _ in range(3))
            assert [first.take(), second.take(), third.take()] == [True, False, False]
            waiting = asyncio.create_task(second.wait())
            await asyncio.sleep(0)
            await third.wait()
            with pytest.raises(InProgress):
                third.take()
            first.end()
            await waiting
            second.end()

    asyncio.run(scene())
    assert heard.kinds == ["waited"]


def test_a_handler_that_asks_for_its_own_key_is_told_at_once(semel: Semel) -> None:
    def pay() -> None:
        engine_of(semel).turn("k", **ASKED)

    with pytest.raises(KeyReentered):
        semel.run("k", pay, operation="pay", fingerprint=None)
