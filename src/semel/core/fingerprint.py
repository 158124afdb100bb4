"""The fingerprint: a digest of what was asked, so that one key cannot stand for two requests, and its encoding.

**Encoding.** Two values have equal encodings only if they are equal. Every element carries a type tag and its length,
so that no joining of neighbours can look like another value. Numbers enter by exact value (`1500`, `1500.0` and
`Decimal("1500.00")` are one; `0.1` and `Decimal("0.1")` are two, as they are in Python), booleans are not numbers,
aware datetimes enter by their instant and naive ones are refused. Lists and tuples are one; a mapping enters by its
members in any order, an object by the name of its class and its members. Without defaults, a field that equals its
default is left out of an object: then equal encodings mean equal values under one definition of the class. Whether
values of an annotation can be encoded at all is asked once, at decoration.

**Time.** Reading a value takes time with its size. A number is never written out in more than 40 digits that it does
not have. Text enters in Unicode form NFC, so that one word typed on two systems is one word, except in the exact form,
which keys use; no more than 30 combining characters in a row reach the normaliser, which takes time with the square of
such a run and holds the interpreter meanwhile. 30 is the bound of the Stream-Safe Text Format (UAX #15).

**Fingerprint.** It says by itself how it was made, so that a request can be compared with a record of an earlier
release, or one made under another secret, by taking its fingerprint in the same way again. One made in a way that is
unknown here is never compared; the record is unreadable, and nothing runs. Layout: one byte for the version, with its
highest bit set where the digest is keyed; where it is, four bytes that name the secret; 32 bytes of digest.

| first byte | what is read | digest |
|---|---|---|
| `01` | every argument and every field | SHA-256 |
| `02` | arguments and fields that do not equal their default | SHA-256 |
| `82` | the same | HMAC-SHA-256 with the secret named |
"""

from __future__ import annotations

import collections.abc
import dataclasses
import hmac
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from pathlib import PurePath, PureWindowsPath
from typing import Any, Final, NamedTuple
from unicodedata import combining, normalize
from uuid import UUID

import msgspec

from semel.errors import RecordUnreadable, UsageError


class Missing:
    """The type of `MISSING`: there is no default, or none that is the same in every process."""


MISSING: Final = Missing()
_CONSTANT_FACTORIES = (list, dict, set, frozenset, tuple, str, bytes, bytearray, int, float, bool)


class ModelField(NamedTuple):
    """A field and its default. `model` is the class whose own defaults are the default (`default_factory=Address`).

    A default that a function makes is `MISSING`: what `date.today` or a counter gives differs between two processes,
    and calling it only to compare could have effects.
    """

    name: str
    default: object = MISSING
    model: type | None = None


def is_model(kind: Any) -> bool:
    """Whether `kind` is a class whose fields are known: a dataclass, a Struct or a pydantic model."""
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct) or hasattr(kind, "model_fields")
    )


def fields_of(kind: Any) -> list[ModelField]:
    """The declared fields of a model; class variables and what only the constructor takes are none."""
    if issubclass(kind, msgspec.Struct):
        return [_field(field.name, field, msgspec.NODEFAULT) for field in msgspec.structs.fields(kind)]
    if dataclasses.is_dataclass(kind):
        return [_dataclass_field(field) for field in dataclasses.fields(kind)]
    return [_pydantic_field(name, field) for name, field in kind.model_fields.items()]


def _dataclass_field(field: dataclasses.Field[Any]) -> ModelField:
    if hasattr(field.default, "is_required"):  # pydantic's dataclasses keep what pydantic.Field gave as the default
        return _pydantic_field(field.name, field.default)
    return _field(field.name, field, dataclasses.MISSING)


def _pydantic_field(name: str, field: Any) -> ModelField:
    return ModelField(name) if field.is_required() else _field(name, field, None)


def _field(name: str, field: Any, no_factory: object) -> ModelField:
    """What a library says of a field; `no_factory` is how it says that there is none, or no default."""
    factory = field.default_factory
    if factory is no_factory:
        has_default = no_factory is None or field.default is not no_factory
        return ModelField(name, field.default if has_default else MISSING)
    if factory in _CONSTANT_FACTORIES:
        return ModelField(name, factory())
    return ModelField(name, model=factory if is_model(factory) else None)


_PLAIN = (str, int, float, Decimal, bytes, bytearray, memoryview, date, time, timedelta, UUID, Enum, PurePath)
_CONTAINERS = (list, tuple, set, frozenset, collections.abc.Mapping)
_ABSTRACT = (
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Set,
    collections.abc.MutableSet,
    collections.abc.Collection,
)


