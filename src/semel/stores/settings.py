"""Parsing of settings, which are text in URLs and values in keywords, and of URLs; the clock of embedded stores.

- A value that cannot be used is refused by the name of its setting before anything is opened; the message says what can
  be used.
- A URL may name several hosts. How it is split does not depend on the release of Python, some of which refuse a list of
  hosts with brackets in it; the message about a part that cannot be read never shows the URL.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from inspect import Parameter, signature
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import SplitResult
from weakref import WeakKeyDictionary

from semel.errors import UsageError
from semel.validation import BELONGS, explain_unknown, to_timedelta

T = TypeVar("T")
StoreClock = Callable[[], int]


def machine_clock() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


Reader = Callable[[str, Any], Any]
"""Takes the name of a setting and the value given for it, and gives the value that is used."""

HOUR: Final = 3600
DAY: Final = 24 * HOUR
_WORDS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def read(given: Mapping[str, Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    """What is given, each value as its reader has it; what has none stays as it is.

    Raises:
        UsageError: one of them is not usable.
    """
    return {name: readers[name](name, value) if name in readers else value for name, value in given.items()}


def make_store(scheme: str, kind: Callable[..., T], *arguments: Any, **settings: Any) -> T:
    """A store of `kind`; its settings come from people, who may have meant another place for them.

    Raises:
        UsageError: such a store has no setting of that name.
    """
    known = _names_of(kind)
    for name in sorted(settings):
        if name not in known if known is not None else name in BELONGS:
            message = explain_unknown(f"{scheme}://", name, known or (), outcome="nothing was opened")
            raise UsageError(message)
    return kind(*arguments, **settings)


def _names_of(kind: Callable[..., object]) -> frozenset[str] | None:
    """The settings that a store takes by keyword; None where it looks at them itself."""
    declared: frozenset[str] | None = getattr(kind, "setting_names", None)
    if declared is not None:
        return declared
    parameters = signature(kind).parameters.values()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters if parameter.kind is Parameter.KEYWORD_ONLY)


def seconds(up_to: float) -> Reader:
    """A duration: a `timedelta` or a number of seconds, which in a URL is text."""

    def reader(name: str, value: Any) -> float:
        try:
            given = float(value) if isinstance(value, str) else value
        except ValueError:
            given = value
        return to_timedelta(name, given, longest=timedelta(seconds=up_to), outcome="nothing was opened").total_seconds()

    return reader


def count(least: int, most: int | None = None) -> Reader:
    """A whole number."""

    def reader(name: str, value: Any) -> int:
        number = _whole(value)
        if number is None or number < least or (most is not None and number > most):
            raise _refusal(name, f"a whole number from {least} {'on' if most is None else f'to {most}'}", value)
        return number

    return reader


def _whole(value: Any) -> int | None:
    if isinstance(value, float) and not value.is_integer():
        return None  # int() would cut the rest off
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def truth(name: str, value: Any) -> bool:
    """Yes or no."""
    known = value if isinstance(value, bool) else _WORDS.get(str(value).lower())
    if known is None:
        raise _refusal(name, "true or false", value)
    return known


def text(name: str, value: Any) -> str:
    """A word, taken as it is."""
    if not isinstance(value, str):
        raise _refusal(name, "a text", value)
    return value


def _refusal(name: str, wanted: str, value: Any) -> UsageError:
    return UsageError(f"{name} must be {wanted}, not {value!r}; nothing was opened.")


class PoolSettings(Protocol):
    """What the settings of a store say of the ages of its connections."""

    @property
    def min_idle(self) -> int:
        """How many are kept, however long nobody uses them."""

    @property
    def idle_for(self) -> float | None:
        """How many seconds a connection is kept unused."""

    @property
    def lifetime(self) -> float | None:
        """How many seconds after it was opened a connection is replaced."""


class ConnectionAges:
    """When connections were opened and given back, and which of them are too old. Whoever calls it holds a lock."""

    def __init__(self, settings: PoolSettings, monotonic: Callable[[], float]) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._opened: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
        self._returned: WeakKeyDictionary[Any, float] = WeakKeyDictionary()

    def on_open(self, connection: Any) -> None:
        """A connection was opened."""
        self._opened[connection] = self._returned[connection] = self._monotonic()

    def on_return(self, connection: Any) -> None:
        """A connection is not in use any more."""
        self._returned[connection] = self._monotonic()

    def take_old(self, idle: list[Any]) -> list[Any]:
        """Take out of `idle`, which has the one that was used last at its end, those that are to be closed."""
        now, settings = self._monotonic(), self._settings
        lifetime, idle_for = settings.lifetime, settings.idle_for
        old = [] if lifetime is None else [each for each in idle if now - self._opened.get(each, now) >= lifetime]
        kept = [each for each in idle if each not in old]
        while idle_for is not None and len(kept) > settings.min_idle:
            if now - self._returned.get(kept[0], now) < idle_for:
                break
            old.append(kept.pop(0))
        idle[:] = kept
        return old


def connection_ages(settings: PoolSettings, monotonic: Callable[[], float]) -> ConnectionAges | None:
    """What knows the ages of connections; None where none is ever too old."""
    if settings.lifetime is None and settings.idle_for is None:
        return None
    return ConnectionAges(settings, monotonic)


Address = tuple[str, int | None]
"""A host in lower case, without brackets, and its port; an empty host and None stand for what was left out."""

_AUTHORITY_ENDS: Final = re.compile(r"[/?#]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_HOST: Final = re.compile(r"(?:\[(?P<ipv6>[^\[\]]*)\]|(?P<name>[^\[\]:]*))(?::(?P<port>\d{0,5}))?", re.ASCII)
_LAST_PORT: Final = 65535


def split_url(url: str) -> SplitResult:
    """Split `url` as `urlsplit` does, except that the hosts may be a list.

    Raises:
        UsageError: it has no scheme, contains control characters, or one of its hosts cannot be read.
    """
    scheme, colon, rest = url.strip().partition("://")
    if not colon or not scheme or _CONTROL.search(rest):
        raise _url_error("The URL of a store begins with a scheme and contains no control characters")
    end = found.start() if (found := _AUTHORITY_ENDS.search(rest)) else len(rest)
    authority, rest = rest[:end], rest[end:]
    rest, _, fragment = rest.partition("#")
    path, _, query = rest.partition("?")
    parts = SplitResult(scheme.lower(), authority, path, query, fragment)
    _check_login(parts)
    addresses_of(parts)
    return parts


def _check_login(parts: SplitResult) -> None:
    """Refuse a user or password that is not escaped, or wrongly: its rest would be shown as part of something else."""
    if _BAD_ESCAPE.search(parts.netloc):
        raise _url_error("The user or password in the URL of a store has a % without two hexadecimal digits after it")
    names = [pair.partition("=")[0] for pair in parts.query.split("&")]
    if "@" not in parts.netloc and any("@" in text for text in (parts.path, parts.fragment, *names)):
        raise _url_error("The URL of a store has an @ after its first / ? or #")


def join_url(parts: SplitResult) -> str:
    """The URL that has these parts, with two slashes even where it names no host."""
    query = f"?{parts.query}" if parts.query else ""
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{query}{fragment}"


def addresses_of(parts: SplitResult) -> tuple[Address, ...]:
    """The hosts of a URL with their ports, in their order.

    Raises:
        UsageError: one of them cannot be read.
    """
    return tuple(_address(host) for host in parts.netloc.rpartition("@")[2].split(","))


def _address(text: str) -> Address:
    found = _HOST.fullmatch(text)
    if found is None:
        raise _url_error("A host in the URL of a store cannot be read")
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 0 < port <= _LAST_PORT:
        raise _url_error(f"The port of a host is a number from 1 to {_LAST_PORT}")
    if found["ipv6"] is not None:
        return _ipv6(found["ipv6"]), port
    return found["name"].lower(), port


def _ipv6(text: str) -> str:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        raise _url_error("Brackets in the URL of a store enclose an IPv6 address") from None
    address, percent, zone = text.partition("%")
    return f"{address.lower()}{percent}{zone}"


def _url_error(why: str) -> UsageError:
    message = (
        f"{why}; nothing was opened. Write hosts as name:port or [::1]:port, and characters such as [ ] @ / : in a "
        "user name or password as %5B %5D %40 %2F %3A."
    )
    return UsageError(message)
