"""What handlers return in these tests: one type of every supported kind, and the values of each."""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar
from uuid import UUID

import msgspec
from hypothesis import strategies as st

from tests.unit.core.values import plain_values, text, zones

T = TypeVar("T")


class Word(StrEnum):
    PAID = "paid"
    OPEN = "open"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Rights(IntFlag):
    READ = 1
    WRITE = 2


class Inner(msgspec.Struct, frozen=True):
    id: UUID
    at: datetime
    tags: tuple[str, ...] = ()


class Receipt(msgspec.Struct):
    amount: Decimal
    inner: Inner
    word: Word
    raw: bytes = b""
    lines: list[Inner] = []
    notes: dict[str, Any] = {}
    link: "Receipt | None" = None


class Card(msgspec.Struct, tag=True, frozen=True):
    number: str


class Cash(msgspec.Struct, tag=True, frozen=True):
    amount: int


class Compact(msgspec.Struct, array_like=True, rename="camel", omit_defaults=True):
    first_name: str
    last_seen: date | None = None


class Box(msgspec.Struct, Generic[T]):
    held: T


@dataclasses.dataclass
class Line:
    name: str
    price: Decimal
    count: int = 1
    seen: set[int] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    lines: list[Line]
    first: Line | None
    colour: Colour
    keys: dict[UUID, Line] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(kw_only=True)
class Priced:
    net: int
    gross: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.gross = self.net * 2


@dataclasses.dataclass
class Left:
    x: int


@dataclasses.dataclass
class Right:
    x: int


@dataclasses.dataclass
class Crate(Generic[T]):
    held: T


class Row(TypedDict):
    name: str
    price: Decimal
    note: NotRequired[str]


class Pair(NamedTuple):
    x: int
    y: str = ""


OrderId = NewType("OrderId", str)

moments = st.datetimes(timezones=st.one_of(st.none(), zones))
inners = st.builds(Inner, id=st.uuids(), at=moments, tags=st.lists(text, max_size=2).map(tuple))
receipts = st.recursive(
    st.builds(
        Receipt,
        amount=st.decimals(),
        inner=inners,
        word=st.sampled_from(Word),
        raw=st.binary(max_size=9),
        lines=st.lists(inners, max_size=2),
        notes=st.dictionaries(text, st.one_of(st.none(), st.integers(), st.floats(), text), max_size=2),
    ),
    lambda inner: st.builds(Receipt, amount=st.decimals(), inner=inners, word=st.just(Word.PAID), link=inner),
    max_leaves=2,
)
lines = st.builds(Line, name=text, price=st.decimals(), count=st.integers(), seen=st.sets(st.integers(), max_size=3))
orders = st.builds(
    Order,
    lines=st.lists(lines, max_size=2),
    first=st.one_of(st.none(), lines),
    colour=st.sampled_from(Colour),
    keys=st.dictionaries(st.uuids(), lines, max_size=2),
)
rows = st.fixed_dictionaries({"name": text, "price": st.decimals()}, optional={"note": text})
pairs = st.builds(Pair, st.integers(), text)
small = st.integers(-(2**70), 2**70)

# Each annotation with the values that fit it.
SUPPORTED: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "none": (None, st.none()),
    "bool": (bool, st.booleans()),
    "int": (int, small),
    "float": (float, st.floats()),
    "str": (str, text),
    "bytes": (bytes, st.binary()),
    "bytearray": (bytearray, st.binary().map(bytearray)),
    "decimal": (Decimal, st.decimals()),
    "datetime": (datetime, moments),
    "date": (date, st.dates()),
    "time": (time, st.times()),
    "timedelta": (timedelta, st.timedeltas()),
    "uuid": (UUID, st.uuids()),
    "str enum": (Word, st.sampled_from(Word)),
    "int enum": (Level, st.sampled_from(Level)),
    "plain enum": (Colour, st.sampled_from(Colour)),
    "flag": (Rights, st.sampled_from([Rights.READ, Rights.WRITE, Rights.READ | Rights.WRITE])),
    "literal": (Literal["a", 1], st.sampled_from(["a", 1])),
    "optional": (int | None, st.one_of(st.none(), small)),
    "union of natives": (int | str | None, st.one_of(st.none(), small, text)),
    "union of look-alikes": (str | bytes | UUID | datetime, st.one_of(text, st.binary(), st.uuids(), moments)),
    "union of dates": (date | datetime, st.one_of(st.dates(), moments)),
    "list": (list[int], st.lists(small)),
    "bare list": (list, st.lists(plain_values, max_size=2)),
    "fixed tuple": (tuple[int, str], st.tuples(small, text)),
    "empty tuple": (tuple[()], st.just(())),
    "variadic tuple": (tuple[Decimal, ...], st.lists(st.decimals()).map(tuple)),
    "set": (set[int], st.sets(small)),
    "frozenset": (frozenset[str], st.frozensets(text)),
    "set of floats": (set[float], st.sets(st.floats())),
    "set of structs": (set[Card], st.sets(st.builds(Card, text))),
    "dict": (dict[str, int], st.dictionaries(text, small)),
    "bare dict": (dict, st.dictionaries(text, plain_values, max_size=2)),
    "dict by int": (dict[int, str], st.dictionaries(small, text)),
    "dict by uuid": (dict[UUID, str], st.dictionaries(st.uuids(), text)),
    "dict by tuple": (dict[tuple[int, str], int], st.dictionaries(st.tuples(small, text), small)),
    "dict by enum": (dict[Colour, int], st.dictionaries(st.sampled_from(Colour), small)),
    "dict by date": (dict[date, int], st.dictionaries(st.dates(), small)),
    "dict of anything": (dict[str, Any], st.dictionaries(text, plain_values, max_size=2)),
    "dict of objects": (dict[str, object], st.dictionaries(text, plain_values, max_size=2)),
    "sequence": (Sequence[int], st.one_of(st.lists(small), st.lists(small).map(tuple))),
    "mapping": (Mapping[str, int], st.dictionaries(text, small)),
    "struct": (Receipt, receipts),
    "frozen struct": (Inner, inners),
    "compact struct": (Compact, st.builds(Compact, text, st.one_of(st.none(), st.dates()))),
    "tagged union": (Card | Cash, st.one_of(st.builds(Card, text), st.builds(Cash, small))),
    "list of tagged": (list[Card | Cash], st.lists(st.one_of(st.builds(Card, text), st.builds(Cash, small)))),
    "generic struct": (Box[Decimal], st.builds(Box, st.decimals())),
    "dataclass": (Line, lines),
    "frozen dataclass": (Order, orders),
    "computed field": (Priced, st.builds(Priced, net=small)),
    "union of dataclasses": (
        Left | Right | None,
        st.one_of(st.none(), st.builds(Left, small), st.builds(Right, small)),
    ),
    "generic dataclass": (Crate[Line], st.builds(Crate, lines)),
    "list of dataclasses": (list[Line], st.lists(lines, max_size=3)),
    "typed dict": (Row, rows),
    "list of typed dicts": (list[Row], st.lists(rows, max_size=3)),
    "named tuple": (Pair, pairs),
    "dict of named tuples": (dict[str, Pair], st.dictionaries(text, pairs, max_size=3)),
    "new type": (OrderId, text),
    "annotated": (Annotated[int, msgspec.Meta(ge=0)], st.integers(0, 2**70)),
    "type variable": (T, plain_values),
    "any": (Any, plain_values),
    "object": (object, plain_values),
}