def why_not(annotation: Any) -> str | None:
    """Why values of `annotation` cannot be encoded; None if they can, or if only the value itself can tell."""
    return _why_not(annotation, set())


def _why_not(annotation: Any, seen: set[Any]) -> str | None:
    origin = typing.get_origin(annotation)
    if annotation in (Any, None, type(None), object, ...) or isinstance(annotation, (str, typing.ForwardRef)):
        return None
    if isinstance(annotation, typing.TypeVar):
        return None if annotation.__bound__ is None else _why_not(annotation.__bound__, seen)
    if origin is typing.Literal:
        return None
    if origin is typing.Annotated:
        return _why_not(typing.get_args(annotation)[0], seen)
    if origin in (typing.Union, types.UnionType):
        return _first(typing.get_args(annotation), seen)
    if hasattr(annotation, "__supertype__"):  # NewType
        return _why_not(annotation.__supertype__, seen)
    return _class(origin or annotation, typing.get_args(annotation), seen)


def _first(annotations: typing.Iterable[Any], seen: set[Any]) -> str | None:
    return next((problem for inner in annotations if (problem := _why_not(inner, seen))), None)


def _class(kind: Any, arguments: tuple[Any, ...], seen: set[Any]) -> str | None:
    if not isinstance(kind, type):
        return None  # an unusual form: the value will tell
    if kind in _ABSTRACT or issubclass(kind, _CONTAINERS) or typing.is_typeddict(kind):
        return _first(arguments, seen)
    if issubclass(kind, _PLAIN):
        return None
    if is_model(kind):
        return _fields(kind, seen)
    return f"a {kind.__qualname__} has no canonical form"


def _fields(kind: type, seen: set[Any]) -> str | None:
    if kind in seen:
        return None
    seen.add(kind)
    models: dict[str, Any] | None = getattr(kind, "model_fields", None)
    if models is not None:
        return _first((field.annotation for field in models.values()), seen)
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001 - names only known to type checkers: the value will tell
        return None
    return _first((hints[field.name] for field in fields_of(kind) if field.name in hints), seen)


MAX_MARKS: Final = 30
# Every combining character is in this class, and nearly no text has so many of its members in a row.
_MAY_BE_MARKS: Final = re.compile(rf"[^\w\x00-\u02ff]{{{MAX_MARKS + 1},}}")
# Starters by their own class that are taken apart into combining characters alone.
_MADE_OF_MARKS: Final = frozenset("\u0f73\u0f75\u0f81")


class TooManyMarks(Exception):
    """The text has no form to compare; the message is a clause that says why."""


def normalize_text(text: str) -> str:
    """The text in Unicode form NFC.

    Raises:
        TooManyMarks: it holds more than 30 combining characters in a row.
    """
    if text.isascii():
        return text
    for run in _MAY_BE_MARKS.finditer(text):
        _check(run.group())
    return normalize("NFC", text)


def _check(run: str) -> None:
    marks = 0
    for letter in run:
        marks = marks + 1 if combining(letter) or letter in _MADE_OF_MARKS else 0
        if marks > MAX_MARKS:
            message = f"its text holds more than {MAX_MARKS} combining characters in a row"
            raise TooManyMarks(message)


MAX_DEPTH = 64
MAX_DIGITS = 1000
MAX_WRITTEN = 40
"""Digits of a whole number that is written out; a larger one is written with an exponent."""
MAX_BYTES = 16 * 1024 * 1024
_MAX_BITS = 3322  # what a number of MAX_DIGITS digits takes at most; asking for bits costs nothing, unlike digits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Member = tuple[bytes, str, object, bytes | None]
"""A member of an object: its name encoded, its name, its default, its default encoded."""


class CannotEncode(Exception):
    """The value has no canonical encoding; the message is a clause that says why. Callers make it a typed error."""


class Depth:
    """How deep the encoder is, and in which form text and objects enter. `inner` is the next level down, if any."""

    __slots__ = ("drops_defaults", "exact", "inner")

    def __init__(self, *, exact: bool = False, drops_defaults: bool = False, depth: int = MAX_DEPTH) -> None:
        self.exact = exact
        self.drops_defaults = drops_defaults
        inner = depth > 1
        self.inner = Depth(exact=exact, drops_defaults=drops_defaults, depth=depth - 1) if inner else None


