"""Functions that were changed while records of them are kept: what stays the same request, and what does not."""

import dataclasses
import itertools
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest
from pydantic.dataclasses import dataclass as pydantic_dataclass

from semel import AsyncSemel, Key, Semel
from semel.core.fingerprint import encode_canonical, encode_without_defaults
from semel.errors import KeyReused, UsageError
from semel.stores.memory import MemoryStore


def decorated(store: MemoryStore, function: Callable[..., Any], **rules: Any) -> Any:
    """The function as one release deploys it: a process of its own, on the records of all."""
    return Semel(store).once(**{"key": "order", "operation": "charge", **rules})(function)


def plain(order: str, amount: int) -> str:
    return "before"


def with_default(order: str, amount: int, currency: str = "EUR") -> str:
    return "since"


def with_keyword(order: str, amount: int, *, notify: bool = True, tags: tuple[str, ...] = ()) -> str:
    return "since"


def in_between(order: str, currency: str = "EUR", amount: int = 0) -> str:
    return "since"


def with_any_more(order: str, amount: int, *more: int, **named: int) -> str:
    return "since"


_UNSET: Any = object()


def with_sentinel(order: str, amount: int, note=_UNSET) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
    return "since"


def with_mutable(order: str, amount: int, lines: list[int] = [1]) -> str:  # noqa: B006 - that it is mutable is the point
    return "since"


HARMLESS: dict[str, Callable[..., str]] = {
    "a parameter with a default": with_default,
    "keywords with defaults": with_keyword,
    "one in between": in_between,
    "variadic ones": with_any_more,
    "a default without an encoding": with_sentinel,
    "a mutable default": with_mutable,
}


@pytest.mark.parametrize("changed", HARMLESS.values(), ids=HARMLESS.keys())
@pytest.mark.parametrize("direction", ["added", "taken away"])
def test_a_parameter_with_a_default_may_come_and_go(changed: Callable[..., str], direction: str) -> None:
    store = MemoryStore()
    first, second = (plain, changed) if direction == "added" else (changed, plain)
    value = decorated(store, first)("o-1", amount=5)
    result = decorated(store, second).result("o-1", amount=5)
    assert (result.value, result.replayed) == (value, True)


def test_an_argument_that_equals_its_default_is_no_other_request_than_none() -> None:
    charge = decorated(MemoryStore(), with_default)
    charge("o-1", 5)
    assert charge.result("o-1", 5, "EUR").replayed


@pytest.mark.parametrize("given", [1500.0, Decimal("1500.00"), 1500])
def test_a_default_is_compared_by_value_as_all_arguments_are(given: Any) -> None:
    def pay(order: str, amount: Decimal | float = 1500) -> str:
        return "paid"

    charge = decorated(MemoryStore(), pay)
    charge("o-1")
    assert charge.result("o-1", given).replayed


def test_a_default_that_python_finds_equal_and_the_fingerprint_does_not_is_compared() -> None:
    def pay(order: str, urgent: Any = True) -> str:
        return "paid"

    charge = decorated(MemoryStore(), pay)
    charge("o-1", True)
    with pytest.raises(KeyReused):
        charge("o-1", 1)


def test_an_argument_other_than_the_default_is_another_request() -> None:
    store = MemoryStore()
    decorated(store, plain)("o-1", 5)
    with pytest.raises(KeyReused):
        decorated(store, with_default)("o-1", 5, "USD")


def renamed(order: str, cents: int) -> str:
    return "since"


def with_required(order: str, amount: int, currency: str) -> str:
    return "since"


@pytest.mark.parametrize(
    ("changed", "arguments"), [(renamed, ("o-1", 5)), (with_required, ("o-1", 5, "EUR"))], ids=["renamed", "required"]
)
def test_a_change_that_alters_what_is_compared_is_refused_and_says_so(
    changed: Callable[..., str], arguments: tuple[Any, ...]
) -> None:
    store = MemoryStore()
    decorated(store, plain)("o-1", 5)
    with pytest.raises(KeyReused, match=r"signature.*nothing ran.*new operation"):
        decorated(store, changed)(*arguments)


def with_another_default(order: str, amount: int, currency: str = "USD") -> str:
    return "since"


