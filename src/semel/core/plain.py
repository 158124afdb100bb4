"""A self-describing binary form for plain Python values: what is read back has equal value *and* equal type.

What always holds: `loads(dumps(x))` equals `x` with the same types all the way down, or `dumps` raises `NotPlain`.
MessagePack carries what it can by itself; the rest (tuples, sets, decimals, dates, big integers) travels as extension
types. No class is ever looked up by a name found in data.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec.msgpack import Ext

MAX_DEPTH = 200
_INT64 = range(-(2**63), 2**64)
_encode = msgspec.msgpack.Encoder().encode


class NotPlain(Exception):  # noqa: N818 - internal signal, turned into a tombstone
    """The value is not plain data; the message is a clause that says why."""


def dumps(value: object) -> bytes:
    """The bytes of a plain value. Raises `NotPlain` for anything else."""
    try:
        return _encode(_lower(value, MAX_DEPTH))
    except UnicodeEncodeError:
        message = "its text holds a lone surrogate"
        raise NotPlain(message) from None


def loads(data: bytes) -> Any:
    """The value of `dumps`. Raises `msgspec.DecodeError` or `ValueError` for damaged data."""
    return _DECODER.decode(data)


def _lower(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _NATIVE:
        return value
    if depth == 0:
        message = f"it is nested more than {MAX_DEPTH} levels deep"
        raise NotPlain(message)
    if kind is dict:
        return {_lower(name, depth - 1): _lower(item, depth - 1) for name, item in value.items()}
    if kind is list:
        return [_lower(item, depth - 1) for item in value]
    if kind is int:
        return value if value in _INT64 else Ext(_BIG, str(value).encode() if value.bit_length() < 14000 else _too_big())
    extend = _EXTEND.get(kind)
    if extend is None:
        message = f"a {kind.__qualname__} is not plain data"
        raise NotPlain(message)
    code, body = extend
    return Ext(code, body(value, depth - 1))


def _too_big() -> bytes:
    message = "it holds an integer of more than 4000 digits"
    raise NotPlain(message)


def _items(value: Any, depth: int) -> bytes:
    return _encode([_lower(item, depth) for item in value])


def _datetime(value: datetime, _depth: int) -> bytes:
    """ISO text, the named zone where there is one, and the fold."""
    zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key else ""
    if zone:
        return _encode([value.replace(tzinfo=None).isoformat(), zone, value.fold])
    return _encode([value.isoformat(), "", value.fold])


def _load_datetime(body: bytes) -> datetime:
    text, zone, fold = msgspec.msgpack.decode(body, type=tuple[str, str, int])
    moment = datetime.fromisoformat(text).replace(fold=fold)
    if not zone:
        return moment
    try:
        return moment.replace(tzinfo=ZoneInfo(zone))
    except ZoneInfoNotFoundError as problem:
        message = f"the time zone {zone} is not known on this machine"
        raise ValueError(message) from problem


def _time(value: time, _depth: int) -> bytes:
    return _encode([value.isoformat(), value.fold])


def _load_time(body: bytes) -> time:
    text, fold = msgspec.msgpack.decode(body, type=tuple[str, int])
    return time.fromisoformat(text).replace(fold=fold)


_BIG = 1
_NATIVE = frozenset({type(None), bool, float, str, bytes})
_EXTEND: dict[type, tuple[int, Callable[[Any, int], bytes]]] = {
    tuple: (2, _items),
    set: (3, _items),
    frozenset: (4, _items),
    Decimal: (5, lambda value, _depth: str(value).encode()),
    datetime: (6, _datetime),
    date: (7, lambda value, _depth: value.isoformat().encode()),
    time: (8, _time),
    timedelta: (9, lambda value, _depth: _encode([value.days, value.seconds, value.microseconds])),
    UUID: (10, lambda value, _depth: value.bytes),
    complex: (11, lambda value, _depth: _encode([value.real, value.imag])),
    bytearray: (12, lambda value, _depth: bytes(value)),
}
_LOAD: dict[int, Callable[[bytes], Any]] = {
    _BIG: lambda body: int(body.decode()),
    2: lambda body: tuple(loads(body)),
    3: lambda body: set(loads(body)),
    4: lambda body: frozenset(loads(body)),
    5: lambda body: Decimal(body.decode()),
    6: _load_datetime,
    7: lambda body: date.fromisoformat(body.decode()),
    8: _load_time,
    9: lambda body: timedelta(*loads(body)),
    10: lambda body: UUID(bytes=body),
    11: lambda body: complex(*loads(body)),
    12: bytearray,
}


def _extension(code: int, body: memoryview) -> Any:
    load = _LOAD.get(code)
    if load is None:
        message = f"extension type {code} is unknown to this release"
        raise ValueError(message)
    return load(bytes(body))


_DECODER = msgspec.msgpack.Decoder(ext_hook=_extension)
