"""The settings of a client, checked when it is made. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, cast

from semel.client.retry import Backoff
from semel.core.policy import Policy
from semel.errors import UsageError
from semel.validation import Duration, explain_unknown, refuses_unknown, to_timedelta

HeaderRule = str | Callable[[str, str], str]
UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_SECRET: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_MEBIBYTE: Final = 1024 * 1024
_ENVELOPE: Final = 64 * 1024
_PASSING: Final = timedelta(minutes=1)
_DURATIONS: Final = ("give_up_after", "first_pause", "longest_pause", "retention", "keep_for", "lease_for")


@refuses_unknown("A client", UsageError)
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a client keeps keys and asks again. A number stands for so many seconds.

    Args:
        name: whose keys these are, where several clients share one store.
        header: the header that carries the key, or a function of method and URL that names it.
        quoted: whether the key is sent as a structured-field string, in quotes, as the IETF draft has it.
        methods: which requests get a key.
        tries: how often one call sends a request, at most.
        give_up_after: how long one call goes on asking.
        first_pause: about how long it waits before the second try, where the service does not say.
        longest_pause: how long it waits at most, where the service does not say.
        budget: how many retries all calls may make beyond one for every ten answers.
        retention: how long a service is taken to remember keys whose policy document does not say.
        keep_for: how long an intent that succeeded is answered without sending anything.
        lease_for: how long after a crash nobody else takes up what was being sent.
        keep_request: whether the request itself is kept, so that `resume` can send it.
        keep_headers: headers to keep with it, beside those that describe its body. Never name one with a secret.
        max_body: how many bytes a request may have.
    """

    name: str = "client"
    header: HeaderRule = "Idempotency-Key"
    quoted: bool = True
    methods: Collection[str] = UNSAFE
    tries: int = 8
    give_up_after: timedelta = timedelta(seconds=60)
    first_pause: timedelta = timedelta(milliseconds=200)
    longest_pause: timedelta = timedelta(seconds=10)
    budget: int = 20
    retention: timedelta = timedelta(hours=24)
    keep_for: timedelta = timedelta(hours=24)
    lease_for: timedelta = timedelta(seconds=10)
    keep_request: bool = True
    keep_headers: Collection[str] = ()
    max_body: int = _MEBIBYTE

    if TYPE_CHECKING:

        def __init__(self, **given: Unpack[Given]) -> None: ...

    def __post_init__(self) -> None:
        for name in _DURATIONS:
            object.__setattr__(self, name, to_timedelta(name, getattr(self, name), outcome="nothing was set up"))
        for wrong, why in self._problems():
            if wrong:
                raise UsageError(f"{why}; nothing was set up.")
        self.policy(named=True, final=ValueError, nothing=OSError)  # refuses times that cannot be kept
        object.__setattr__(self, "methods", frozenset(method.upper() for method in self.methods))
        object.__setattr__(self, "keep_headers", frozenset(name.lower() for name in self.keep_headers))

    def _problems(self) -> list[tuple[object, str]]:
        return [
            (isinstance(self.methods, str), "methods= takes several, as in {'POST'}"),
            (isinstance(self.keep_headers, str), "keep_headers= takes several, as in ('X-Tenant',)"),
            (_SAFE & {str(method).upper() for method in self.methods}, "A request that changes nothing takes no key"),
            (self.tries < 1, "tries= is at least 1"),
            (self.budget < 0 or self.max_body < 0, "budget= and max_body= are numbers from 0 up"),
            (
                _SECRET & {str(name).lower() for name in self.keep_headers},
                "keep_headers= does not take headers that hold credentials",
            ),
        ]

    def keyed(self, method: str) -> bool:
        """Whether such a request gets a key."""
        return method.upper() in self.methods

    @property
    def patience(self) -> Backoff:
        """How long one request is tried."""
        return Backoff(
            self.tries,
            self.give_up_after.total_seconds(),
            self.first_pause.total_seconds(),
            self.longest_pause.total_seconds(),
        )

    def policy(self, *, named: bool, final: type[Exception], nothing: type[Exception]) -> Policy:
        """The policy of a request; nobody can ask again for one without a name, so its outcome passes soon."""
        return Policy(
            keep_for=self.keep_for if named else min(_PASSING, self.keep_for),
            lease_for=self.lease_for,
            max_runtime=2 * self.give_up_after + _PASSING,
            wait_for=self.give_up_after,
            final_errors=(final,),
            retry_errors=(nothing,),
            max_result=max(self.max_body, _MEBIBYTE) + _ENVELOPE,
        )


class Given(TypedDict, total=False):
    """Settings as they are written: by name, and only those that differ. `Settings` says what each means."""

    name: str
    header: HeaderRule
    quoted: bool
    methods: Collection[str]
    tries: int
    give_up_after: Duration
    first_pause: Duration
    longest_pause: Duration
    budget: int
    retention: Duration
    keep_for: Duration
    lease_for: Duration
    keep_request: bool
    keep_headers: Collection[str]
    max_body: int


def split(settings: dict[str, Any], others: Collection[str]) -> tuple[Given, dict[str, Any]]:
    """Settings of ours, and those of a library that has `others`.

    Raises:
        UsageError: one of them is neither.
    """
    for name in sorted(settings.keys() - Given.__annotations__.keys() - set(others)):
        raise UsageError(explain_unknown("A client", name, Given.__annotations__, outcome="nothing was set up"))
    ours = {name: value for name, value in settings.items() if name in Given.__annotations__}
    return cast("Given", ours), {name: value for name, value in settings.items() if name not in ours}
