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
from functools import lru_cache
from typing import Any, Final, NoReturn
from unicodedata import normalize

import msgspec

_JSON: Final = re.compile(r"(?:application|text)/json|[a-z]+/[a-z0-9!#$&^_.+-]+\+json")
_BOUNDARY: Final = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s;]{1,70}))', re.IGNORECASE)
_SPACE: Final = " \t\n\r"
_NOT_JSON: Final = "it is not JSON, as its content type says"
_DIGITS: Final = 1000
_MOST_PARTS: Final = 1000
_PATH: Final = re.compile(r"[^.]+(?:\.[^.]+)*")
_LONGEST: Final = 4300
"""Digits of a whole number that Python reads; more are refused by its parser."""
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class BadBody(Exception):
    """The body does not mean one thing; the message is a clause that says why."""


def is_path(path: object) -> bool:
    """Whether this names a member: names with dots between them."""
    return isinstance(path, str) and _PATH.fullmatch(path) is not None


@lru_cache(maxsize=64)
def media_type_of(content_type: str) -> str:
    """What a content type says without its parameters, in small letters."""
    return content_type.partition(";")[0].strip().lower()


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
    if raw or not body:
        return b"raw:" + body
    media_type = media_type_of(content_type)
    if _JSON.fullmatch(media_type):
        return b"json:" + _json(body, exclude)
    if media_type.startswith("multipart/"):
        return _parts(body, content_type)
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
            return value if value.isascii() else normalize("NFC", value)
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


def _decimal(text: str) -> int | msgspec.Raw:
    _check_digits(text)
    mantissa, _, exponent = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    return _number(whole + fraction, int(exponent or 0) - len(fraction), negative=text.startswith("-"))


def _number(digits: str, exponent: int, *, negative: bool) -> int | msgspec.Raw:
    """A number by its value: plain where it is whole, else by its digits without zeros at the ends."""
    short = digits.strip("0")
    if not short:
        return 0
    exponent += len(digits) - len(digits.rstrip("0"))
    sign = "-" if negative else ""
    if 0 <= exponent <= _LONGEST - len(short):
        return int(f"{sign}{short}{'0' * exponent}")
    return msgspec.Raw(f"{sign}{short}e{exponent}".encode())


def _check_digits(text: str) -> None:
    if len(text) > _DIGITS:
        message = f"its JSON holds a number of more than {_DIGITS} digits"
        raise BadBody(message)


def _not_a_number(text: str) -> NoReturn:
    message = f"its JSON holds {text}, which is no number"
    raise BadBody(message)


# Made once: making a decoder costs more than reading a small body with it.
_DECODER: Final = json.JSONDecoder(object_pairs_hook=_members, parse_float=_decimal, parse_constant=_not_a_number)


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


def _parts(body: bytes, content_type: str) -> bytes:
    """A form in parts, without the boundary, which clients choose anew each time; as bytes where it is no such form."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        return b"raw:" + body
    boundary = re.escape((found.group(1) or found.group(2)).encode("latin-1", "replace"))
    # A delimiter stands on a line of its own: what only begins like one is content.
    lines = re.split(rb"\r\n--" + boundary + rb"(--)?[ \t]*(?=\r\n|$)", b"\r\n" + body, maxsplit=_MOST_PARTS)
    contents, ends = lines[2:-1:2], lines[1::2]
    if not ends or ends[-1] is None or any(ends[:-1]):
        return b"raw:" + body
    return b"parts:" + joined(_part(content) for content in contents)


def _part(content: bytes) -> bytes:
    """Headers in any order, their names in any case, and the content as it is."""
    head, _, rest = content.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    lines = (line.partition(b":") for line in head.split(b"\r\n"))
    return joined((joined(sorted(name.lower() + colon + value for name, colon, value in lines)), rest))
