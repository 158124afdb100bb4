"""Pydantic models as results: whatever their aliases and validators do, a replay is equal or there is none."""

from datetime import datetime
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from semel.core import codec
from semel.core.codec import same
from semel.errors import ResultNotKept
from tests.unit.core.effort import fewer
from tests.unit.core.results import Colour, Left, Level, Line, Pair, lines, moments, pairs
from tests.unit.core.test_codec import replayed
from tests.unit.core.values import text

T = TypeVar("T")


class Customer(BaseModel):
    id: UUID
    name: str = ""


class Payment(BaseModel):
    amount: Decimal
    at: datetime
    raw: bytes
    colour: Colour
    level: Level
    seen: set[int]
    pair: Pair
    two: tuple[int, str]
    customer: Customer
    others: list[Customer] = []
    lines: dict[str, Line] = {}
    parent: "Payment | None" = None
    ratio: float = 0.0


class Aliased(BaseModel):
    total: int = Field(alias="grandTotal")
    shown: int = Field(default=0, validation_alias="in", serialization_alias="out")


class Generated(BaseModel):
    model_config = ConfigDict(alias_generator=lambda name: name.upper(), serialize_by_alias=True)
    total: int


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)
    colour: Colour
    two: tuple[int, ...]
    seen: frozenset[int]
    at: datetime


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Computing(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int

    @pydantic.computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated properties
    @property
    def twice(self) -> int:
        return self.a * 2


class Linked(BaseModel):
    url: pydantic.HttpUrl
    address: IPv4Address
    price: Decimal


class Rising(BaseModel):
    a: int

    @pydantic.field_validator("a")
    @classmethod
    def _rise(cls, a: int) -> int:
        return a + 1


class Stripped(BaseModel):
    a: Annotated[str, pydantic.StringConstraints(strip_whitespace=True)]


class Hiding(BaseModel):
    a: int
    _hidden: int = pydantic.PrivateAttr(default=0)


class Excluding(BaseModel):
    a: int = Field(default=1, exclude=True)


class Serialized(BaseModel):
    a: int

    @pydantic.model_serializer
    def _serialize(self) -> dict[str, int]:
        return {"b": self.a}


class Secret(BaseModel):
    key: pydantic.SecretStr


class Anything(BaseModel):
    a: Any


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    age: int = 0


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    age: int = 0


class Owner(BaseModel):
    pet: Dog | Cat = Field(discriminator="kind")


class Twin(BaseModel):
    age: int = 0


class OtherTwin(BaseModel):
    age: int = 0


class Torn(BaseModel):
    twin: Twin | OtherTwin


class Page(BaseModel, Generic[T]):
    items: list[T]


class Ids(pydantic.RootModel[list[UUID]]):
    pass


class Held(NamedTuple):
    customer: Customer


class Dearer(Customer):
    rank: int = 1


# Pydantic takes no infinite decimals; Line itself does.
finite_lines = lines.filter(lambda line: line.price.is_finite())
customers = st.builds(Customer, id=st.uuids(), name=text)
payments = st.builds(
    Payment,
    amount=st.decimals(allow_nan=False, allow_infinity=False),
    at=moments,
    raw=st.binary(max_size=9),
    colour=st.sampled_from(Colour),
    level=st.sampled_from(Level),
    seen=st.sets(st.integers(), max_size=3),
    pair=pairs,
    two=st.tuples(st.integers(), text),
    customer=customers,
    others=st.lists(customers, max_size=2),
    ratio=st.floats(),
)


def aliased(total: int, shown: int) -> Aliased:
    return Aliased(**{"grandTotal": total, "in": shown})


MODELS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "model": (Payment, payments),
    "nested in itself": (
        Payment,
        st.builds(lambda one, two: one.model_copy(update={"parent": two}), payments, payments),
    ),
    "list": (list[Customer], st.lists(customers, max_size=3)),
    "optional": (Customer | None, st.one_of(st.none(), customers)),
    "dict": (dict[str, Customer], st.dictionaries(text, customers, max_size=3)),
    "tuple": (tuple[Customer, int], st.tuples(customers, st.integers())),
    "named tuple": (Held, st.builds(Held, customers)),
    "aliases": (Aliased, st.builds(aliased, st.integers(), st.integers())),
    "generated aliases": (Generated, st.builds(lambda n: Generated(TOTAL=n), st.integers())),  # type: ignore[call-arg]
    "strict": (
        Strict,
        st.builds(
            Strict,
            colour=st.sampled_from(Colour),
            two=st.lists(st.integers(), max_size=3).map(tuple),
            seen=st.frozensets(st.integers(), max_size=3),
            at=moments,
        ),
    ),
    "extras": (Open, st.builds(lambda a, b: Open(a=a, b=b), st.integers(), text)),  # type: ignore[call-arg]
    "computed": (Computing, st.builds(Computing, a=st.integers())),
    "discriminated": (Owner, st.builds(Owner, pet=st.one_of(st.builds(Dog), st.builds(Cat)))),
    "union": (Dog | Cat, st.one_of(st.builds(Dog), st.builds(Cat))),
    "union of twins": (Twin | OtherTwin | None, st.one_of(st.none(), st.builds(Twin), st.builds(OtherTwin))),
    "generic": (Page[Customer], st.lists(customers, max_size=3).map(lambda items: Page[Customer](items=items))),
    "root": (Ids, st.lists(st.uuids()).map(Ids)),
    "private at its default": (Hiding, st.builds(Hiding, a=st.integers())),
    "beside a dataclass": (tuple[Customer, Line], st.tuples(customers, finite_lines)),
}


