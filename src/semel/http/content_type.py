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
        media_type: without parameters, in small letters.
        parameters: by name in small letters; None where they can be read in more than one way.
    """

    text: str
    media_type: str
    parameters: dict[str, str] | None

    @property
    def is_json(self) -> bool:
        """Whether the body is JSON in UTF-8, so that every reader finds the same in it."""
        if self.parameters is None or not _JSON.fullmatch(self.media_type):
            return False
        return self.parameters.get("charset", "utf-8").lower() in _UTF8

    @property
    def is_multipart(self) -> bool:
        """Whether the body is a form in parts, with a boundary that this header names."""
        return self.media_type.startswith("multipart/")

    @property
    def compared(self) -> str:
        """What of it counts when requests are compared: all that can change how a body is read."""
        if self.parameters is None:
            return self.text
        # JSON is UTF-8 where nothing is said; a boundary says nothing where parts are compared without it.
        left_out = "charset" if self.is_json else "boundary" if self.is_multipart else ""
        given = [f';{name}="{value}"' for name, value in sorted(self.parameters.items()) if name != left_out]
        return "".join([self.media_type, *given])


def content_type_of(text: str) -> ContentType:
    """The content type that a header gives."""
    if len(text) > _LONGEST:
        return ContentType(text, _media_type(text[:_LONGEST]), None)
    return _known(text)


@lru_cache(maxsize=64)
def _known(text: str) -> ContentType:
    """There are few, and many requests with each."""
    pieces = text.split(";")[1:]
    media_type = _media_type(text)
    is_known = media_type == "" or _MEDIA_TYPE.fullmatch(media_type) is not None
    return ContentType(text, media_type, _parameters(pieces) if is_known else None)


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
