"""What a body says, so that the same request is recognised however it was spelt. No I/O.

What always holds: two bodies count as the same only if they are equal: JSON by its members in any order, text in one
Unicode form, numbers by their exact decimal value; everything else byte for byte, forms in parts part by part. JSON
that is ambiguous (a member twice, NaN, half a character) is refused.

What the header Content-Type says: a media type and its parameters. No I/O.

What always holds: parameters are taken apart only where every reader takes them apart in the same way. Where one is
there twice, is not closed, or is spelt in a way that some readers know and others do not, there are none, and whoever
asks has to compare the header as it stands.

A form in parts, so that it is recognised under another boundary, which clients choose anew each time. No I/O.

What always holds: a form is taken apart only where every reader takes it apart in the same way. Text before the first
part or behind the last, lines that end without a carriage return, what only looks like a delimiter, headers that are
folded or there twice: readers differ there, so such a form has no parts and is compared as it stands.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NoReturn

import msgspec

from semel.core.fingerprint import TooManyMarks, normalize_text, number_text

_JSON: Final = re.compile(r"(?:application|text)/json|[a-z]+/[a-z0-9!#$&^_.+-]+\+json")
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+")
# Without backslashes, of which readers differ in what they escape, and without the star of names that have a charset.
_PARAMETER: Final = re.compile(r'[ \t]*([!#$%&\'+.^_`|~0-9A-Za-z-]+)=(?:([^\s"<>;,\\]+)|"([^"\\]*)")[ \t]*')
_MOST_PARAMETERS: Final = 8
_LONGEST: Final = 512
_UTF8: Final = frozenset({"utf-8", "utf8"})


class ContentType(msgspec.Struct, frozen=True):
    """A content type.

    Attributes:
        text: as it was sent.
        parameters: by name in small letters; None where they can be read in more than one way.
        is_json: whether the body is JSON in UTF-8, so that every reader finds the same in it.
        is_multipart: whether the body is a form in parts, with a boundary that this header names.
        compared: what of it counts when requests are compared: all that can change how a body is read.
    """

    text: str
    parameters: dict[str, str] | None
    is_json: bool
    is_multipart: bool
    compared: str


def content_type_of(text: str) -> ContentType:
    """The content type that a header gives."""
    if len(text) > _LONGEST:
        return ContentType(text, None, is_json=False, is_multipart=_is_multipart(text[:_LONGEST]), compared=text)
    return _known(text)


@lru_cache(maxsize=64)
def _known(text: str) -> ContentType:
    """There are few, and many requests with each."""
    media_type = _media_type(text)
    is_known = media_type == "" or _MEDIA_TYPE.fullmatch(media_type) is not None
    parameters = _parameters(text.split(";")[1:]) if is_known else None
    is_multipart = _is_multipart(text)
    if parameters is None:
        return ContentType(text, None, is_json=False, is_multipart=is_multipart, compared=text)
    is_utf8 = parameters.get("charset", "utf-8").lower() in _UTF8
    is_json = is_utf8 and _JSON.fullmatch(media_type) is not None
    # JSON is UTF-8 where nothing is said; a boundary says nothing where parts are compared without it.
    left_out = "charset" if is_json else "boundary" if is_multipart else ""
    counting = [f';{name}="{value}"' for name, value in sorted(parameters.items()) if name != left_out]
    compared = "".join([media_type, *counting])
    return ContentType(text, parameters, is_json=is_json, is_multipart=is_multipart, compared=compared)


def _is_multipart(text: str) -> bool:
    return _media_type(text).startswith("multipart/")


def _media_type(text: str) -> str:
    return text.partition(";")[0].strip(" \t").lower()


def _parameters(pieces: list[str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for piece in filter(str.strip, pieces):
        match = _PARAMETER.fullmatch(piece)
        name = "" if match is None else match.group(1).lower()
        if match is None or name in found or len(found) == _MOST_PARAMETERS:
            return None
        found[name] = match.group(2) or match.group(3) or ""
    return found


_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_./:=?-]{1,70}")
_MOST_PARTS: Final = 1000
_LINE: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n]*)")

Part = tuple[list[bytes], bytes]
"""The header lines of a part, sorted, their names in small letters; and its content."""


def parts_of(body: bytes, content_type: ContentType) -> list[Part] | None:
    """The parts of a form; None where it can be read in more than one way."""
    boundary = (content_type.parameters or {}).get("boundary", "")
    if not _BOUNDARY.fullmatch(boundary):
        return None
    delimiter = b"--" + boundary.encode()
    first, *pieces = (b"\r\n" + body).split(b"\r\n" + delimiter, _MOST_PARTS + 1)
    if first or not pieces or pieces.pop() not in (b"--", b"--\r\n") or body.count(delimiter) != len(pieces) + 1:
        return None
    parts = [_part(piece) for piece in pieces]
    found = [part for part in parts if part is not None]
    return found if len(found) == len(parts) else None


def _part(piece: bytes) -> Part | None:
    """One part: what stands between two delimiters."""
    head, blank, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    lines = [_LINE.fullmatch(line) for line in head.split(b"\r\n")]
    found = {line.group(1).lower(): line.group(2) for line in lines if line is not None}
    if not piece.startswith(b"\r\n") or not blank or len(found) != len(lines):
        return None
    return sorted(name + b":" + value for name, value in found.items()), content


_SPACE: Final = " \t\n\r"
_NOT_JSON: Final = "it is not JSON, as its content type says"
_DIGITS: Final = 1000
_SHORT: Final = 18
"""Digits of a whole number that is read as one at once."""
_SHOWN: Final = 40
"""How much of the name of a member is shown in a message."""
_PATH: Final = re.compile(r"[^.]+(?:\.[^.]+)*")
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class BadBody(Exception):
    """The body is ambiguous; the message is a clause that says why."""


def is_path(path: object) -> bool:
    """Whether this names a member: names with dots between them."""
    return isinstance(path, str) and _PATH.fullmatch(path) is not None


def meaning(body: bytes, content_type: str, *, ignore_fields: Sequence[str] = (), as_bytes: bool = False) -> bytes:
    """What enters the fingerprint for a body: bytes that are equal where the bodies say the same.

    Args:
        body: all of it.
        content_type: as the request says.
        ignore_fields: members of a JSON body that do not count, as dotted paths.
        as_bytes: whether the bytes count as they are.

    Raises:
        BadBody: the JSON is ambiguous.
    """
    kind = content_type_of(content_type)
    if not body:
        return b"raw:"
    if kind.is_multipart:
        return _form(body, kind, as_bytes=as_bytes)
    if kind.is_json and not as_bytes:
        return b"json:" + _json(body, ignore_fields)
    return b"raw:" + body


def joined(segments: Iterable[bytes]) -> bytes:
    """Segments one behind the other, each with its length, so that no two lists give the same bytes."""
    return b"".join([b"%d:%b" % (len(segment), segment) for segment in segments])


def _json(body: bytes, ignore_fields: Sequence[str]) -> bytes:
    try:
        return _canonical(_without(_parsed(body), ignore_fields))
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
            return normalize_text(value)
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
        name = Counter(name for name, _ in pairs).most_common(1)[0][0]
        message = f"the member {name[:_SHOWN]!r} appears twice"
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


def _form(body: bytes, kind: ContentType, *, as_bytes: bool) -> bytes:
    """A form by its parts; where it has none, by its bytes and by the header that says how to read them."""
    parts = None if as_bytes else parts_of(body, kind)
    if parts is None:
        return b"raw:" + joined((kind.text.encode("utf-8", "surrogatepass"), body))
    return b"parts:" + joined(joined((joined(lines), content)) for lines, content in parts)
