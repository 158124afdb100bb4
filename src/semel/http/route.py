"""Routes: which requests carry keys, and what holds for them. Settings alone, checked when they are made.

What always holds: `*` stands for one segment of a path and a last `**` for any rest. The first route that fits counts.
Without routes every POST and PATCH that carries a key is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, Literal, TypedDict, Unpack

from semel.core.key import KeyRing
from semel.core.policy import Policy, PolicyFields
from semel.errors import UsageError
from semel.http.body import is_path
from semel.http.problem import PROFILES, Meaning, Profile
from semel.http.request import LONGEST, Request
from semel.http.response import NEVER, REPLAYED
from semel.validation import Duration, explain_unknown, to_timedelta

Scope = Callable[[Any], Any]
"""From a request to whom its key belongs; may be awaited where the framework awaits."""
KeyRule = Callable[[Request], "str | tuple[object, ...] | None"]
AboutRule = Callable[[Any], Any]
"""From a request to what its record is searched by, an `About` or a mapping; may be awaited as `Scope`."""
Within = Callable[[Any], Any]
"""From a request to a context manager that gives a session or connection in a transaction, and commits at its end."""
Compare = Literal["content", "bytes"]
PolicyFor = Callable[[str, Policy | None, PolicyFields], Policy]
"""From an operation and the policy of the code to the policy that counts: `policy_for` of an engine."""

METHODS: Final = frozenset({"POST", "PATCH"})
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"})
_IN_PROGRESS: Final = frozenset({409, 425, 429})
_HEADER: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_MEBIBYTE: Final = 1024 * 1024
_SLASHES: Final = re.compile("//+")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What holds for a route.

    Attributes:
        methods: which methods carry keys.
        required: whether a request without a key is refused.
        header: the header with the key; the profile's where none is named.
        key: computes the key of a request that carries none, for webhooks: from its head and body. None: no key.
        about: from a request to what its record is searched by: an `About`, a mapping, or None. Nothing is filled in by
            itself: who asked is the scope.
        policy: how to claim, keep, wait and recover; the engine's where none is given.
        profile: how it is worded: ietf, stripe-v1, stripe-v2, paypal or oasis.
        final_statuses: statuses that are answers, whatever the profile says: kept, and replayed.
        retry_statuses: statuses that mean that nothing happened: not kept, the same key may be sent again.
        unknown_statuses: statuses after which nobody knows; the policy for doubts decides.
        in_progress_status: the status for a duplicate while the first runs: 409, 425 or 429.
        replay_headers: further response headers that are kept and replayed.
        ignore_fields: members of a JSON body that do not count when requests are compared, as dotted paths.
        compare: "content" compares bodies by what they say, "bytes" byte for byte.
        compare_host: whether requests to two hosts are two requests: for sites that do something else under each name.
        max_body: how many bytes a body with a key may take.
        max_response: how many bytes of a response are kept; more leaves a mark that it was done.
        after_disconnect: how long an answer that is sent in chunks goes on once its client has left, so that it can be
            kept whole; then it is stopped, and leaves the same mark.
        keep_response: False keeps that it was done, and nothing of the response: for secrets.
        min_key_length: how many characters a key has at least.
        signed_by: secrets by their names: only keys are taken that were signed with one of them for the caller, as
            `scope` tells it. A key that the route computes needs no signature.
        transaction: opens the transaction of the view, so that response and effect commit together.
        www_authenticate: what `WWW-Authenticate` says where `scope` gave None.
    """

    methods: frozenset[str] = METHODS
    required: bool = False
    header: str | None = None
    key: KeyRule | None = None
    about: AboutRule | None = None
    policy: Policy | None = None
    profile: str = "ietf"
    final_statuses: frozenset[int] = frozenset()
    retry_statuses: frozenset[int] = frozenset()
    unknown_statuses: frozenset[int] = frozenset()
    in_progress_status: int | None = None
    replay_headers: Sequence[str] = ()
    ignore_fields: Sequence[str] = ()
    compare: Compare = "content"
    compare_host: bool = False
    max_body: int = _MEBIBYTE
    max_response: int = _MEBIBYTE
    after_disconnect: timedelta = timedelta(seconds=30)
    keep_response: bool = True
    min_key_length: int = 1
    signed_by: KeyRing | None = None
    transaction: Within | None = None
    www_authenticate: str = "Bearer"

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", frozenset(method.upper() for method in _several(self.methods, "methods")))
        for name in ("final_statuses", "retry_statuses", "unknown_statuses"):
            object.__setattr__(self, name, frozenset(_several(getattr(self, name), name)))
        for name in ("replay_headers", "ignore_fields"):
            object.__setattr__(self, name, tuple(_several(getattr(self, name), name)))
        if self.signed_by is not None and not isinstance(self.signed_by, KeyRing):
            object.__setattr__(self, "signed_by", KeyRing(self.signed_by))
        stops = to_timedelta("after_disconnect=", self.after_disconnect, may_be_zero=True, outcome="nothing was set up")
        object.__setattr__(self, "after_disconnect", stops)
        for says_no, why in self._problems():
            if says_no:
                raise UsageError(f"{why}; nothing was set up.")

    def _problems(self) -> Iterable[tuple[object, str]]:
        safe = sorted(self.methods & _SAFE)
        yield not self.methods, "A route needs at least one method"
        yield safe, f"{', '.join(safe)} changes nothing and takes no key"
        yield self.profile not in PROFILES, f"There is no profile {self.profile!r}, only {', '.join(PROFILES)}"
        yield self.header is not None and not _HEADER.fullmatch(self.header), f"{self.header!r} is no header name"
        yield self.key is not None and not callable(self.key), "key= is a function of the request"
        yield self.about is not None and not callable(self.about), "about= is a function of the request"
        yield (
            self.transaction is not None and not callable(self.transaction),
            "transaction= is a function of the request",
        )
        yield (
            self.policy is not None and not isinstance(self.policy, Policy),
            f"policy= is a Policy, not {type(self.policy).__name__}",
        )
        yield (
            self.keep_response and isinstance(self.policy, Policy) and self.policy.redact,
            "redact= does not reach into a response: give the route a policy without it, or write keep_response=False",
        )
        yield self.in_progress_status not in (None, *_IN_PROGRESS), "in_progress_status= is 409, 425 or 429"
        yield (
            not self.www_authenticate or "\r" in self.www_authenticate or "\n" in self.www_authenticate,
            "www_authenticate= is one line of text",
        )
        yield self.compare not in ("content", "bytes"), 'compare= is "content" or "bytes"'
        yield not isinstance(self.keep_response, bool), "keep_response= is True or False"
        yield not 1 <= self.min_key_length <= LONGEST, f"min_key_length= lies between 1 and {LONGEST}"
        yield self.max_body < 0 or self.max_response < 0, "max_body= and max_response= are numbers of bytes"
        twice = _in_two(self.final_statuses, self.retry_statuses, self.unknown_statuses)
        yield twice, f"Status {min(twice, default=0)} means one thing: final, retry or unknown"
        never = sorted({name.lower() for name in self.replay_headers} & NEVER)
        yield never, f"{', '.join(never)} is never replayed"
        wrong = [path for path in self.ignore_fields if not is_path(path)]
        yield wrong, f"{wrong!r} is no path to a member, such as 'sent_at' or 'meta.trace'"

    @cached_property
    def wording(self) -> Profile:
        """The profile."""
        return PROFILES[self.profile]

    @cached_property
    def key_header(self) -> str:
        """The header with the key."""
        return self.header or self.wording.header

    @cached_property
    def allowed(self) -> frozenset[str]:
        """Which headers a replay may carry."""
        return REPLAYED | {name.lower() for name in self.replay_headers}

    def meaning(self, status: int) -> Meaning:
        """What a status says of the work behind it."""
        if status in self.final_statuses:
            return "final"
        if status in self.retry_statuses:
            return "retry"
        return "unknown" if status in self.unknown_statuses else self.wording.meaning(status)


