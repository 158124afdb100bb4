"""From the arguments of a call to its key and its fingerprint."""

from dataclasses import dataclass
from typing import Any

import pytest

from semel import SHARED, Semel
from semel.core.key import Key
from semel.errors import KeyMissing, KeyReused, UsageError
from semel.stores.memory import MemoryStore


@dataclass(frozen=True)
class Customer:
    id: int
    name: str


@dataclass(frozen=True)
class Order:
    id: str
    customer: Customer
    note: str = ""


@pytest.fixture
def semel() -> Semel:
    return Semel(MemoryStore())


def test_the_key_is_the_argument_named(semel: Semel) -> None:
    @semel.once(key="order", operation="charge")
    def charge(order: str) -> str:
        return order

    assert charge("o-1") == "o-1"
    assert semel.read("o-1", operation="charge") is not None


def test_a_tuple_of_names_is_a_key_of_parts(semel: Semel) -> None:
    @semel.once(key=("tenant", "order"), operation="charge")
    def charge(tenant: str, order: int) -> int:
        return order

    charge("acme", 1)
    assert semel.read(("acme", 1), operation="charge") is not None


def test_parts_in_another_order_are_another_key(semel: Semel) -> None:
    @semel.once(key=("a", "b"))
    def charge(a: str, b: str) -> str:
        return a + b

    assert (charge("x", "y"), charge("y", "x")) == ("xy", "yx")


def test_a_dotted_path_reaches_into_objects(semel: Semel) -> None:
    @semel.once(key="order.customer.id", operation="greet")
    def greet(order: Order) -> str:
        return order.customer.name

    greet(Order("o-1", Customer(7, "Ada")))
    assert semel.read((7,), operation="greet") is not None


def test_a_dotted_path_reaches_into_mappings(semel: Semel) -> None:
    @semel.once(key="event.meta.id", operation="handle")
    def handle(event: dict[str, Any]) -> int:
        return 1

    handle({"meta": {"id": "e-1"}})
    assert semel.read("e-1", operation="handle") is not None


def test_what_a_dotted_path_leaves_is_the_fingerprint(semel: Semel) -> None:
    @semel.once(key="order.id")
    def charge(order: Order) -> int:
        return 1

    charge(Order("o-1", Customer(7, "Ada"), note="first"))
    with pytest.raises(KeyReused):
        charge(Order("o-1", Customer(7, "Ada"), note="second"))


def test_a_callable_gives_the_key(semel: Semel) -> None:
    @semel.once(key=lambda order, amount: f"{order}/{amount}", operation="charge")
    def charge(order: str, amount: int) -> int:
        return amount

    assert (charge("o-1", 1), charge("o-1", amount=2)) == (1, 2)
    assert semel.read("o-1/2", operation="charge") is not None


def test_a_callable_leaves_every_argument_in_the_fingerprint(semel: Semel) -> None:
    @semel.once(key=lambda order, amount: order)
    def charge(order: str, amount: int) -> int:
        return amount

    charge("o-1", 1)
    with pytest.raises(KeyReused):
        charge("o-1", 2)


def test_an_argument_of_another_type_than_text_is_a_key_of_one_part(semel: Semel) -> None:
    @semel.once(key="order", operation="charge")
    def charge(order: Any) -> str:
        return repr(order)

    assert (charge(1), charge("1"), charge(True)) == ("1", "'1'", "True")


def test_the_scope_is_taken_from_its_argument(semel: Semel) -> None:
    @semel.once(key="order", scope="tenant", operation="charge")
    def charge(tenant: str, order: str) -> str:
        return tenant

    assert (charge("acme", "o-1"), charge("zenith", "o-1")) == ("acme", "zenith")
    assert semel.read("o-1", operation="charge", scope="acme") is not None


def test_the_scope_is_shared_by_default(semel: Semel) -> None:
    @semel.once(key="order", operation="charge")
    def charge(order: str) -> int:
        return 1

    charge("o-1")
    assert semel.read("o-1", operation="charge", scope=SHARED) is not None