_NORMAL = Depth()
_EXACT = Depth(exact=True)
_WITHOUT_DEFAULTS = Depth(drops_defaults=True)


def encode_canonical(value: object, *, exact: bool = False) -> bytes:
    """The canonical bytes of `value`; `exact` keeps text as it is. Raises `CannotEncode` for what has none."""
    return _encode_at(_EXACT if exact else _NORMAL, value)


def encode_without_defaults(value: object) -> bytes:
    """The canonical bytes of `value`, objects without the fields that equal their default. Raises `CannotEncode`."""
    return _encode_at(_WITHOUT_DEFAULTS, value)


def _encode_at(depth: Depth, value: object) -> bytes:
    try:
        return _encode(value, depth)
    except CannotEncode:
        raise
    except Exception as problem:
        raise _not_readable(problem) from problem


class FixedFields:
    """Dictionaries that all have the same names: what `encode` gives for them, with the names worked out once."""

    __slots__ = ("_members",)

    def __init__(self, names: Iterable[str]) -> None:
        self._members = sorted((_encode(name, _NORMAL.inner), name) for name in names)

    def encode(self, values: Mapping[str, object]) -> bytes:
        """The canonical bytes of these members of `values`. Raises `CannotEncode` where one has none."""
        inner = _NORMAL.inner
        try:
            body = [encoded + _encode(values[name], inner) for encoded, name in self._members]
            return _tagged(b"M", b"".join(body))
        except CannotEncode:
            raise
        except Exception as problem:
            raise _not_readable(problem) from problem


class FixedFieldsWithoutDefaults:
    """The same, without the members that equal their default: a value that is the default itself costs nothing."""

    __slots__ = ("_members",)

    def __init__(self, names: Iterable[str], defaults: Mapping[str, object]) -> None:
        self._members = _sorted_members(ModelField(name, defaults.get(name, MISSING)) for name in names)

    def encode(self, values: Mapping[str, object]) -> bytes:
        """The canonical bytes of these members of `values`. Raises `CannotEncode` where one has none."""
        inner = _WITHOUT_DEFAULTS.inner
        try:
            body = []
            for encoded, name, default, encoded_default in self._members:
                value = values[name]
                if value is not default:
                    item = _encode(value, inner)
                    if item != encoded_default:
                        body.append(encoded + item)
            return _tagged(b"M", b"".join(body))
        except CannotEncode:
            raise
        except Exception as problem:
            raise _not_readable(problem) from problem


def _sorted_members(fields: Iterable[ModelField]) -> list[Member]:
    return sorted(map(_member, fields), key=lambda member: member[0])


def _member(field: ModelField) -> Member:
    """A field with its name and its default encoded; a default without an encoding is known by identity alone."""
    encoded_default: bytes | None = None
    if field.model is not None:
        encoded_default = _named_object(field.model, b"")  # an object all of whose fields equal their defaults
    elif field.default is not MISSING:
        try:
            encoded_default = encode_without_defaults(field.default)
        except CannotEncode:
            encoded_default = None
    return _encode(field.name, _NORMAL), field.name, field.default, encoded_default


def _not_readable(problem: Exception) -> CannotEncode:
    """A property that raised, a broken time zone, no stack left: whatever it was, nothing has run yet."""
    return CannotEncode(f"reading it failed with {type(problem).__name__}")


def _tagged(tag: bytes, body: bytes) -> bytes:
    if len(body) > MAX_BYTES:  # asked at every level, so that what repeats itself does not grow without end
        message = f"it takes more than the {MAX_BYTES} bytes allowed"
        raise CannotEncode(message)
    return b"%b%d:%b" % (tag, len(body), body)


def _encode(value: object, depth: Depth | None) -> bytes:
    if depth is None:
        message = f"it is nested more than {MAX_DEPTH} levels deep"
        raise CannotEncode(message)
    encoder = _BY_TYPE.get(type(value))
    if encoder is not None:
        return encoder(value, depth)
    return _encode_by_kind(value, depth)


def _none(_value: Any, _depth: Depth) -> bytes:
    return b"N0:"


def _bool(value: Any, _depth: Depth) -> bytes:
    return b"B1:1" if value else b"B1:0"


def _text(value: Any, depth: Depth) -> bytes:
    return _tagged(b"S", _utf8(value if depth.exact else _normalize_text(value)))


