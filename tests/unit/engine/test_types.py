"""What type checkers see of decorated functions and methods. mypy reads `assert_type`; pytest runs the same lines."""

import asyncio
from datetime import timedelta
from typing import Any, assert_type, get_type_hints

import pytest

from semel import AsyncSemel, Policy, Semel
from semel.core.policy import PolicyFields
from semel.engine.call_flow import Result
from semel.errors import PolicyInvalid
from semel.validation import Duration

semel = Semel("memory://")
async_semel = AsyncSemel("memory://")


@semel.once(key="order", operation="charge", keep_for=timedelta(days=1), in_doubt="hold")
def charge(order: str, amount: int = 1) -> int:
    """Charge an order."""
    return amount


@async_semel.once(key="order", operation="charge", max_attempts=3)
async def acharge(order: str, amount: int = 1) -> int:
    """Charge an order."""
    return amount


class Shop:
    """A service with decorated methods."""

    @semel.once(key="order", operation="sell", ignore=("self",))
    def sell(self, order: str, amount: int = 1) -> int:
        """Sell."""
        return amount

    @async_semel.once(key="order", operation="sell", ignore=("self",))
    async def asell(self, order: str, amount: int = 1) -> int:
        """Sell."""
        return amount


def test_a_decorated_function_keeps_its_types() -> None:
    assert_type(charge("o-1", 2), int)
    assert_type(charge.result("o-1", amount=2), Result[int])
    with pytest.raises(TypeError):
        charge("o-2", price=2)  # type: ignore[call-arg]  # the mistake that a type checker finds


def test_a_decorated_method_keeps_its_types() -> None:
    shop = Shop()
    assert_type(shop.sell("o-1", 2), int)
    assert_type(shop.sell.result("o-1", amount=2), Result[int])
    assert_type(Shop.sell(shop, "o-1", 2), int)
    with pytest.raises(TypeError):
        shop.sell("o-2", price=2)  # type: ignore[call-arg]  # the mistake that a type checker finds


def test_an_awaited_function_and_method_keep_their_types() -> None:
    async def main() -> None:
        shop = Shop()
        assert_type(await acharge("o-1", 2), int)
        assert_type(await acharge.result("o-1", amount=2), Result[int])
        assert_type(await shop.asell("o-1", 2), int)
        assert_type(await shop.asell.result("o-1", amount=2), Result[int])
        assert_type(await Shop.asell(shop, "o-1", 2), int)

    asyncio.run(main())


@pytest.mark.parametrize("method", [Shop().sell, Shop().asell])
def test_a_bound_method_keeps_its_face(method: Any) -> None:
    assert (method.__name__, method.__doc__, isinstance(method.__self__, Shop)) == (
        method.__func__.__name__,
        "Sell.",
        True,
    )


def test_a_policy_field_of_the_wrong_type_is_found_by_type_checkers() -> None:
    with pytest.raises(PolicyInvalid):
        semel.once(key="order", keep_for="5")  # type: ignore[arg-type]  # a duration is a timedelta, or seconds
    with pytest.raises(PolicyInvalid):
        semel.once(key="order", keep_fro=timedelta(1))  # type: ignore[call-arg]  # there is no such field
    with pytest.raises(PolicyInvalid):
        async_semel.once(key="order", in_doubt="maybe")  # type: ignore[arg-type]  # no such word


def test_the_fields_that_may_be_given_directly_are_those_of_a_policy() -> None:
    kept = {name: Duration if kind is timedelta else kind for name, kind in get_type_hints(Policy).items()}
    assert get_type_hints(PolicyFields) == kept


@pytest.mark.parametrize("engine", [Semel, AsyncSemel])
def test_the_docstring_of_once_tells_of_every_argument(engine: Any) -> None:
    told = engine.once.__doc__.split("Args:")[1].split("Raises:")[0]
    missing = [
        name for name in engine.once.__annotations__ if name not in ("return", "changes") and f"{name}:" not in told
    ]
    assert missing == []
