"""How a store on Redis is set up: where the servers are, how long they may take, and how keys are spelt.

What always holds: everything is checked before anything is opened, and the name of a store never shows a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from semel.errors import UsageError
from semel.stores.clock import StoreClock
from semel.stores.redis.pattern import DEFAULT, Pattern

Address = tuple[str, int]
Kind = Literal["one", "cluster", "sentinel"]
_KINDS: Final[dict[str, tuple[Kind, int]]] = {
    "redis": ("one", 6379),
    "rediss": ("one", 6379),
    "redis+cluster": ("cluster", 6379),
    "redis+sentinel": ("sentinel", 26379),
}
_WORDS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
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
        pattern: how the key of a record is spelt.
        evicting: `allowed` accepts a server that removes keys when its memory is full.
        listen: whether one more connection of each process that has waiters is told of ends; without it they look.
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
    pattern: str = DEFAULT
    evicting: Literal["refused", "allowed"] = "refused"
    listen: bool = True
    clock: StoreClock | None = None

    @classmethod
    def of(cls, url: str, **given: Any) -> Settings:
        """The settings in `url` and in `given`, which go first.

        Raises:
            UsageError: one of them is not usable.
        """
        parts = urlsplit(url)
        kind, port = _KINDS[parts.scheme]
        login, _, hosts = parts.netloc.rpartition("@")
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
        addresses = tuple(_address(host, port) for host in (hosts or "localhost").split(","))
        checked = _checked(chosen)
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


def _address(host: str, port: int) -> Address:
    parts = urlsplit(f"//{host}")
    try:
        return parts.hostname or "localhost", parts.port or port
    except ValueError:
        raise _refusal("The port of a host is a number from 1 to 65535") from None


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
    checked = dict(given)
    unknown = sorted(set(checked) - {each.name for each in fields(Settings)} | set(checked) & {"name", "kind"})
    if unknown:
        raise _refusal(f"A redis URL has no setting {', '.join(unknown)}")
    for name in ("connect_timeout", "timeout"):
        if name in checked:
            checked[name] = _seconds(name, checked[name])
    for name in ("listen", "tls"):
        if name in checked:
            checked[name] = _truth(name, checked[name])
    if "db" in checked:
        checked["db"] = _number(checked["db"])
    if checked.get("evicting", "refused") not in ("refused", "allowed"):
        raise _refusal("evicting is refused or allowed")
    Pattern(checked.get("pattern", DEFAULT))
    return checked


def _seconds(name: str, value: Any) -> float:
    try:
        seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds <= 3600:  # noqa: PLR2004 - an hour
        raise _refusal(f"{name} must be a number of seconds above 0, not {value!r}")
    return seconds


def _truth(name: str, value: Any) -> bool:
    truth = value if isinstance(value, bool) else _WORDS.get(str(value).lower())
    if truth is None:
        raise _refusal(f"{name} must be true or false, not {value!r}")
    return truth


def _number(value: Any) -> int:
    text = str(value)
    if not text.isdecimal():
        raise _refusal(f"The database of a redis URL is a number, not {value!r}")
    return int(text)


def _refusal(why: str) -> UsageError:
    return UsageError(f"{why}; nothing was opened. Write {_FORMS}.")
