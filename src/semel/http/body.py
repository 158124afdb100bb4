"""What a body says, so that the same request is recognised however it was spelt. No I/O.

What always holds: two bodies count as the same only if they are equal: JSON by its members in any order, text in one
Unicode form, numbers by their exact decimal value; everything else byte for byte, forms in parts part by part. JSON
that does not mean one thing (a member twice, NaN, half a character) is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

_JSON: Final = re.compile(r"application/(?:json|[a-z0-9!#$&^_.+-]+\+json)", re.IGNORECASE)
_BOUNDARY: Final = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s;]{1,70}))', re.IGNORECASE)
_DIGITS: Final = 1000
_PATH: Final = re.compile(r"[^.]+(?:\.[^.]+)*")


class BadBody(Exception):
    """The body does not mean one thing; the message is a clause that says why."""


def is_path(path: object) -> bool:
    """Whether this names a member: names with dots between them."""
    return isinstance(path, str) and _PATH.fullmatch(path) is not None


def meaning(body: bytes, content_type: str, *, exclude: Sequence[str] = (), raw: bool = False) -> Any:
    """What enters the fingerprint for a body.

    Args:
        body: all of it.
        content_type: as the request says.
        exclude: members of a JSON body that do not count, as dotted paths.
        raw: whether the bytes count as they are.

    Raises:
        BadBody: JSON that does not mean one thing.
    """
    media_type = content_type.partition(";")[0].strip()
    if raw or not body:
        return body
    if _JSON.fullmatch(media_type):
        return ("json", _without(_parsed(body), exclude))
    if media_type.lower() == "multipart/form-data":
        return _parts(body, content_type)
    return body


def _parsed(body: bytes) -> Any:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        message = "its JSON is not UTF-8"
        raise BadBody(message) from problem
    try:
        return _DECODER.decode(text)
    except RecursionError as problem:
        message = "its JSON is nested too deeply"
        raise BadBody(message) from problem
    except ValueError as problem:
        message = "it is not JSON, as its content type says"
        raise BadBody(message) from problem


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        message = "its JSON names a member twice"
        raise BadBody(message)
    return found


def _decimal(text: str) -> Decimal:
    if len(text) > _DIGITS:
        message = f"its JSON holds a number of more than {_DIGITS} digits"
        raise BadBody(message)
    try:
        return Decimal(text)
    except InvalidOperation as problem:
        message = "its JSON holds a number that cannot be compared"
        raise BadBody(message) from problem


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        message = f"its JSON holds a number of more than {_DIGITS} digits"
        raise BadBody(message)
    return int(text)


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


def _parts(body: bytes, content_type: str) -> Any:
    """A form in parts, without the boundary, which clients choose anew each time; as bytes where it is no such form."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        return body
    boundary = b"--" + (found.group(1) or found.group(2)).encode("latin-1", "replace")
    first, *parts = (b"\r\n" + body).split(b"\r\n" + boundary)
    if first or not parts or not parts[-1].startswith(b"--"):
        return body
    split = [part.removeprefix(b"\r\n").partition(b"\r\n\r\n") for part in parts[:-1]]
    return ("parts", [(sorted(head.lower().split(b"\r\n")), content) for head, _, content in split])
