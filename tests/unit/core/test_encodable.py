"""Which annotations are refused at decoration because their values could never be part of a fingerprint."""

import dataclasses
import io
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, NewType, Protocol, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest

from semel.core import fingerprint
from semel.core.fingerprint import encode_canonical, why_not

T = TypeVar("T")


class _Session:
    pass


Bound = TypeVar("Bound", bound=_Session)
OrderId = NewType("OrderId", str)
SessionId = NewType("SessionId", _Session)


class _Colour(Enum):
    RED = 1


@dataclasses.dataclass
class _Order:
    id: str
    lines: "list[_Order]"
    sessions: ClassVar[list[_Session]] = []
    made_by: dataclasses.InitVar[_Session | None] = None


@dataclasses.dataclass
class _Holder:
    order: _Order
    session: _Session | None = None


class _Struct(msgspec.Struct):
    order: _Order
    pool: ClassVar[_Session]


class _StructHolder(msgspec.Struct):
    inner: list[_Holder]


class _Model(pydantic.BaseModel):
    id: str
    _session: _Session = pydantic.PrivateAttr(default_factory=_Session)


class _ModelHolder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    session: _Session


class _Row(TypedDict):
    a: int


class _Pair(NamedTuple):
    x: int


@dataclasses.dataclass
class _Box(Generic[T]):
    held: T


@dataclasses.dataclass
class _Unresolved:
    held: "OnlyForTypeCheckers"  # type: ignore[name-defined]  # noqa: F821 - that it cannot be found is the point


class _Closable(Protocol):
    def close(self) -> None: ...


@pytest.mark.parametrize(
    "annotation",
    [
        Any,
        None,
        object,
        str,
        int,
        bool,
        float,
        Decimal,
        bytes,
        bytearray,
        memoryview,
        date,
        datetime,
        time,
        timedelta,
        UUID,
        Path,
        _Colour,
        Literal["a", 1],
        int | None,
        list[int],
        tuple[int, ...],
        tuple[()],
        set[str],
        frozenset[UUID],
        dict[str, list[Decimal]],
        OrderedDict[str, int],
        Sequence[int],
        Mapping[str, int],
        AbstractSet[int],
        Collection[int],
        Annotated[int, "positive"],
        OrderId,
        T,
        _Order,
        _Struct,
        _Model,
        _Row,
        _Pair,
        _Box[int],
        _Unresolved,
        "Unresolved",
    ],
    ids=str,
)
def test_annotations_whose_values_can_be_encoded_pass(annotation: Any) -> None:
    assert why_not(annotation) is None


@pytest.mark.parametrize(
    ("annotation", "culprit"),
    [
        (_Session, "_Session"),
        (_Session | None, "_Session"),
        (list[_Session], "_Session"),
        (dict[str, list[_Session]], "_Session"),
        (tuple[int, _Session], "_Session"),
        (Annotated[_Session, "ours"], "_Session"),
        (SessionId, "_Session"),
        (Bound, "_Session"),
        (_Holder, "_Session"),
        (_StructHolder, "_Session"),
        (_ModelHolder, "_Session"),
        (Callable[[], int], "Callable"),
        (Iterator[int], "Iterator"),
        (io.BytesIO, "BytesIO"),
        (type[int], "type"),
        (complex, "complex"),
        (_Closable, "_Closable"),
        (Exception, "Exception"),
    ],
    ids=str,
)
def test_annotations_whose_values_cannot_be_encoded_are_named(annotation: Any, culprit: str) -> None:
    assert why_not(annotation) == f"a {culprit} has no canonical form"


@pytest.mark.parametrize(
    "value",
    ["a", 1, 1.5, Decimal(1), b"a", bytearray(), memoryview(b""), date.min, time.min, timedelta(), UUID(int=1)],
    ids=lambda value: type(value).__name__,
)
def test_every_type_that_passes_has_an_encoding(value: object) -> None:
    assert isinstance(value, fingerprint._PLAIN)
    assert encode_canonical(value)
