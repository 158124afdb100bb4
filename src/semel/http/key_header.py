"""The key in a header: from field lines to one key, or a reason why not. No I/O.

What always holds: a quoted key (a structured-field string) and the same key bare are one. More than one field line, a
list, a bad escape, anything outside printable ASCII, nothing at all and more than 255 characters are refused before any
look-up, and so is a key whose spelling could be read in two ways.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

LONGEST: Final = 255

_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"(.*)', re.DOTALL)
_BARE: Final = re.compile(r"[!#-+\--:<-\[\]-~]+")  # printable, without space, quote, comma, semicolon, backslash
_NUMBER: Final = r"-?(?:[0-9]{1,12}\.[0-9]{1,3}|[0-9]{1,15})"
_TEXT: Final = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
_WORD: Final = r"[A-Za-z*][!#$%&'*+\-.^_`|~:/0-9A-Za-z]*"
_OTHERS: Final = r':[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{1,15}|%"(?:[ !#$&-~]|%[0-9a-f]{2})*"'
_ITEM: Final = rf"(?:{_NUMBER}|{_TEXT}|{_WORD}|{_OTHERS})"
_PARAMETERS: Final = re.compile(rf"(?:; *[a-z*][a-z0-9_\-.*]*(?:={_ITEM})?)*")
_ESCAPE: Final = re.compile(r'\\(["\\])')


class BadKey(Exception):
    """The header is there and gives no key; the message is a clause that says why."""


def key_of(lines: Sequence[str], *, shortest: int = 1) -> str | None:
    """The key in the field lines of one header; None where there are none.

    Raises:
        BadKey: they give no key.
    """
    if not lines:
        return None
    if len(lines) > 1:
        message = "it was sent more than once"
        raise BadKey(message)
    key = _read(lines[0].strip(" \t"))
    if not key:
        message = "it is empty"
        raise BadKey(message)
    if len(key) > LONGEST:
        message = f"it has {len(key)} characters, more than the {LONGEST} allowed"
        raise BadKey(message)
    if len(key) < shortest:
        message = f"it has {len(key)} characters, fewer than the {shortest} asked for"
        raise BadKey(message)
    return key


def _read(text: str) -> str:
    if not text.startswith('"'):
        if text and not _BARE.fullmatch(text):
            raise BadKey(_why_not_bare(text))
        return text
    found = _QUOTED.fullmatch(text)
    if found is None:
        message = (
            'its quotes are not closed, or it holds an escape other than \\" and \\\\ or a character outside ASCII'
        )
        raise BadKey(message)
    if not _PARAMETERS.fullmatch(found.group(2).rstrip(" ")):
        message = "something follows the closing quote; a list is not a key"
        raise BadKey(message)
    return _ESCAPE.sub(r"\1", found.group(1))


def _why_not_bare(text: str) -> str:
    if not text.isascii() or not text.isprintable():
        return "it holds control characters or characters outside ASCII"
    return "without quotes it must not hold spaces, quotes, commas, semicolons or backslashes"