def _normalize_text(text: str) -> str:
    try:
        return normalize_text(text)
    except TooManyMarks as problem:
        raise CannotEncode(str(problem)) from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        message = "its text holds a lone surrogate, which no encoding can carry"
        raise CannotEncode(message) from None


def _int(value: Any, _depth: Depth) -> bytes:
    if value.bit_length() > _MAX_BITS:
        raise _too_long()
    digits = b"%d" % value
    if len(digits) <= MAX_WRITTEN:
        return b"D%d:%b" % (len(digits), digits)
    text = digits.decode().removeprefix("-")
    if len(text) > MAX_DIGITS:
        raise _too_long()
    return _number(text, 0, negative=value < 0)


def _float(value: Any, depth: Depth) -> bytes:
    if not math.isfinite(value):
        raise _not_comparable(value)
    return _int(int(value), depth) if value.is_integer() else _decimal(Decimal(value), depth)


def _decimal(value: Any, _depth: Depth) -> bytes:
    if not value.is_finite():
        raise _not_comparable(value)
    sign, digits, exponent = value.as_tuple()
    return _number("".join(map(str, digits)), exponent, negative=bool(sign))


def _number(digits: str, exponent: int, *, negative: bool) -> bytes:
    if len(digits.strip("0")) > MAX_DIGITS:
        raise _too_long()
    return _tagged(b"D", number_text(digits, exponent, negative=negative).encode())


def number_text(digits: str, exponent: int, *, negative: bool) -> str:
    """One spelling of the number `digits` times ten to the `exponent`, the same for all spellings of it.

    A whole number of up to 40 digits is written out; every other has its digits without zeros at the ends, and an
    exponent: to write it out would take as much space as the exponent says.
    """
    text = digits.lstrip("0")
    short = text.rstrip("0")
    if not short:
        return "0"
    exponent += len(text) - len(short)
    is_plain = 0 <= exponent <= MAX_WRITTEN - len(short)
    return f"{'-' if negative else ''}{short}{'0' * exponent if is_plain else f'e{exponent}'}"


def _not_comparable(value: object) -> CannotEncode:
    return CannotEncode(f"{value} is not a number that can be compared")


def _too_long() -> CannotEncode:
    return CannotEncode(f"a number of more than {MAX_DIGITS} digits is refused")


def _bytes(value: Any, _depth: Depth) -> bytes:
    return _tagged(b"Y", bytes(value))


