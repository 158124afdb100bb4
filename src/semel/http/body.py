"""What a body says, so that the same request is recognised however it was spelt. No I/O.

What always holds: two bodies count as the same only if they are equal: JSON by its members in any order, text in one
Unicode form, numbers by their exact decimal value; everything else byte for byte, forms in parts part by part. JSON
that does not mean one thing (a member twice, NaN, half a character) is refused.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

import msgspec

from semel.core.canonical import number_text
from semel.core.text import TooManyMarks, normalized
from semel.http.content_type import ContentType, content_type_of
from semel.http.multipart import parts_of

_SPACE: Final = " \t\n\r"
_NOT_JSON: Final = "it is not JSON, as its content type says"
_DIGITS: Final = 1000
_SHORT: Final = 18
"""Digits of a whole number that is read as one at once."""
_PATH: Final = re.compile(r"[^.]+(?:\.[^.]+)*")
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class BadBody(Exception):
    """The body does not mean one thing; the message is a clause that says why."""


def is_path(path: object) -> bool:
    """Whether this names a member: names with dots between them."""
    return isinstance(path, str) and _PATH.fullmatch(path) is not None


def meaning(body: bytes, content_type: str, *, exclude: Sequence[str] = (), raw: bool = False) -> bytes:
    """What enters the fingerprint for a body: bytes that are equal where the bodies say the same.

    Args:
        body: all of it.
        content_type: as the request says.
        exclude: members of a JSON body that do not count, as dotted paths.
        raw: whether the bytes count as they are.

    Raises:
        BadBody: JSON that does not mean one thing.
    """
    kind = content_type_of(content_type)
    if not body:
        return b"raw:"
    if kind.is_multipart:
        return _form(body, kind, raw=raw)
    if kind.is_json and not raw:
        return b"json:" + _json(body, exclude)
    return b"raw:" + body


def joined(segments: Iterable[bytes]) -> bytes:
    """Segments one behind the other, each with its length, so that no two lists give the same bytes."""
    return b"".join([b"%d:%b" % (len(segment), segment) for segment in segments])


def _json(body: bytes, exclude: Sequence[str]) -> bytes:
    try:
        return _canonical(_without(_parsed(body), exclude))
    except RecursionError as problem:
        message = "its JSON is nested too deeply"
        raise BadBody(message) from problem
    except TooManyMarks as problem:
        raise BadBody(str(problem)) from problem


def _parsed(body: bytes) -> Any:
    try:
        text = body.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as problem:
        message = "its JSON is not UTF-8"
        raise BadBody(message) from problem
    try:
        found, end = _DECODER.raw_decode(text := text.strip(_SPACE))
    except ValueError as problem:
        raise BadBody(_NOT_JSON) from problem
    if end != len(text):
        raise BadBody(_NOT_JSON)
    # Nearly all text has one form already.
    return found if text.isascii() and "\\u" not in text else _one_form(found)


def _one_form(value: Any) -> Any:
    """The same with all text, names included, in one Unicode form."""
    match value:
        case str():
            return normalized(value)
        case dict():
            return _members([(_one_form(name), _one_form(item)) for name, item in value.items()])
        case list():
            return [_one_form(item) for item in value]
        case _:
            return value


def _canonical(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError as problem:
        message = "its JSON holds half a character"
        raise BadBody(message) from problem


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        message = "its JSON names a member twice"
        raise BadBody(message)
    return found


def _whole(text: str) -> int | msgspec.Raw:
    return int(text) if len(text) <= _SHORT else _decimal(text)


def _decimal(text: str) -> msgspec.Raw:
    """A number by its value, whatever its spelling; it is never written out as long as its exponent says."""
    _check_digits(text)
    mantissa, _, exponent = text.removeprefix("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent or 0) - len(fraction)
    return msgspec.Raw(number_text(whole + fraction, power, negative=text.startswith("-")).encode())


def _check_digits(text: str) -> None:
    if len(text) > _DIGITS:
        message = f"its JSON holds a number of more than {_DIGITS} digits"
        raise BadBody(message)


def _not_a_number(text: str) -> NoReturn:
    message = f"its JSON holds {text}, which is no number"
    raise BadBody(message)


# Made once: making a decoder costs more than reading a small body with it.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_float=_decimal, parse_int=_whole, parse_constant=_not_a_number
)


def _without(value: Any, paths: Sequence[str]) -> Any:
    for path in paths:
        value = _pruned(value, path.split("."))
    return value


def _pruned(value: Any, path: list[str]) -> Any:
    if isinstance(value, list):
        return [_pruned(item, path) for item in value]
    if not isinstance(value, dict) or path[0] not in value:
        return value
    if len(path) == 1:
        return {name: item for name, item in value.items() if name != path[0]}
    return {**value, path[0]: _pruned(value[path[0]], path[1:])}


def _form(body: bytes, kind: ContentType, *, raw: bool) -> bytes:
    """A form by its parts; where it has none, by its bytes and by the header that says how to read them."""
    parts = None if raw else parts_of(body, kind)
    if parts is None:
        return b"raw:" + joined((kind.text.encode("utf-8", "surrogatepass"), body))
    return b"parts:" + joined(joined((joined(lines), content)) for lines, content in parts)
