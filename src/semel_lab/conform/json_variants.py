"""Bodies that say the same in other words, or almost the same: JSON changed as text. No I/O.

What always holds: a number is only touched as the letters it is written with, so no spelling is lost on the way.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_TOKEN: Final = re.compile(rf"{_STRING.pattern}|(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")


def is_json(content_type: str) -> bool:
    """Whether a media type is JSON, or made of it."""
    media = content_type.partition(";")[0].strip().lower()
    return media == "application/json" or media.endswith("+json")


def parsed(body: bytes) -> Any:
    """The value, or None where it is not JSON."""
    try:
        return json.loads(body)
    except ValueError:
        return None


def numbers(body: bytes) -> list[re.Match[str]]:
    """Where the numbers stand."""
    return [hit for hit in _TOKEN.finditer(body.decode()) if hit.group(1) is not None]


def with_number(body: bytes, place: re.Match[str], spelling: str) -> bytes:
    """The body with another spelling at that place."""
    text = body.decode()
    return (text[: place.start()] + spelling + text[place.end() :]).encode()


def respelled(body: bytes) -> list[tuple[str, bytes]]:
    """Bodies in which the first number is spelled otherwise: what was done to it, and the body."""
    found = []
    for place in numbers(body)[:1]:
        old = place.group()
        mantissa, _, exponent = old.lower().partition("e")
        fraction = f"{mantissa}0" if "." in mantissa else f"{mantissa}.0"
        plain = f"{Decimal(old):f}"
        spellings = (fraction + (f"e{exponent}" if exponent else ""), f"{plain}e0" if "." in plain else f"{plain}0e-1")
        found += [(f"{new} for {old}", with_number(body, place, new)) for new in spellings]
    return found


def reordered(body: bytes) -> bytes | None:
    """The members the other way round; None where there are not two."""
    value = parsed(body)
    if not isinstance(value, dict) or len(value) < 2:  # noqa: PLR2004 - the least that has an order
        return None
    members = _members(body)
    return ("{" + ",".join(reversed(members)) + "}").encode() if members else None


def spaced(body: bytes) -> bytes:
    """The same with white space around it and after each colon and comma outside of strings."""
    text = re.sub(rf"{_STRING.pattern}|[:,]", _with_space, body.decode())
    return f" {text} \n".encode()


def _with_space(hit: re.Match[str]) -> str:
    return f"{hit.group()} \n" if hit.group() in ":," else hit.group()


def doubled(body: bytes) -> bytes | None:
    """The first member twice, with another value in front; None where there is no member."""
    members = _members(body)
    name = _STRING.match(members[0]) if members else None
    if name is None:
        return None
    return ("{" + ",".join([f'{name.group()}:"another"', *members]) + "}").encode()


def changed(body: bytes) -> bytes | None:
    """The body with something else in it: a number one higher, else a longer string, else a new member."""
    value = parsed(body)
    for place in numbers(body)[:1]:
        old = place.group()
        return with_number(body, place, str(int(old) + 1) if old.lstrip("-").isdigit() else f"{Decimal(old) + 1:f}")
    if not isinstance(value, dict):
        return None
    for name, member in value.items():
        if isinstance(member, str):
            return json.dumps({**value, name: f"{member}x"}).encode()
    return json.dumps({**value, "semel": 1}).encode()


def _members(body: bytes) -> list[str]:
    """The members of the outermost object as they are written, each without the comma."""
    text = body.decode().strip()
    if not isinstance(parsed(body), dict) or text == "{}":
        return []
    found, depth, start = [], 0, 1
    for hit in re.finditer(rf"{_STRING.pattern}|[\[\]{{}},]", text):
        match hit.group():
            case "{" | "[":
                depth += 1
            case "}" | "]":
                depth -= 1
            case "," if depth == 1:
                found.append(text[start : hit.start()].strip())
                start = hit.end()
            case _:
                pass
    last = text[start:-1].strip()
    return [*found, last] if last else found