def test_a_changed_default_is_not_seen_by_the_fingerprint() -> None:
    store = MemoryStore()
    decorated(store, with_default)("o-1", 5)
    changed = decorated(store, with_another_default)
    assert changed.result("o-1", 5).replayed, "a call that leaves the argument out is the same request"
    with pytest.raises(KeyReused):
        changed("o-1", 5, "EUR")


def test_a_changed_default_takes_effect_under_a_new_operation() -> None:
    store = MemoryStore()
    decorated(store, with_default)("o-1", 5)
    result = decorated(store, with_another_default, operation="charge.2").result("o-1", 5)
    assert (result.value, result.replayed) == ("since", False)


def _today() -> date:
    return date(2026, 3, 1)


@dataclasses.dataclass
class Address:
    city: str = "Bern"
    lines: list[str] = dataclasses.field(default_factory=list)


Fields = list[tuple[str, Any, Any]]
NEW_FIELDS: Fields = [
    ("note", str, ""),
    ("tip", Decimal | None, None),
    ("lines", list[int], list),
    ("tags", dict[str, str], dict),
    ("address", Address, Address),
]


def _dataclass(fields: Fields) -> Any:
    made = [
        (name, kind, dataclasses.field(default_factory=default) if callable(default) else default)
        for name, kind, default in fields
    ]
    return dataclasses.make_dataclass("Order", [("amount", int), *[(n, k, _as_field(d)) for n, k, d in made]])


def _as_field(default: Any) -> Any:
    return default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)


def _struct(fields: Fields) -> Any:
    made = [
        (name, kind, msgspec.field(default_factory=default) if callable(default) else default)
        for name, kind, default in fields
    ]
    return msgspec.defstruct("Order", [("amount", int), *made])


def _model(fields: Fields) -> Any:
    made: dict[str, Any] = {
        name: (kind, pydantic.Field(default_factory=default) if callable(default) else default)
        for name, kind, default in fields
    }
    return pydantic.create_model("Order", amount=(int, ...), **made)


def _pydantic_dataclass(fields: Fields) -> Any:
    namespace: dict[str, Any] = {"__annotations__": {"amount": int, **{name: kind for name, kind, _ in fields}}}
    for name, _, default in fields:
        namespace[name] = pydantic.Field(default_factory=default) if callable(default) else default
    return pydantic_dataclass(type("Order", (), namespace))


