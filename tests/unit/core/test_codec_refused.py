"""Annotations whose values could not come back are refused when the shape is made, before anything runs."""

import asyncio
import contextlib
import dataclasses
import io
import re
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import IO, Any, NoReturn
from uuid import UUID

import msgspec
import pydantic
import pytest

from semel.core.codec import shape_of
from semel.errors import UsageError
from tests.unit.core.results import Card, Left, Line, Right


class _Custom:
    pass


class _Mixed(Enum):
    A = 1
    B = "b"


class _Fractional(Enum):
    HALF = 0.5


@dataclasses.dataclass
class _Holder:
    session: _Custom


@dataclasses.dataclass
class _DeepHolder:
    lines: list[Line]
    rows: dict[str, list[_Holder]]


class _StructHolder(msgspec.Struct):
    session: _Custom


class _Ambiguous(msgspec.Struct):
    either: Left | Right


class _Wide(msgspec.Struct):
    """Many fields, and the trouble in the last."""

    a: list[int]
    b: dict[str, list[int]]
    c: tuple[int, str]
    d: list[tuple[int, ...]]
    e: dict[str, tuple[int, ...]]
    f: list[list[list[int]]]
    g: list[set[frozenset[int]]]
    h: list[_Custom]


class _Unresolved(msgspec.Struct):
    held: "OnlyForTypeCheckers"  # type: ignore[name-defined]  # noqa: F821 - that it cannot be found is the point


class _Model(pydantic.BaseModel):
    x: int


class _Passes(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    held: _Custom


class _PassesDeep(pydantic.BaseModel):
    inner: list[_Passes]


class _StructWithModel(msgspec.Struct):
    model: _Model


@dataclasses.dataclass
class _ModelAndCustom:
    model: _Model
    session: _Custom


@pytest.mark.parametrize(
    "annotation",
    [
        _Custom,
        list[_Custom],
        dict[str, _Custom | None],
        _Holder,
        _DeepHolder,
        _StructHolder,
        _Wide,
        Iterator[int],
        Iterable[int],
        Generator[int, None, None],
        AsyncIterator[int],
        Callable[[], int],
        Callable,
        Awaitable[int],
        Coroutine[Any, Any, int],
        asyncio.Future[int],
        asyncio.Task[int],
        IO[str],
        io.BytesIO,
        contextlib.AbstractContextManager[int],
        types.ModuleType,
        type,
        type[int],
        NoReturn,
        Exception,
        Path,
        re.Pattern[str],
        Fraction,
        range,
        deque[int],
        Counter[str],
        OrderedDict[str, int],
        defaultdict[str, int],
        _Mixed,
        _Fractional,
        msgspec.Raw,
        msgspec.msgpack.Ext,
        dict[Line, int],
        dict[Card, int],
        dict[tuple[Card, int], int],
        list[Left | Right],
        dict[str, Left | Right],
        _Ambiguous,
        list[str | datetime],
        list[date | datetime],
        list[str | UUID],
        list[list[int] | set[int]],
        list[int] | list[str],
        "Unresolved",
        _Unresolved,
        7,
        _Passes,
        list[_Passes],
        _PassesDeep,
        _StructWithModel,
        _ModelAndCustom,
        list[_Model | Left],
    ],
    ids=str,
)
def test_an_annotation_that_cannot_keep_the_promise_is_refused(annotation: Any) -> None:
    with pytest.raises(UsageError, match=r"cannot be replayed.*Nothing ran\. Return"):
        shape_of(annotation)


def test_the_refusal_names_the_annotation_and_the_culprit() -> None:
    with pytest.raises(UsageError, match=r"dict\[str, .*_Holder\] cannot be replayed: _Custom"):
        shape_of(dict[str, _Holder])


@pytest.mark.parametrize("annotation", [float | Decimal, list[float | Decimal], str | Left, Left | dict[str, int]])
def test_unions_that_can_be_told_apart_are_taken(annotation: Any) -> None:
    shape_of(annotation)
