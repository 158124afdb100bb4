"""What `once` refuses at decoration, in both colours: everything that could not be kept later."""

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from semel import AsyncSemel, Policy, Semel
from semel.errors import PolicyInvalid, UsageError
from semel.stores.memory import MemoryStore

Decorator = Callable[[Callable[..., Any]], Any]


class Session:
    """Something that no fingerprint can be taken of."""


def once(colour: str, **rules: Any) -> Decorator:
    engine = Semel(MemoryStore()) if colour == "sync" else AsyncSemel(MemoryStore())
    decorate: Decorator = engine.once(**{"key": "order", **rules})
    return decorate


def coloured(colour: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function, or the same as a coroutine function."""
    if colour == "sync":
        return function

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    awaited.__annotations__ = function.__annotations__
    awaited.__qualname__ = function.__qualname__
    awaited.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return awaited


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def charge(order: str, amount: int = 1) -> int:
    return amount


async def acharge(order: str, amount: int = 1) -> int:
    return amount


def test_a_coroutine_function_is_refused_by_semel() -> None:
    with pytest.raises(UsageError, match="AsyncSemel"):
        once("sync")(acharge)


def test_a_plain_function_is_refused_by_async_semel() -> None:
    with pytest.raises(UsageError, match="Semel"):
        once("async")(charge)


def test_running_a_coroutine_function_is_refused_by_semel() -> None:
    semel = Semel(MemoryStore())
    with pytest.raises(UsageError, match="nothing ran"):
        semel.run("k", acharge, operation="charge", fingerprint=None)  # type: ignore[arg-type]  # the mistake this is about
    assert list(semel.records()) == []


def test_running_a_plain_function_is_refused_by_async_semel() -> None:
    semel = AsyncSemel(MemoryStore())
    with pytest.raises(UsageError, match="nothing ran"):
        asyncio.run(semel.run("k", charge, operation="charge", fingerprint=None))  # type: ignore[arg-type]  # the mistake this is about


def test_a_colour_that_shows_only_in_the_result_is_not_said_to_have_done_nothing() -> None:
    with pytest.raises(UsageError, match="was called and gave a coroutine"):
        Semel(MemoryStore()).run("k", lambda: acharge("o-1"), operation="charge", fingerprint=None)
    with pytest.raises(UsageError, match="was called and gave a int"):
        asyncio.run(AsyncSemel(MemoryStore()).run("k", lambda: charge("o-1"), operation="charge", fingerprint=None))  # type: ignore[arg-type,return-value]


def test_a_colour_that_shows_only_in_the_result_is_told_without_the_arguments() -> None:
    def pay(order: str, card: str) -> Any:
        return acharge(f"{order} {card}")

    semel = Semel(MemoryStore())
    with pytest.raises(UsageError, match=r"pay was called and gave a coroutine") as error:
        semel.once(key="order", operation="pay")(pay)("o-1", "4111")
    assert "4111" not in error.value.message
    record = semel.read("o-1", operation="pay")
    assert record is not None
    assert record.error is not None
    assert "4111" not in record.error.message


def test_a_partial_of_the_wrong_colour_is_refused() -> None:
    with pytest.raises(UsageError):
        once("sync", operation="charge")(functools.partial(acharge, amount=2))
    with pytest.raises(UsageError):
        once("async", operation="charge")(functools.partial(charge, amount=2))


def test_an_object_of_the_wrong_colour_is_refused() -> None:
    class Charge:
        async def __call__(self, order: str) -> int:
            return 1

    with pytest.raises(UsageError):
        once("sync", operation="charge")(Charge())


def test_a_generator_is_refused_by_semel() -> None:
    def lines(order: str) -> Iterator[int]:
        yield 1

    with pytest.raises(UsageError):
        once("sync")(lines)


def test_a_generator_is_refused_by_async_semel() -> None:
    async def lines(order: str) -> Any:
        yield 1

    with pytest.raises(UsageError):
        once("async")(lines)


@pytest.mark.parametrize(
    "rules",
    [
        {"key": "orders"},
        {"key": ("order", "nothing")},
        {"key": "nothing.id"},
        {"scope": "tenant"},
        {"scope": ("tenant",)},
        {"ignore": ("session",)},
    ],
    ids=str,
)
def test_a_name_that_is_no_parameter_is_refused(colour: str, rules: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="nothing ran"):
        once(colour, **rules)(coloured(colour, charge))


@pytest.mark.parametrize("key", ["", (), ("order", ""), 7, None, ("order", 7)], ids=repr)
def test_a_key_rule_of_another_kind_is_refused(colour: str, key: Any) -> None:
    with pytest.raises(UsageError, match="nothing ran"):
        once(colour, key=key)(coloured(colour, charge))


def test_an_argument_that_cannot_be_encoded_is_refused(colour: str) -> None:
    def pay(order: str, session: Session) -> int:
        return 1

    with pytest.raises(UsageError, match=r"ignore=\('session',\)"):
        once(colour)(coloured(colour, pay))


def test_an_argument_that_cannot_be_encoded_may_be_ignored(colour: str) -> None:
    def pay(order: str, session: Session) -> int:
        return 1

    once(colour, ignore=("session",))(coloured(colour, pay))


def test_an_argument_that_cannot_be_encoded_inside_a_container_is_refused(colour: str) -> None:
    def pay(order: str, sessions: dict[str, list[Session]]) -> int:
        return 1

    with pytest.raises(UsageError, match="sessions"):
        once(colour)(coloured(colour, pay))


@pytest.mark.parametrize("result", [Session, threading.Lock, Callable[[], int], Iterator[int]], ids=str)
def test_a_result_that_cannot_be_replayed_is_refused(colour: str, result: Any) -> None:
    def pay(order: str) -> Any:
        return 1

    pay.__annotations__["return"] = result
    with pytest.raises(UsageError, match="cannot be replayed"):
        once(colour)(coloured(colour, pay))


def test_a_result_annotation_that_cannot_be_found_is_refused() -> None:
    def pay(order: str) -> Any:
        return 1

    pay.__annotations__["return"] = "Nowhere"
    with pytest.raises(UsageError, match="Nowhere"):
        once("sync")(pay)


def test_a_lambda_needs_an_operation() -> None:
    with pytest.raises(UsageError, match="operation="):
        once("sync")(lambda order: order)


def test_a_lambda_with_an_operation_is_accepted() -> None:
    assert once("sync", operation="echo")(lambda order: order)("o-1") == "o-1"


def test_a_partial_needs_an_operation() -> None:
    with pytest.raises(UsageError, match="operation="):
        once("sync")(functools.partial(charge, amount=2))


def test_a_partial_with_an_operation_is_accepted() -> None:
    assert once("sync", operation="charge")(functools.partial(charge, amount=2))("o-1") == 2


def test_the_operation_is_named_after_the_function_unless_it_is_given() -> None:
    assert once("sync")(charge)._rules.operation == f"{__name__}.charge"
    assert once("sync", operation="pay")(charge)._rules.operation == "pay"


def test_an_unknown_policy_field_is_refused(colour: str) -> None:
    with pytest.raises(PolicyInvalid, match="keep_fro"):
        once(colour, keep_fro=1)


def test_a_policy_field_given_directly_changes_only_that_field() -> None:
    policy = Policy(max_attempts=3)
    assert once("sync", policy=policy, max_result=10)(charge)._rules.policy == policy.replace(max_result=10)


def test_a_decorated_function_keeps_its_face() -> None:
    decorated = once("sync")(charge)
    assert (decorated.__name__, decorated.__wrapped__) == ("charge", charge)
