"""What the header Content-Type says: a media type and its parameters. No I/O.

What always holds: parameters are taken apart only where every reader takes them apart in the same way. Where one is
there twice, is not closed, or is spelt in a way that some readers know and others do not, there are none, and whoever
asks has to compare the header as it stands.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

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