MODELS: dict[str, Callable[[Fields], Any]] = {
    "dataclass": _dataclass,
    "Struct": _struct,
    "pydantic model": _model,
    "pydantic dataclass": _pydantic_dataclass,
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def taking_orders(order: str, what: Any) -> str:
    return "done"


@each_model
@pytest.mark.parametrize("field", NEW_FIELDS, ids=lambda field: field[0])
@pytest.mark.parametrize("place", [lambda order: order, lambda order: {"all": [order]}], ids=["argument", "inside"])
@pytest.mark.parametrize("direction", ["added", "taken away"])
def test_a_field_with_a_default_may_come_and_go(
    model: Callable[[Fields], Any], field: Any, place: Callable[[Any], Any], direction: str
) -> None:
    before, since = model([]), model([field])
    first, second = (before, since) if direction == "added" else (since, before)
    charge = decorated(MemoryStore(), taking_orders)
    charge("o-1", place(first(amount=1)))
    assert charge.result("o-1", place(second(amount=1))).replayed


@each_model
@pytest.mark.parametrize(
    "given", [{"note": "x"}, {"tip": Decimal(1)}, {"lines": [1]}, {"address": Address("Basel")}], ids=str
)
def test_a_field_other_than_its_default_is_another_request(
    model: Callable[[Fields], Any], given: dict[str, Any]
) -> None:
    order = model(NEW_FIELDS)
    charge = decorated(MemoryStore(), taking_orders)
    charge("o-1", order(amount=1))
    with pytest.raises(KeyReused):
        charge("o-1", order(amount=1, **given))


@each_model
@pytest.mark.parametrize("default", [_today, lambda: [1], itertools.count().__next__], ids=["date", "list", "count"])
def test_a_field_whose_default_a_function_makes_is_always_compared(
    model: Callable[[Fields], Any], default: Callable[[], Any]
) -> None:
    order = model([("made", Any, default)])
    charge = decorated(MemoryStore(), taking_orders)
    charge("o-1", order(amount=1, made=date(2026, 3, 1)))
    with pytest.raises(KeyReused):
        charge("o-1", order(amount=1, made=date(2026, 3, 2)))
    with pytest.raises(KeyReused):
        charge("o-1", model([])(amount=1))


def test_what_a_model_was_given_beyond_its_fields_is_always_compared() -> None:
    class Open(pydantic.BaseModel, extra="allow"):
        note: str = ""

    charge = decorated(MemoryStore(), taking_orders)
    charge("o-1", Open())
    for other in (Open(tip=1), Open(note="", tip=None)):  # type: ignore[call-arg]  # what is not declared is the point
        with pytest.raises(KeyReused):
            charge("o-1", other)


def test_a_key_is_made_of_all_fields() -> None:
    same = Key.of((Address("Bern", []),), operation="visit")
    assert Key.of((Address(),), operation="visit") == same
    assert b"Bern" in encode_canonical(Address(), exact=True)
    assert b"Bern" not in encode_without_defaults(Address())


@dataclasses.dataclass
class Order:
    id: str
    amount: int
    sent: datetime = datetime(2026, 3, 1, tzinfo=UTC)


def pay(order: str, amount: int, currency: str = "EUR", session: Any = None) -> str:
    return "paid"


@pytest.mark.parametrize(
    "rule", ["amount", ("amount",), lambda order, amount, **_: amount], ids=["name", "names", "callable"]
)
def test_what_fingerprint_does_not_name_is_not_compared(rule: Any) -> None:
    charge = decorated(MemoryStore(), pay, fingerprint=rule)
    charge("o-1", 5, currency="EUR", session=object())
    assert charge.result("o-1", 5, currency="USD", session=object()).replayed
    with pytest.raises(KeyReused):
        charge("o-1", 6)


def test_a_named_argument_that_equals_its_default_stays_out_too() -> None:
    store = MemoryStore()
    decorated(store, pay, fingerprint=("amount",))("o-1", 5)
    assert decorated(store, pay, fingerprint=("amount", "currency")).result("o-1", 5, "EUR").replayed


def test_names_that_are_all_that_was_compared_change_nothing() -> None:
    store = MemoryStore()
    decorated(store, pay)("o-1", 5, "USD")
    assert decorated(store, pay, fingerprint=("currency", "amount")).result("o-1", 5, "USD").replayed


def test_a_path_leads_to_what_is_compared() -> None:
    def place(order: Order) -> str:
        return "placed"

    charge = decorated(MemoryStore(), place, key="order.id", fingerprint="order.amount")
    charge(Order("o-1", 5))
    assert charge.result(Order("o-1", 5, datetime(2027, 1, 1, tzinfo=UTC))).replayed
    with pytest.raises(KeyReused):
        charge(Order("o-1", 6))


def test_a_path_that_leads_nowhere_is_a_mistake_of_the_caller() -> None:
    charge = decorated(MemoryStore(), taking_orders, fingerprint="what.amount")
    with pytest.raises(UsageError, match=r"leads nowhere.*nothing ran") as refused:
        charge("o-1", {})
    assert type(refused.value) is UsageError


def test_without_any_name_nothing_is_compared() -> None:
    charge = decorated(MemoryStore(), pay, fingerprint=())
    charge("o-1", 5)
    assert charge.result("o-1", 6).replayed


@pytest.mark.parametrize("engine", [Semel, AsyncSemel])
@pytest.mark.parametrize(
    "rules",
    [
        {"fingerprint": "cents"},
        {"fingerprint": ("amount", "")},
        {"fingerprint": 5},
        {"fingerprint": ["amount"]},
        {"fingerprint": "amount", "ignore": ("session",)},
    ],
    ids=str,
)
def test_a_fingerprint_rule_that_cannot_be_kept_is_refused_at_decoration(engine: Any, rules: dict[str, Any]) -> None:
    async def apay(order: str, amount: int, session: Any = None) -> str:
        return "paid"

    with pytest.raises(UsageError, match="nothing ran"):
        engine(MemoryStore()).once(key="order", operation="pay", **rules)(pay if engine is Semel else apay)