_NAMES: Final = frozenset(known.name for known in fields(Settings))
_HINTS: Final = {
    **{name: f"{name}= is given to the middleware, for all routes." for name in ("semel", "scope", "policy_path")},
    "stored": "Write final_statuses={…}.",
    "retried": "Write retry_statuses={…}.",
    "doubtful": "Write unknown_statuses={…}.",
    "running": "Write in_progress_status=….",
    "exclude": "Write ignore_fields=[…].",
    "ignore": "Write ignore_fields=[…].",
    "raw": 'Write compare="bytes".',
    "store": "Write keep_response=False to keep nothing of the response.",
    "shortest": "Write min_key_length=….",
    "within": "Write transaction=….",
    "challenge": "Write www_authenticate=….",
    "described_at": "Write policy_path=…, which is given to the middleware, for all routes.",
}
"""What to write instead of words that are often tried."""


class RouteOptions(TypedDict, total=False):
    """Settings as they are written: by name, and only those that differ. `Settings` says what each means."""

    methods: Collection[str]
    required: bool
    header: str | None
    key: KeyRule | None
    about: AboutRule | None
    policy: Policy | None
    profile: str
    final_statuses: Collection[int]
    retry_statuses: Collection[int]
    unknown_statuses: Collection[int]
    in_progress_status: int | None
    replay_headers: Collection[str]
    ignore_fields: Collection[str]
    compare: Compare
    compare_host: bool
    max_body: int
    max_response: int
    after_disconnect: Duration
    keep_response: bool
    min_key_length: int
    signed_by: KeyRing | Mapping[str, bytes | str] | None
    transaction: Within | None
    www_authenticate: str


