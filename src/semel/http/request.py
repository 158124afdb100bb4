"""A request as rules see it: its head, and what the framework knows about it. No I/O.

The key in a header: from field lines to one key, or a reason why not. No I/O.

What always holds: a quoted key (a structured-field string) and the same key bare are one. More than one field line, a
list, a bad escape, anything outside printable ASCII, nothing at all and more than 255 characters are refused before any
look-up, and so is a key whose spelling could be read in two ways.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec


class State:
    """What authentication left with the request, as attributes: `request.state.user`."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or `default`."""
        return self._values.get(name, default)


class Headers:
    """Header lines in order; names in any case."""

    __slots__ = ("_lines",)

    def __init__(self, lines: Iterable[tuple[str, str]]) -> None:
        self._lines = tuple(lines)

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Every line, in order."""
        return self._lines

    def all(self, name: str) -> list[str]:
        """Every line of that name."""
        wanted = name.lower()
        return [value for known, value in self.lines if known.lower() == wanted]

    def get(self, name: str, default: str = "") -> str:
        """The first line of that name."""
        wanted = name.lower()
        return next((value for known, value in self.lines if known.lower() == wanted), default)

    def __contains__(self, name: str) -> bool:
        wanted = name.lower()
        return any(known.lower() == wanted for known, _ in self.lines)


class RawHeaders(Headers):
    """Header lines as bytes, as ASGI gives them; only those asked for are made text."""

    __slots__ = ("_by_name", "_raw")

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._raw = raw if isinstance(raw, list) else list(raw)
        by_name = dict(self._raw)
        # Nearly all requests name each header once and in small letters; of the others every line is looked at.
        once = len(by_name) == len(self._raw) and b"".join(by_name).islower()
        self._by_name = by_name if once else None

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Every line, in order."""
        return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._raw)

    def all(self, name: str) -> list[str]:
        """Every line of that name."""
        wanted = _wire_name(name)
        if self._by_name is not None:
            found = self._by_name.get(wanted)
            return [] if found is None else [found.decode("latin-1")]
        return [value.decode("latin-1") for known, value in self._raw if known.lower() == wanted]

    def get(self, name: str, default: str = "") -> str:
        """The first line of that name."""
        found = self.all(name)
        return found[0] if found else default

    def __contains__(self, name: str) -> bool:
        return bool(self.all(name))


@lru_cache(maxsize=256)
def _wire_name(name: str) -> bytes:
    """The name of a header as ASGI has it; rules ask for few, and again for each request."""
    return name.lower().encode("latin-1")


class Request(msgspec.Struct, frozen=True, eq=False):
    """What a scope or key rule is given.

    Attributes:
        method: in capitals.
        path: decoded, without the query.
        query: as it was sent.
        headers: all lines.
        state: what authentication left with the request.
        native: the framework's own: the ASGI scope, the WSGI environ, Django's, Flask's or Starlette's request.
        body: all of it, once it was read; empty before.
        mount: where the application is mounted; the path begins with it.
    """

    method: str
    path: str
    query: str
    headers: Headers
    state: State
    native: Any = None
    body: bytes = b""
    mount: str = ""

    @property
    def path_below(self) -> str:
        """The path as the application knows it, wherever it is mounted."""
        return below(self.path, self.mount)


def below(path: str, mount: str) -> str:
    """The part of a path that lies below a mount; all of it where it does not lie there."""
    mount = mount.rstrip("/")
    return (path[len(mount) :] or "/") if mount and f"{path}/".startswith(f"{mount}/") else path


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


def key_of(lines: Sequence[str], *, min_length: int = 1) -> str | None:
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
    if len(key) < min_length:
        message = f"it has {len(key)} characters, fewer than the {min_length} asked for"
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
