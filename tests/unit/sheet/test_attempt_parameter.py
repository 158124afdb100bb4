"""A handler may ask for its attempt by a parameter: it gets the one that runs it, and nobody else has to know."""

import asyncio
import functools
import inspect
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest

import semel as package
from semel import AsyncAttempt, AsyncSemel, Attempt, Semel
from semel.errors import KeyReused, UsageError
from tests.unit.sheet import asking

# Written as people write them, by position, by name, first, last and in between. Each gives the number of its attempt.


def last(order: str, attempt: Attempt) -> int:
    return attempt.number


def first(attempt: Attempt, order: str) -> int:
    return attempt.number


def between(order: str, attempt: Attempt, amount: int = 5) -> int:
    return attempt.number


def by_name(order: str, *, attempt: Attempt) -> int:
    return attempt.number


def optional(order: str, attempt: Attempt | None = None) -> int:
    return -1 if attempt is None else attempt.number


def spelt_optional(order: str, attempt: Optional[Attempt]) -> int:  # noqa: UP045 - as older code writes it
    return -1 if attempt is None else attempt.number


def as_text(order: str, attempt: "Attempt") -> int:
    return attempt.number


def as_dotted_text(order: str, attempt: "package.Attempt | None") -> int:
    return -1 if attempt is None else attempt.number


def under_another_name(order: str, me: Attempt) -> int:
    return me.number


def beside_the_rest(order: str, attempt: Attempt, *rest: int, **more: int) -> int:
    return attempt.number


WRITTEN: list[Callable[..., Any]] = [
    last,
    first,
    between,
    by_name,
    optional,
    spelt_optional,
    as_text,
    as_dotted_text,
    under_another_name,
    beside_the_rest,
    asking.resolved_late,
    asking.for_type_checkers,
    asking.for_type_checkers_optional,
]


async def awaited(order: str, attempt: AsyncAttempt) -> int:
    return attempt.number


written = pytest.mark.parametrize("function", WRITTEN, ids=lambda function: str(function.__name__))


@written
def test_a_function_gets_the_attempt_that_runs_it(function: Callable[..., Any]) -> None:
    with Semel("memory://") as semel:
        charge = semel.once(key="order")(function)
        assert charge("o-1") == 1
        assert charge(order="o-2") == 1


@written
def test_the_attempt_is_no_part_of_what_is_compared(function: Callable[..., Any]) -> None:
    with Semel("memory://") as semel:
        charge = semel.once(key="order")(function)
        charge("o-1")
        assert charge.result("o-1").replayed


@written
def test_a_caller_who_gives_the_attempt_is_refused_and_nothing_runs(function: Callable[..., Any]) -> None:
    name = "me" if function is under_another_name else "attempt"
    with Semel("memory://") as semel:
        charge = semel.once(key="order", operation="charge")(function)
        with pytest.raises(TypeError, match=rf"charge\(\) is given its attempt by semel.*{name!r} out; nothing ran"):
            charge("o-1", **{name: object()})
        assert list(semel.records()) == []


def test_an_attempt_that_is_given_by_position_is_refused() -> None:
    with Semel("memory://") as semel:
        charge: Any = semel.once(key="order", operation="charge")(between)

        def outer() -> None:
            with pytest.raises(TypeError, match="is given its attempt by semel"):
                charge("o-1", semel.current())

        semel.run("k", outer, operation="outer", fingerprint=None)
        assert semel.read("o-1", operation="charge") is None


def test_what_comes_after_the_attempt_may_be_given_by_position_or_by_name() -> None:
    with Semel("memory://") as semel:
        charge: Any = semel.once(key="order")(between)
        assert charge("o-1", 7) == 1
        assert charge.result("o-1", amount=7).replayed
        with pytest.raises(KeyReused):
            charge("o-1", 8)


def test_it_is_the_attempt_that_current_gives() -> None:
    with Semel("memory://") as semel:

        @semel.once(key="order")
        def charge(order: str, attempt: Attempt | None = None) -> bool:
            return attempt is semel.current()

        assert charge("o-1")