def _datetime(value: Any, _depth: Depth) -> bytes:
    if value.utcoffset() is None:
        message = "a naive datetime names no moment; give it a time zone"
        raise CannotEncode(message)
    return _tagged(b"T", b"%d" % ((value - _EPOCH) // _MICROSECOND))


def _date(value: Any, _depth: Depth) -> bytes:
    return _tagged(b"A", value.isoformat().encode())


def _time(value: Any, _depth: Depth) -> bytes:
    zone = ""
    if value.tzinfo is not None and value.utcoffset() is None:  # the offset depends on the day: the name has to do
        zone = getattr(value.tzinfo, "key", None) or ""
        if not zone:
            message = "a time of day in a zone without a fixed offset or a name cannot be compared"
            raise CannotEncode(message)
        zone = f"[{zone}]"
    return _tagged(b"I", f"{value.isoformat()}{zone}".encode())


def _timedelta(value: Any, _depth: Depth) -> bytes:
    return _tagged(b"P", b"%d" % (value // _MICROSECOND))


def _uuid(value: Any, _depth: Depth) -> bytes:
    return _tagged(b"U", value.bytes)


def _sequence(value: Any, depth: Depth) -> bytes:
    inner = depth.inner
    return _tagged(b"L", b"".join([_encode(item, inner) for item in value]))


def _set(value: Any, depth: Depth) -> bytes:
    inner = depth.inner
    return _tagged(b"C", b"".join(sorted([_encode(item, inner) for item in value])))


def _mapping(value: Any, depth: Depth) -> bytes:
    inner = depth.inner
    # One dictionary may hold both forms of a text as two members; they would then claim to be one.
    pairs = {_encode(name, inner): _encode(item, inner) for name, item in value.items()}
    if len(pairs) != len(value):
        raise _same_name()
    return _tagged(b"M", b"".join([name + pairs[name] for name in sorted(pairs)]))


def _same_name() -> CannotEncode:
    return CannotEncode("two of its members have the same name")


def _object(value: Any, depth: Depth) -> bytes:
    """A dataclass, Struct or model: the members it declares, and those a model was given beyond that."""
    kind: Any = type(value)
    drops, inner = depth.drops_defaults, depth.inner
    members: dict[bytes, bytes] = {}
    for encoded, name, default, encoded_default in _members_of(kind):
        item = getattr(value, name)
        if drops and item is default:
            continue
        body = _encode(item, inner)
        if not drops or body != encoded_default:
            members[encoded] = body
    extra = getattr(value, "__pydantic_extra__", None)
    if extra:
        declared = {member[0] for member in _members_of(kind)}  # also of those left out
        members = _with_extra(members, extra, declared, depth.inner)
    return _named_object(type(value), b"".join([name + body for name, body in members.items()]))


@lru_cache(maxsize=1024)
def _members_of(kind: type) -> list[Member]:
    return _sorted_members(fields_of(kind))


def _with_extra(
    members: dict[bytes, bytes], extra: Mapping[str, object], declared: set[bytes], inner: Depth | None
) -> dict[bytes, bytes]:
    added = {_encode(name, inner): _encode(item, inner) for name, item in extra.items()}
    if len(added) != len(extra) or declared & added.keys():
        raise _same_name()
    return dict(sorted({**members, **added}.items()))


def _named_object(kind: type, members: bytes) -> bytes:
    # The class name is part of it: Refund(amount=1) is not Charge(amount=1).
    return _tagged(b"O", _tagged(b"S", kind.__name__.encode()) + _tagged(b"M", members))


def _enum(member: Any, depth: Depth) -> bytes:
    # A member that is also a str or an int equals its plain value in Python, so it must be equal here.
    match member:
        case str():
            return _text(str.__str__(member), depth)
        case int():
            return _int(int(member), depth)
        case _:
            name = type(member).__name__.encode()
            return _tagged(b"E", _tagged(b"S", name) + _encode(member.value, depth.inner))


def _path(value: PurePath) -> bytes:
    return _tagged(b"W" if isinstance(value, PureWindowsPath) else b"F", _utf8(str(value)))


def _encode_by_kind(value: Any, depth: Depth) -> bytes:
    match value:
        case Enum():
            return _enum(value, depth)
        case msgspec.Struct():
            return _object(value, depth)
        case PurePath():
            return _path(value)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return _object(value, depth)
        case _ if hasattr(type(value), "model_fields"):
            return _object(value, depth)
        case Mapping():
            return _mapping(value, depth)
    for base, encoder in _BY_TYPE.items():
        if base is not type(None) and isinstance(value, base):
            return encoder(value, depth)
    message = f"a {type(value).__qualname__} has no canonical form"
    raise CannotEncode(message)


_BY_TYPE: dict[type, Callable[[Any, Depth], bytes]] = {
    type(None): _none,
    bool: _bool,
    str: _text,
    int: _int,
    float: _float,
    Decimal: _decimal,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    datetime: _datetime,
    date: _date,
    time: _time,
    timedelta: _timedelta,
    UUID: _uuid,
    tuple: _sequence,
    list: _sequence,
    set: _set,
    frozenset: _set,
    dict: _mapping,
}


VERSION = 2
LEAST_SECRET = 16
_KEYED = 0x80
_PLAIN_PREFIX = bytes([VERSION])
_NAME_BYTES = 4

Secret = bytes | str
Encoders = Mapping[int, Callable[[Any], bytes]]
"""How what was asked becomes bytes, by version."""
ENCODERS: Encoders = {1: encode_canonical, 2: encode_without_defaults}


class Secrets:
    """The secrets of an engine: the first makes fingerprints, all of them compare. Without one, digests are plain.

    Args:
        given: a secret, or several. None as the first of several: plain digests are made, and all secrets compare.

    Raises:
        UsageError: a secret is no text or bytes, or too short to be one.
    """

    __slots__ = ("_by_name", "current")

    def __init__(self, given: Secret | Sequence[Secret | None] | None = None) -> None:
        several = list(given) if isinstance(given, (tuple, list)) else [given]
        keys = [None if secret is None else _key(secret) for secret in several]
        if not keys or None in keys[1:]:
            raise _bad_secrets()
        self._by_name = {_name(key): key for key in keys if key is not None}
        self.current: tuple[bytes, bytes] | None = None if keys[0] is None else (_name(keys[0]), keys[0])

    def __repr__(self) -> str:
        return f"Secrets({len(self._by_name)} known)"

    def find(self, name: bytes) -> bytes | None:
        """The secret of this name, if it is known here."""
        return self._by_name.get(name)


NO_SECRETS = Secrets()


class Digest(bytes):
    """The SHA-256 of what is compared, where somebody else has put that into bytes: not digested once more."""

    __slots__ = ()


class Fingerprints:
    """Takes the fingerprints of one kind of request, and takes them again as somebody else did."""

    __slots__ = ("_encode", "_encoders", "_key", "_prefix", "_secrets")

    def __init__(self, secrets: Secrets = NO_SECRETS, encoders: Encoders = ENCODERS) -> None:
        self._secrets = secrets
        self._encoders = encoders
        self._encode = encoders[VERSION]
        self._key: bytes | None
        name, self._key = secrets.current or (b"", None)
        self._prefix = _PLAIN_PREFIX if self._key is None else bytes([VERSION | _KEYED]) + name

    def take(self, asked: Any) -> bytes:
        """The fingerprint of `asked`, by the newest version and under the current secret.

        Raises:
            UsageError: something in it has no canonical form.
        """
        try:
            encoded = asked if type(asked) is Digest else self._encode(asked)
        except CannotEncode as problem:
            raise _cannot_take(problem) from None
        key = self._key
        if key is not None:
            return self._prefix + hmac.digest(key, encoded, "sha256")
        return self._prefix + (encoded if type(asked) is Digest else sha256(encoded).digest())

    def matches(self, stored: bytes, asked: Any) -> bool:
        """Whether `stored` is the fingerprint of `asked`, taken in the way that `stored` was.

        Raises:
            RecordUnreadable: it was made by a version, or under a secret, that is not known here.
        """
        version, key, digest = self._read(stored)
        try:
            encoded = asked if type(asked) is Digest else self._encoders[version](asked)
        except CannotEncode:
            return False  # an earlier version had no form for it, so it was not asked then
        if key is not None:
            return hmac.compare_digest(digest, hmac.digest(key, encoded, "sha256"))
        return hmac.compare_digest(digest, encoded if type(asked) is Digest else sha256(encoded).digest())

    def _read(self, stored: bytes) -> tuple[int, bytes | None, bytes]:
        """The version, the secret and the digest of a stored fingerprint."""
        first = stored[0] if stored else 0
        version = first & ~_KEYED
        if version not in self._encoders:
            raise _unknown_version(version)
        if not first & _KEYED:
            return version, None, stored[1:]
        key = self._secrets.find(stored[1 : 1 + _NAME_BYTES])
        if key is None:
            raise _unknown_secret()
        return version, key, stored[1 + _NAME_BYTES :]


PLAIN = Fingerprints()


def fingerprint(asked: object) -> bytes:
    """The fingerprint of `asked`, a value or a mapping of names to values, without a secret.

    Raises:
        UsageError: something in it has no canonical form.
    """
    return PLAIN.take(asked)


def _key(secret: object) -> bytes:
    match secret:
        case bytes() | bytearray() if len(secret) >= LEAST_SECRET:
            return bytes(secret)
        case str():
            try:
                return _key(secret.encode())
            except UnicodeEncodeError:
                raise _bad_secrets() from None
    raise _bad_secrets()


def _name(key: bytes) -> bytes:
    """The name of a secret in fingerprints: no encoding begins as this text does, so it is no fingerprint itself."""
    return hmac.digest(key, b"semel.fingerprint.secret", "sha256")[:_NAME_BYTES]


def _bad_secrets() -> UsageError:
    # The secret itself never enters a message.
    return UsageError(
        f"fingerprint_secret= takes a str or bytes of at least {LEAST_SECRET} bytes, or several of them of which only "
        f"the first may be None; nothing ran. Make one with secrets.token_bytes(32)."
    )


def _cannot_take(problem: Exception) -> UsageError:
    return UsageError(
        f"The fingerprint cannot be taken: {problem}. Nothing ran; leave that argument out with ignore=(…), or say "
        f"what is compared with fingerprint=."
    )


def _unknown_version(version: int) -> RecordUnreadable:
    return RecordUnreadable(
        f"The record's fingerprint is of version {version or 'none'}, and this release knows those up to {VERSION}; "
        f"nothing ran. Upgrade semel here before using this key again."
    )


def _unknown_secret() -> RecordUnreadable:
    return RecordUnreadable(
        "The record's fingerprint was made under a secret that is not known here; nothing ran. Give that secret to "
        "fingerprint_secret= as well, after the current one, for as long as its records are kept."
    )
