"""Flows and their two runners: answers are sent in, errors thrown in, and anything harder closes the flow."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from semel.core.flow import Flow, arun, run

Runner = Callable[[Flow[Any], Callable[[Any], Any]], Any]


def _arun(flow: Flow[Any], perform: Callable[[Any], Any]) -> Any:
    async def awaited(wanted: Any) -> Any:
        return perform(wanted)

    async def whole() -> Any:
        return await arun(flow, awaited)

    return asyncio.run(whole())


both = pytest.mark.parametrize("runner", [run, _arun], ids=["sync", "async"])


@both
def test_answers_are_sent_in_and_the_result_comes_out(runner: Runner) -> None:
    def flow() -> Flow[list[int]]:
        return [(yield 1), (yield 2)]

    assert runner(flow(), lambda wanted: wanted * 10) == [10, 20]


@both
def test_a_flow_that_asks_for_nothing_just_ends(runner: Runner) -> None:
    def flow() -> Flow[str]:
        yield from ()
        return "done"

    assert runner(flow(), lambda wanted: wanted) == "done"


@both
def test_an_error_is_thrown_in_and_the_flow_decides(runner: Runner) -> None:
    def flow() -> Flow[str]:
        try:
            yield "risky"
        except ValueError as error:
            return f"caught {error}, then {(yield 'safe')}"
        return "nothing happened"

    def perform(wanted: str) -> str:
        if wanted == "risky":
            raise ValueError("it")
        return wanted

    assert runner(flow(), perform) == "caught it, then safe"


@both
def test_an_error_the_flow_lets_through_reaches_the_caller(runner: Runner) -> None:
    def flow() -> Flow[None]:
        yield "risky"

    def perform(_wanted: Any) -> None:
        raise ValueError("it")

    with pytest.raises(ValueError, match="it"):
        runner(flow(), perform)


class _Interrupt(BaseException):
    pass


@both
def test_an_interrupt_closes_the_flow_without_another_yield(runner: Runner) -> None:
    seen: list[str] = []

    def flow() -> Flow[None]:
        try:
            yield "work"
        except GeneratorExit:
            seen.append("closed")
            raise

    def perform(wanted: str) -> None:
        seen.append(wanted)
        raise _Interrupt

    with pytest.raises(_Interrupt):
        runner(flow(), perform)
    assert seen == ["work", "closed"]