def test_a_second_attempt_is_told_its_number_and_its_doubt() -> None:
    seen: list[tuple[int, bool]] = []
    with Semel("memory://") as semel:

        @semel.once(key="order")
        def charge(order: str, attempt: Attempt | None = None) -> None:
            assert attempt is not None
            seen.append((attempt.number, attempt.in_doubt))
            if attempt.number == 1:
                raise OSError

        with pytest.raises(OSError):  # noqa: PT011 - the handler's own
            charge("o-1")
        charge("o-1")
    assert seen == [(1, False), (2, True)]


def test_nested_functions_get_each_their_own_attempt() -> None:
    with Semel("memory://") as semel:

        @semel.once(key="order", operation="inner")
        def inner(order: str, attempt: Attempt | None = None) -> str:
            assert attempt is not None
            return attempt.key.operation

        @semel.once(key="order", operation="outer")
        def outer(order: str, attempt: Attempt | None = None) -> list[str]:
            assert attempt is not None
            return [inner(order), attempt.key.operation]

        assert outer("o-1") == ["inner", "outer"]


def test_a_method_gets_its_attempt() -> None:
    with Semel("memory://") as semel:

        class Till:
            @semel.once(key="order", ignore=("self",))
            def charge(self, order: str, attempt: Attempt | None = None) -> int:
                assert attempt is not None
                return attempt.number

            @semel.once(key="order", ignore=("self",), operation="refund")
            def refund(self, attempt: Attempt, order: str) -> int:
                return attempt.number

        till: Any = Till()
        assert (till.charge("o-1"), till.refund("o-1"), till.refund.result(order="o-1").replayed) == (1, 1, True)


def test_an_awaited_function_gets_its_attempt() -> None:
    async def play() -> tuple[int, bool]:
        async with AsyncSemel("memory://") as semel:
            charge: Any = semel.once(key="order")(awaited)
            return await charge("o-1"), (await charge.result("o-1")).replayed

    assert asyncio.run(play()) == (1, True)


def test_the_rules_see_what_callers_give() -> None:
    with Semel("memory://") as semel:
        charge: Any = semel.once(
            key=lambda order: order, scope=lambda order: "acme", about=lambda order: {"subject": order}, operation="pay"
        )(last)
        charge("o-1")
        record = semel.read("o-1", operation="pay", scope="acme")
        assert record is not None
        assert record.about.subject == "o-1"


@pytest.mark.parametrize("rule", ["key", "scope", "fingerprint"])
@pytest.mark.parametrize("named", ["attempt", "attempt.number", ("order", "attempt")], ids=str)
def test_a_rule_that_names_the_attempt_is_refused_at_decoration(rule: str, named: Any) -> None:
    with (
        Semel("memory://") as semel,
        pytest.raises(UsageError, match=rf"{rule}= names 'attempt', which is the attempt"),
    ):
        semel.once(**{"key": "order", rule: named})(last)


def test_to_ignore_the_attempt_is_allowed_and_changes_nothing() -> None:
    with Semel("memory://") as semel:
        charge: Any = semel.once(key="order", ignore=("attempt",))(last)
        assert charge("o-1") == 1