def _in_two(*groups: frozenset[int]) -> frozenset[int]:
    """The statuses that are in more than one group."""
    return frozenset(
        status for status in frozenset[int]().union(*groups) if sum(status in group for group in groups) > 1
    )


def _several(given: Any, name: str) -> Iterable[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UsageError(f"{name}= takes several, as in {name}={{…}}, not {given!r}; nothing was set up.")
    return given


def settings_of(given: RouteOptions) -> Settings:
    """Settings by name.

    Raises:
        UsageError: there is no such setting, or it cannot be so.
    """
    for name in sorted(set(given) - _NAMES):
        raise UsageError(explain_unknown("A route", name, _NAMES, outcome="nothing was set up", hints=_HINTS))
    return Settings(**given)  # type: ignore[arg-type]  # frozen when they are made


class Route:
    """A path pattern, and the settings for it: `Route("/orders/*/pay", required=True)`."""

    def __init__(self, path: str, **settings: Unpack[RouteOptions]) -> None:
        if not path.startswith("/"):
            raise UsageError(f"A route begins with a slash, unlike {path!r}; nothing was set up.")
        if "**" in path[:-2]:
            raise UsageError(f"In a route ** stands at the end, unlike in {path!r}; nothing was set up.")
        self.path = path
        self.settings = settings_of(settings)
        self._given = settings
        self._policy_for: PolicyFor | None = None
        self._plain = path.rstrip("/") or "/"
        self._pattern = _pattern(self._plain)

    def __repr__(self) -> str:
        return f"Route({self.path!r})"

    def fits(self, path: str) -> bool:
        """Whether a path is one of this route; slashes too many do not lead around it."""
        if path == self.path:
            return True
        if "//" in path or path.endswith("/"):
            path = _SLASHES.sub("/", path).rstrip("/") or "/"
        return path == self._plain if self._pattern is None else self._pattern.fullmatch(path) is not None

    def over(self, common: RouteOptions) -> Route:
        """The same route, where what it does not say is as in `common`."""
        given: RouteOptions = {**common, **self._given}
        return Route(self.path, **given)

    def declare(self, policy_for: PolicyFor) -> Route:
        """The same route, told what a settings file says of its operations."""
        self._policy_for = policy_for
        return self

    def operation(self, method: str) -> str:
        """What a request of this method does here, as its record names it."""
        return f"{method} {self.path}"

    def declared_policy(self, method: str) -> Policy:
        """The policy of a method, with what a settings file declares of it.

        Raises:
            UsageError: the file is strict, and does not declare it.
        """
        own = self.settings.policy or Policy()
        return own if self._policy_for is None else self._policy_for(self.operation(method), own, {})

    def is_exactly(self, path: str) -> bool:
        """Whether this path alone is meant, spelt as it is; of all others the path is part of the key."""
        return self._pattern is None and path == self.path


def has_control_characters(path: str) -> bool:
    """Whether a path holds what some frameworks overlook: in Python `$` also stands before a line feed at the end."""
    return not (path.isascii() and path.isprintable()) and _CONTROLS.search(path) is not None


def _pattern(path: str) -> re.Pattern[str] | None:
    if "*" not in path:
        return None
    pieces = [".*" if piece == "**" else "[^/]+" if piece == "*" else re.escape(piece) for piece in path.split("/")]
    return re.compile("/".join(pieces), re.DOTALL)


@dataclass(frozen=True)
class Routes:
    """All routes of an application, with the engine's policy where a route has none."""

    every: tuple[Route, ...]
    policy_path: str | None = field(default=None)

    @classmethod
    def of(
        cls, routes: Iterable[Route] | None, common: RouteOptions, policy: Policy, policy_path: str | None
    ) -> Routes:
        """The routes with what is common to them; without any, one that fits everything."""
        settings_of(common)  # what is wrong with it is said even where every route says otherwise
        common = RouteOptions(policy=policy) | common
        given = (Route("/**"),) if routes is None else tuple(routes)
        return cls(tuple(_checked(route).over(common) for route in given), policy_path)

    @cached_property
    def methods(self) -> frozenset[str]:
        """All methods that may carry a key."""
        return frozenset[str]().union(*(route.settings.methods for route in self.every))

    def find(self, method: str, path: str) -> Route | None:
        """The first route that fits; one that a framework may take for any other fits all, and is refused there."""
        fits_all = has_control_characters(path)
        for route in self.every:
            if method in route.settings.methods and (fits_all or route.fits(path)):
                return route
        return None


def _checked(route: Any) -> Route:
    if not isinstance(route, Route):
        raise UsageError(f"routes= holds Route(…), not {type(route).__name__}; nothing was set up.")
    return route
