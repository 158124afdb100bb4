"""Results that were stored under another type are brought to the declared one by `upgrade=`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from semel import AsyncSemel, Happened, Semel
from semel.errors import RecordUnreadable, UsageError
from semel.stores.memory import MemoryStore


@dataclass
class Money:
    cents: int
    currency: str


Upgrade = Callable[[Any], Any]
Ask = Callable[[MemoryStore, Upgrade], Any]


def ask(store: MemoryStore, upgrade: Upgrade) -> Any:
    @Semel(store).once(key="order", operation="price", upgrade=upgrade)
    def price(order: str) -> Money:
        return pytest.fail("it ran again")

    return price("o-1")


def ask_async(store: MemoryStore, upgrade: Upgrade) -> Any:
    async def work() -> Any:
        async with AsyncSemel(store) as semel:

            @semel.once(key="order", operation="price", upgrade=upgrade)
            async def price(order: str) -> Money:
                return pytest.fail("it ran again")

            return await price("o-1")

    return asyncio.run(work())


BOTH = pytest.mark.parametrize("asking", [ask, ask_async], ids=["def", "async def"])


def stored(value: Any, declared: Any) -> MemoryStore:
    """A store in which a release that declared another type left its result."""
    store = MemoryStore()

    def price(order: str) -> Any:
        return value

    price.__annotations__["return"] = declared
    Semel(store).once(key="order", operation="price")(price)("o-1")
    return store


@BOTH
def test_an_old_result_is_brought_to_the_new_shape(asking: Ask) -> None:
    assert asking(stored(1250, int), lambda old: Money(old, "EUR")) == Money(1250, "EUR")


@BOTH
def test_the_upgrade_may_give_plain_data(asking: Ask) -> None:
    store = stored({"cents": 7}, dict[str, int])
    assert asking(store, lambda old: {**old, "currency": "EUR"}) == Money(7, "EUR")


@BOTH
def test_a_result_that_fits_is_not_upgraded(asking: Ask) -> None:
    store = stored(Money(7, "USD"), Money)
    assert asking(store, lambda _: pytest.fail("it was asked")) == Money(7, "USD")


def read_cents(old: Any) -> Any:
    return old["cents"]


def give_text(_old: Any) -> Any:
    return "nothing that fits"


FAILING = {
    "it raises": (read_cents, "upgrade=read_cents raised TypeError", TypeError),
    "it does not fit either": (
        give_text,
        "what upgrade=give_text gave does not fit the declared",
        msgspec.ValidationError,
    ),
}


@BOTH
@pytest.mark.parametrize(("upgrade", "said", "cause"), FAILING.values(), ids=FAILING)
def test_an_upgrade_that_fails_is_named_and_runs_nothing(
    asking: Ask, upgrade: Upgrade, said: str, cause: type[Exception]
) -> None:
    store = stored(1250, int)
    with pytest.raises(RecordUnreadable, match=said) as raised:
        asking(store, upgrade)
    assert "othing ran" in str(raised.value)
    assert isinstance(raised.value.__cause__, cause), "the error of the function itself is lost"
    assert asking(store, lambda old: Money(old, "EUR")) == Money(1250, "EUR")


def test_a_value_that_somebody_stated_is_upgraded_too() -> None:
    store = MemoryStore()
    with Semel(store) as semel:

        @semel.once(key="order", operation="price", in_doubt="hold")
        def price(order: str) -> int:
            message = "no answer"
            raise ValueError(message)

        with pytest.raises(ValueError, match="no answer"):
            price("o-1")
        semel.resolve("o-1", Happened(1250), operation="price", reason="seen in the ledger")
    assert ask(store, lambda old: Money(old, "EUR")) == Money(1250, "EUR")


def test_an_upgrade_without_a_declared_result_is_refused() -> None:
    with pytest.raises(UsageError, match="Annotate what the function returns"):
        Semel("memory://").once(key="order", operation="price", upgrade=lambda old: old)(lambda order: order)


def test_an_upgrade_that_has_to_be_awaited_is_refused() -> None:
    async def upgrade(old: Any) -> Any:
        return old

    with pytest.raises(UsageError, match="plain function"):

        @Semel("memory://").once(key="order", upgrade=upgrade)
        def price(order: str) -> int:
            return 7
