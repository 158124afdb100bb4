"""Settings of a Redis store: addresses, timeouts, and the names of its keys.

- Everything is checked before anything is opened, and the name of a store never shows a password.
- Two digests never share a key. Braces of an operation are escaped: in a cluster only what stands in braces decides the
  slot, and one node would hold a whole operation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, unquote

from semel.errors import UsageError
from semel.stores.settings import DAY, HOUR, Reader, StoreClock, addresses_of, count, read, seconds, split_url, truth

DEFAULT: Final = "semel:{operation}:{digest}"

_PLACES: Final = re.compile(r"\{(\w*)\}")
_ESCAPES: Final = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
_GLOB: Final = re.compile(r"([*?\[\]\\^])")


class Pattern:
    """A pattern with the places {operation}, which may be missing, and {digest}."""

    def __init__(self, text: str) -> None:
        self.text = text
        places = _PLACES.findall(text)
        if sorted(places) not in (["digest"], ["digest", "operation"]) or set(_PLACES.sub("", text)) & set("{}"):
            message = (
                f"The pattern of a key holds {{digest}} once and {{operation}} at most once, and no other braces, not "
                f"{text!r}; nothing was opened. Write for example myapp:{{operation}}:{{digest}}."
            )
            raise UsageError(message)
        self.names_operation = "operation" in places
        self.channel = f"{_PLACES.split(text)[0]}ended"
        """The channel on which ends are published."""
        self.worker = f"{_PLACES.split(text)[0]}worker:"
        """What the keys of workers begin with; none of them is a key of a record."""
        self._letters = f"{_PLACES.split(text)[0]}letters:"
        self._literal = text.replace("{operation}", "\0operation").replace("{digest}", "\0digest")
        shape = re.escape(self._literal)
        shape = shape.replace(re.escape("\0operation"), "(?P<operation>.*)")
        self._shape = re.compile(shape.replace(re.escape("\0digest"), "(?P<digest>[0-9a-f]{64})"), re.DOTALL)

    def key(self, operation: str, digest: bytes) -> str:
        """The key of a record."""
        before, after = _around(self._literal, operation)
        return f"{before}{digest.hex()}{after}"

    def match(self, operation: str | None = None, reference: str = "") -> str:
        """A glob for the keys of an operation, or of all; `reference` is how the digest in hex begins."""
        wanted = "*" if operation is None else _GLOB.sub(r"\\\1", operation.translate(_ESCAPES))
        literal = _GLOB.sub(r"\\\1", self._literal)
        digest = reference if len(reference) == 64 else f"{reference}*"  # noqa: PLR2004 - digits of a digest
        return literal.replace("\0operation", wanted).replace("\0digest", digest)

    def letters(self, key: str) -> str:
        """The key of the dead letters of a record: in its slot, which is made of what stands in the first braces."""
        return f"{self._letters}{{{key}}}"

    def match_letters(self, operation: str | None = None) -> str:
        """A glob for the keys of dead letters of an operation, or of all."""
        before = _GLOB.sub(r"\\\1", self._letters)
        return f"{before}{{{self.match(operation)}}}"

    def digest(self, key: str) -> bytes | None:
        """The digest in a key; None where it is no key of this pattern."""
        found = self._shape.fullmatch(key)
        return None if found is None else bytes.fromhex(found["digest"])


@lru_cache(maxsize=1024)
def _around(literal: str, operation: str) -> tuple[str, str]:
    """What stands before and after the digest in the keys of an operation: there are few of these, and many keys."""
    before, _, after = literal.replace("\0operation", operation.translate(_ESCAPES)).partition("\0digest")
    return before, after


Address = tuple[str, int]
Kind = Literal["one", "cluster", "sentinel"]
_KINDS: Final[dict[str, tuple[Kind, int]]] = {
    "redis": ("one", 6379),
    "rediss": ("one", 6379),
    "redis+cluster": ("cluster", 6379),
    "redis+sentinel": ("sentinel", 26379),
}
_READERS: Final[dict[str, Reader]] = {
    **dict.fromkeys(("connect_timeout", "timeout"), seconds(HOUR)),
    **dict.fromkeys(("idle_for", "lifetime"), seconds(DAY)),
    **dict.fromkeys(("listen", "tls"), truth),
    "db": count(0),
}
_FORMS: Final = (
    "redis://host:6379/0, rediss://host:6379/0, redis+cluster://host:6379,host:6379 or "
    "redis+sentinel://host:26379,host:26379/service"
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a store was given.

    Attributes:
        name: where the records are, for messages: without user, password and settings.
        kind: one server, a cluster, or a primary that Sentinel names.
        addresses: the server; nodes of the cluster to begin with; or the Sentinels.
        service: what the Sentinels call the primary.
        db: the number of the database; a cluster has only 0.
        username: who logs in.
        password: with which word.
        sentinel_username: who logs in to the Sentinels, where they ask.
        sentinel_password: with which word.
        tls: whether connections are encrypted; `rediss://` says so.
        tls_options: further options of the client library, as in `ssl_ca_certs=…`.
        connect_timeout: how many seconds a connection may take.
        timeout: how many seconds all replies of a round may take.
        idle_for: how many seconds a connection is kept unused; None: for ever. It is closed when the next one is taken.
        lifetime: how many seconds after it was opened a connection is replaced by a new one; None: never.
        pattern: how the key of a record is spelt.
        evicting: `allowed` accepts a server that removes keys when its memory is full.
        listen: whether each process that has waiters keeps one more connection for notifications; else they poll.
        clock: a virtual clock instead of the server's, for tests alone.
    """

    name: str
    kind: Kind
    addresses: tuple[Address, ...]
    service: str = ""
    db: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_timeout: float = 5.0
    timeout: float = 5.0
    idle_for: float | None = None
    lifetime: float | None = None
    pattern: str = DEFAULT
    evicting: Literal["refused", "allowed"] = "refused"
    listen: bool = True
    clock: StoreClock | None = None

    @property
    def min_idle(self) -> int:
        """None: whatever nobody used for `idle_for` is closed."""
        return 0

    @classmethod
    def of(cls, url: str, **given: Any) -> Settings:
        """The settings in `url` and in `given`, which go first.

        Raises:
            UsageError: one of them is not usable.
        """
        parts = split_url(url)
        kind, port = _KINDS[parts.scheme]
        login = parts.netloc.rpartition("@")[0]
        username, _, password = login.partition(":")
        queried = dict(parse_qsl(parts.query, keep_blank_values=True))
        tls_options = {name: queried.pop(name) for name in list(queried) if name.startswith("ssl_")}
        chosen: dict[str, Any] = {
            "tls": parts.scheme == "rediss",
            "username": unquote(username) or None,
            "password": unquote(password) or None,
            "tls_options": tls_options,
            **_path(kind, parts.path),
            **queried,
            **given,
        }
        addresses = tuple((host or "localhost", given_port or port) for host, given_port in addresses_of(parts))
        checked = _checked(chosen)
        _check_tls(parts.scheme, checked)
        return cls(_shown(parts.scheme, addresses, checked), kind, _right_number(kind, addresses), **checked)


