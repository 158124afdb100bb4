"""The target: what has to be known of a service to judge it from outside.

What always holds: a target is checked when it is made, and every setting has one name, in the file, on the command line
and here (with underscores).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urljoin, urlsplit

from semel.errors import TryLater, UsageError
from semel_lab.conform import json_variants
from semel_lab.conform.http_client import Wire

SAMPLE: Final = b'{"amount": 1250, "currency": "EUR"}'
_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BODIES: Final = ("body", "other_body", "slow_body")


class TargetInvalid(UsageError):
    """The target does not say enough, or not in a way that can be understood; nothing was sent."""

    code = "target_invalid"


class Unreachable(TryLater):
    """Nobody answers at the URL; nothing was sent."""

    code = "unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A service, and how to ask it for something that happens once.

    Attributes:
        url: where the request goes.
        method: how.
        body: what is asked for; the service must accept it, again and again, under new keys.
        other_body: something else that it accepts too; by default one member of a JSON body is changed.
        slow_body: something that takes the service a while, so that it can be met while it runs.
        content_type: of all bodies.
        header: the name of the header with the key.
        bare: send keys without quotes, for services that know nothing else.
        caller: header lines that say who asks: `("Authorization", "Bearer a")`.
        other_caller: the same for somebody else.
        effects: where a GET answers how many effects there were, as a number or as JSON.
        effects_pointer: which number of that JSON, as a JSON pointer.
        other_path: another path that takes the same body.
        required: whether a request without a key has to be refused.
        reused_status: the status for a key that stands for another request.
        running_status: a status that says that the first still runs, beside 409, 425 and 429, which always do.
        copies: how many duplicates are sent at once.
        timeout: how many seconds to wait for an answer, and how long to go on asking while something runs.
    """

    url: str
    method: str = "POST"
    body: bytes = SAMPLE
    other_body: bytes | None = None
    slow_body: bytes | None = None
    content_type: str = "application/json"
    header: str = "Idempotency-Key"
    bare: bool = False
    caller: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    other_caller: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    effects: str | None = None
    effects_pointer: str | None = None
    other_path: str | None = None
    required: bool = False
    reused_status: int = 422
    running_status: int = 409
    copies: int = 20
    timeout: float = 10.0

    def __post_init__(self) -> None:
        _place(self.url)
        _place(self.effects_url or self.url)
        self._check_head()
        if self.copies < 2 or self.timeout <= 0:  # noqa: PLR2004 - one alone is no duplicate
            message = "copies must be at least 2 and timeout more than 0; nothing was sent."
            raise TargetInvalid(message)
        if json_variants.is_json(self.content_type) and json_variants.parsed(self.body) is None:
            message = (
                "The body is not JSON, and its content type says that it is; nothing was sent. Correct one of them."
            )
            raise TargetInvalid(message)

    def _check_head(self) -> None:
        names = (self.method, self.header, *(name for name, _ in (*self.caller, *self.other_caller)))
        values = (self.content_type, *(value for _, value in (*self.caller, *self.other_caller)))
        sound = all(_NAME.fullmatch(name) for name in names)
        if not sound or not all(value.isascii() and value.isprintable() for value in values):
            message = "A method, or the name or value of a header, is none that HTTP allows; nothing was sent."
            raise TargetInvalid(message)

    @property
    def wire(self) -> Wire:
        """The way to the service."""
        return _wire(_place(self.url), self.timeout)

    @property
    def path(self) -> str:
        """Path and query of the URL."""
        return path_of(self.url)

    @property
    def effects_url(self) -> str | None:
        """Where effects are counted; a path is taken as one of the service."""
        return None if self.effects is None else urljoin(self.url, self.effects)

    @property
    def different(self) -> bytes | None:
        """The other body: the given one, or one that was made by changing a member."""
        if self.other_body is not None or not json_variants.is_json(self.content_type):
            return self.other_body
        return json_variants.changed(self.body)


def wire_to(url: str, timeout: float) -> Wire:
    """The way to whoever serves a URL."""
    return _wire(_place(url), timeout)


def path_of(url: str) -> str:
    """What stands in the first line of a request for a URL."""
    place = urlsplit(url)
    return (place.path or "/") + (f"?{place.query}" if place.query else "")


def _wire(place: SplitResult, timeout: float) -> Wire:
    return Wire(place.hostname or "", place.port or _PORTS[place.scheme], place.scheme == "https", timeout)


def _place(url: str) -> SplitResult:
    try:
        place = urlsplit(url)
        sound = place.scheme in _PORTS and bool(place.hostname) and place.port != 0
    except ValueError:
        sound = False
        place = urlsplit("")
    if not sound or not url.isascii() or not url.isprintable() or " " in url:
        message = f"{url!r} is no http or https URL; nothing was sent."
        raise TargetInvalid(message)
    if place.username is not None:
        message = (
            "A URL with a name or password in it ends up in logs; nothing was sent. Give them as a header instead."
        )
        raise TargetInvalid(message)
    return place


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"The target file {path.name} cannot be read: {error}; nothing was sent."
        raise TargetInvalid(message) from error


def target_of(settings: Mapping[str, Any]) -> Target:
    """A target out of settings as they are written in files: names with dashes, bodies as texts or tables."""
    given = {("caller" if name == "with" else name.replace("-", "_")): value for name, value in settings.items()}
    known = {each.name: each for each in fields(Target)}
    if unknown := sorted(set(given) - set(known)):
        message = f"A target has no setting {unknown[0]!r}; nothing was sent. It knows: {', '.join(_names(known))}."
        raise TargetInvalid(message)
    if "url" not in given:
        message = "Where is the service? Give its URL; nothing was sent."
        raise TargetInvalid(message)
    for name in _BODIES:
        if name in given:
            given[name] = _body(given[name])
    for name in ("caller", "other_caller"):
        if name in given:
            given[name] = _lines(given[name])
    _check_kinds(given)
    return Target(**given)


def _names(known: Mapping[str, Any]) -> list[str]:
    return ["with" if name == "caller" else name.replace("_", "-") for name in known]


def _body(value: Any) -> bytes:
    match value:
        case bytes():
            return value
        case str() if value.startswith("@"):
            return _file(Path(value[1:]))
        case str():
            return value.encode()
        case _:
            return json.dumps(value).encode()


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"The body cannot be read from {path}: {error.strerror}; nothing was sent."
        raise TargetInvalid(message) from error


def _lines(values: str | Sequence[str]) -> tuple[tuple[str, str], ...]:
    found = []
    for line in [values] if isinstance(values, str) else values:
        name, colon, value = str(line).partition(":")
        if not colon:
            message = 'A header is written as "Name: value"; nothing was sent.'
            raise TargetInvalid(message)
        found.append((name.strip(), value.strip()))
    return tuple(found)


def _check_kinds(given: Mapping[str, Any]) -> None:
    kinds: dict[str, type | tuple[type, ...]] = {"bare": bool, "required": bool, "timeout": (int, float)}
    kinds |= dict.fromkeys(("reused_status", "running_status", "copies"), int)
    for name, value in given.items():
        kind = kinds.get(name, str)
        if name not in (*_BODIES, "caller", "other_caller") and not isinstance(value, kind):
            message = f"The setting {name.replace('_', '-')} cannot be {value!r}; nothing was sent."
            raise TargetInvalid(message)