def asks_twice(order: str, attempt: Attempt, again: Attempt) -> None: ...
def asks_by_position(attempt: Attempt, /, order: str) -> None: ...
def asks_for_many(order: str, *attempts: Attempt) -> None: ...
def asks_for_the_other(order: str, attempt: AsyncAttempt) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (asks_twice, "as 'attempt' and as 'again'; nothing ran"),
        (asks_by_position, "Write a plain attempt: Attempt"),
        (asks_for_many, "Write a plain attempts: Attempt"),
        (asks_for_the_other, "attempt of the other kind; nothing ran. Write attempt: Attempt"),
        (asking.for_the_other_kind, "attempt of the other kind; nothing ran. Write attempt: Attempt"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_given_is_refused_at_decoration(function: Callable[..., Any], why: str) -> None:
    with Semel("memory://") as semel, pytest.raises(UsageError, match=why):
        semel.once(key="order")(function)


def test_a_policy_that_runs_without_a_record_needs_a_function_that_can_do_without_an_attempt() -> None:
    with Semel("memory://") as semel, pytest.raises(UsageError, match=r"Write attempt: Attempt \| None"):
        semel.once(key="order", store_down="run")(last)


def test_without_a_record_there_is_no_attempt_not_even_that_of_the_handler_around(tmp_path: Path) -> None:
    with Semel(tmp_path / "missing" / "records.db") as down, Semel("memory://") as semel:

        @down.once(key="order", store_down="run")
        def charge(order: str, attempt: Attempt | None = None) -> bool:
            return attempt is None

        assert semel.run("k", lambda: charge("o-1"), operation="outer", fingerprint=None).value


def test_frameworks_see_the_parameters_that_callers_give() -> None:
    with Semel("memory://") as semel:
        assert list(inspect.signature(semel.once(key="order")(between)).parameters) == ["order", "amount"]


def takes_it(attempt: Attempt) -> int:
    return attempt.number


def takes_it_with_more(order: str, attempt: Attempt) -> tuple[str, int]:
    return order, attempt.number


class TakesIt:
    def __call__(self, attempt: Attempt) -> int:
        return attempt.number


@pytest.mark.parametrize(
    ("handler", "value"),
    [
        (takes_it, 1),
        (functools.partial(takes_it_with_more, "o-1"), ("o-1", 1)),
        (TakesIt(), 1),
        (lambda: 1, 1),
    ],
    ids=["function", "partial", "object", "lambda without"],
)
def test_a_handler_of_run_may_ask_for_its_attempt(handler: Any, value: Any) -> None:
    with Semel("memory://") as semel:
        assert semel.run("o-1", handler, operation="pay", fingerprint=None).value == value


def test_an_awaited_handler_of_run_may_ask_for_its_attempt() -> None:
    async def handler(attempt: AsyncAttempt) -> int:
        return attempt.number

    async def play() -> int:
        async with AsyncSemel("memory://") as semel:
            asked: Any = handler
            value: int = (await semel.run("o-1", asked, operation="pay", fingerprint=None)).value
            return value

    assert asyncio.run(play()) == 1


def test_a_handler_in_a_transaction_may_ask_for_its_attempt(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with Semel(path) as semel:
        semel.sweep()
        connection = sqlite3.connect(path)
        handler: Any = takes_it
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            value = semel.within(connection).run("o-1", handler, operation="pay", fingerprint=None).value
        connection.close()
    assert value == 1


def test_a_handler_of_run_that_asks_for_the_other_kind_is_refused_before_anything_runs() -> None:
    async def handler(attempt: Attempt) -> int:
        return attempt.number

    async def play() -> None:
        async with AsyncSemel("memory://") as semel:
            asked: Any = handler
            with pytest.raises(UsageError, match="Write attempt: AsyncAttempt"):
                await semel.run("o-1", asked, operation="pay", fingerprint=None)
            assert [record async for record in semel.records()] == []

    asyncio.run(play())


def test_a_decorated_function_as_handler_of_run_is_called_without() -> None:
    with Semel("memory://") as semel:
        charge: Any = semel.once(key="order")(last)
        handler = functools.partial(charge, "o-1")
        assert semel.run("k", handler, operation="outer", fingerprint=None).value == 1


def test_a_step_is_called_with_what_it_is_given() -> None:
    with Semel("memory://") as semel:

        def pay(attempt: Attempt) -> tuple[str, int]:
            return attempt.step("reserve", takes_it_with_more, "o-1", attempt)

        handler: Any = pay
        assert semel.run("o-1", handler, operation="pay", fingerprint=None).value == ("o-1", 1)