@pytest.mark.parametrize("kind", MODELS)
@fewer(5)
@given(data=st.data())
def test_replay_equals_the_first_run(kind: str, data: st.DataObject) -> None:
    annotation, values = MODELS[kind]
    value = data.draw(values)
    assert same(replayed(value, annotation), value)


def test_types_that_only_json_can_write_come_back() -> None:
    linked = Linked(url="https://example.net/a", address="127.0.0.1", price="1.10")  # type: ignore[arg-type]  # coerced
    assert same(replayed(linked, Linked), linked)


def _hiding() -> Hiding:
    hiding = Hiding(a=1)
    hiding._hidden = 7
    return hiding


def _of_itself() -> Payment:
    parts: dict[str, Any] = dict.fromkeys(Payment.model_fields)
    payment = Payment.model_construct(**parts)
    payment.parent = payment
    return payment


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Rising(a=1), Rising),
        (Stripped.model_construct(a=" a "), Stripped),
        (_hiding(), Hiding),
        (Excluding(a=7), Excluding),
        (Serialized(a=1), Serialized),
        (Secret(key="hush"), Secret),  # type: ignore[arg-type]  # coerced
        (Anything(a={1, 2}), Anything),
        (Anything(a=Dog()), Anything),
        (Torn(twin=OtherTwin()), Torn),
        (Dearer(id=UUID(int=1)), Customer),
        (Customer.model_construct(id="one"), Customer),
        (Customer(id=UUID(int=1)), Line),
        (Line("a", Decimal(1)), Customer),
        (Customer(id=UUID(int=1)), codec.NO_ANNOTATION),
        ([Customer(id=UUID(int=1))], list),
        (_of_itself(), Payment),
    ],
    ids=lambda item: type(item).__name__,
)
def test_what_would_change_leaves_a_tombstone(value: object, annotation: Any) -> None:
    with pytest.raises(ResultNotKept):
        replayed(value, annotation)


def test_plain_data_in_place_of_a_model_is_kept_as_what_it_is() -> None:
    assert replayed({"id": "one"}, Customer) == {"id": "one"}


def test_a_tombstone_does_not_tell_what_a_model_held() -> None:
    with pytest.raises(ResultNotKept) as caught:
        replayed(Customer.model_construct(id="4111-1111"), Customer)
    assert "4111" not in str(caught.value)


def test_a_model_that_does_not_fit_makes_no_noise(recwarn: pytest.WarningsRecorder) -> None:
    codec.encode(Customer.model_construct(id="one"), codec.shape_of(Customer), 1000)
    assert not recwarn.list


@pytest.mark.parametrize("stated", [{"grandTotal": "7", "in": 1}, {"total": 7, "shown": "1"}])
def test_stated_values_fit_by_name_and_by_alias(stated: dict[str, object]) -> None:
    assert codec.decode(codec.encode_manual(stated), codec.shape_of(Aliased)) == aliased(7, 1)


def test_a_model_can_be_stated() -> None:
    customer = Customer(id=UUID(int=1), name="a")
    assert codec.decode(codec.encode_manual(customer), codec.shape_of(Customer)) == customer


def test_a_union_takes_the_member_that_fits_what_was_stated() -> None:
    shape = codec.shape_of(Left | Customer)
    assert codec.decode(codec.encode_manual({"id": str(UUID(int=1))}), shape) == Customer(id=UUID(int=1))