def _path(kind: Kind, path: str) -> dict[str, str]:
    word = unquote(path).strip("/")
    match kind:
        case "one":
            return {"db": word} if word else {}
        case "sentinel" if word:
            return {"service": word}
        case "cluster" if word in ("", "0"):
            return {}
        case "cluster":
            raise _refusal("A cluster has no databases; leave out what follows the hosts")
    raise _refusal("A redis+sentinel URL names the service after the hosts, as in redis+sentinel://host:26379/mymaster")


def _right_number(kind: Kind, addresses: tuple[Address, ...]) -> tuple[Address, ...]:
    if kind == "one" and len(addresses) > 1:
        raise _refusal("A redis URL names one host; several are a cluster or Sentinels")
    return addresses


def _shown(scheme: str, addresses: tuple[Address, ...], chosen: Mapping[str, Any]) -> str:
    hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)
    service = f"/{chosen['service']}" if chosen.get("service") else ""
    pattern = chosen.get("pattern", DEFAULT)
    spelt = "" if pattern == DEFAULT else f"?pattern={pattern}"
    return f"{scheme}://{hosts}{service}/{chosen.get('db', 0)}{spelt}"


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(given) - {each.name for each in fields(Settings)} | set(given) & {"name", "kind"})
    if unknown:
        raise _refusal(f"A redis URL has no setting {', '.join(unknown)}")
    checked = read(given, _READERS)
    if checked.get("evicting", "refused") not in ("refused", "allowed"):
        raise _refusal("evicting is refused or allowed")
    Pattern(checked.get("pattern", DEFAULT))
    return checked


def _check_tls(scheme: str, chosen: Mapping[str, Any]) -> None:
    """Refuse what is about TLS where the connection would be plain text."""
    if chosen["tls"]:
        return
    if scheme == "rediss":
        raise _refusal("rediss:// is encrypted, and tls=false says that it is not; leave one of them out")
    if chosen["tls_options"]:
        names = ", ".join(sorted(chosen["tls_options"]))
        instead = "Write rediss://" if scheme == "redis" else "Add tls=true"
        raise _refusal(f"{names} is for TLS, and {scheme}:// is not encrypted by itself. {instead} to encrypt it")


def _refusal(why: str) -> UsageError:
    return UsageError(f"{why}; nothing was opened. Write {_FORMS}.")
