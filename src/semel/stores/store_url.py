"""The parts of a store's URL, which may name several hosts.

- The result does not depend on the release of Python, some of which refuse a list of hosts with brackets in it.
- A part that cannot be read is refused before anything is opened; the message never shows the URL.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import SplitResult

from semel.errors import UsageError

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