def test_a_scope_may_be_a_callable(semel: Semel) -> None:
    @semel.once(key="order", scope=lambda tenant, order: tenant.lower(), operation="charge")
    def charge(tenant: str, order: str) -> int:
        return 1

    charge("ACME", "o-1")
    assert semel.read("o-1", operation="charge", scope="acme") is not None


@pytest.mark.parametrize(("tenant", "order"), [(None, "o-1"), ("acme", None)])
def test_a_key_or_scope_of_none_is_missing(semel: Semel, tenant: Any, order: Any) -> None:
    ran: list[str] = []

    @semel.once(key="order", scope="tenant")
    def charge(tenant: str, order: str) -> None:
        ran.append(order)

    with pytest.raises(KeyMissing):
        charge(tenant, order)
    assert ran == []


def test_a_method_is_called_on_its_object(semel: Semel) -> None:
    class Till:
        def __init__(self, name: str) -> None:
            self.name = name

        @semel.once(key="order", ignore=("self",))
        def charge(self, order: str) -> str:
            return f"{self.name} charged {order}"

    till = Till("till 1")
    assert till.charge("o-1") == "till 1 charged o-1"
    assert till.charge.result("o-1").replayed


def test_a_method_has_to_ignore_its_object(semel: Semel) -> None:
    with pytest.raises(UsageError, match=r"ignore=\('self',\)"):

        class Till:
            @semel.once(key="order")
            def charge(self, order: str) -> str:
                return order


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("o-1", 5), {}),
        (("o-1", 5, "EUR"), {}),
        (("o-1",), {"amount": 5}),
        ((), {"order": "o-1", "amount": 5}),
        ((), {"currency": "EUR", "amount": 5, "order": "o-1"}),
    ],
    ids=str,
)
def test_one_request_has_one_fingerprint_however_it_is_written(
    semel: Semel, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    @semel.once(key="order")
    def charge(order: str, amount: int, currency: str = "EUR") -> int:
        return amount

    charge("o-1", 5)
    assert charge.result(*args, **kwargs).replayed


def test_variadic_arguments_are_part_of_the_fingerprint(semel: Semel) -> None:
    @semel.once(key="order")
    def charge(order: str, *lines: int, **notes: str) -> int:
        return sum(lines)

    charge("o-1", 1, 2, colour="red")
    assert charge.result("o-1", 1, 2, colour="red").replayed
    with pytest.raises(KeyReused):
        charge("o-1", 1, 3, colour="red")


def test_keyword_only_arguments_are_part_of_the_fingerprint(semel: Semel) -> None:
    @semel.once(key="order")
    def charge(order: str, *, amount: int = 1) -> int:
        return amount

    charge("o-1")
    assert charge.result("o-1", amount=1).replayed
    with pytest.raises(KeyReused):
        charge("o-1", amount=2)


def test_an_ignored_argument_is_not_part_of_the_fingerprint(semel: Semel) -> None:
    @semel.once(key="order", ignore=("trace",))
    def charge(order: str, trace: object) -> int:
        return 1

    charge("o-1", object())
    assert charge.result("o-1", object()).replayed


def test_wrong_arguments_are_a_type_error_as_always(semel: Semel) -> None:
    @semel.once(key="order")
    def charge(order: str) -> int:
        return 1

    with pytest.raises(TypeError):
        charge("o-1", 2, 3)  # type: ignore[call-arg]  # the mistake this is about


def test_about_may_be_worked_out_from_the_arguments(semel: Semel) -> None:
    @semel.once(key="order", operation="charge", about=lambda order: {"business_key": order.upper()})
    def charge(order: str) -> int:
        return 1

    charge("o-1")
    assert [record.key.value for record in semel.records(business_key="O-1")] == ["o-1"]


def test_run_takes_the_key_of_a_record(semel: Semel) -> None:
    semel.run("o-1", lambda: 1, operation="charge", fingerprint=None, scope="acme")
    key = Key.of("o-1", operation="charge", scope="acme")
    assert semel.run(key, lambda: 2, operation="charge", fingerprint=None).replayed
