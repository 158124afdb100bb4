"""Profiles: how a family of services words the same promise. No I/O.

What always holds: a profile chooses headers, statuses and marks; it never changes who runs. Every status of a response
means exactly one of three things: it is the answer (stored), nothing happened (retried), nobody knows (doubtful).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Meaning = Literal["stored", "retried", "doubtful"]
Statuses = frozenset[int]

# Said before anything was done: the same request may be sent again, with the same key.
_REFUSED: Final = frozenset(
    {400, 401, 403, 405, 406, 407, 408, 411, 413, 414, 415, 417, 421, 422, 425, 426, 428, 429, 431}
)
_NOT_NOW: Final = frozenset({501, 503, 505})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One way of wording it.

    Attributes:
        name: how it is asked for.
        header: the request header with the key.
        replayed: the response header, and its value, that marks a replay.
        running: the status for a duplicate while the first still runs.
        reused: the status for a key that stands for another request.
        retried: statuses that mean that nothing happened.
        stores_failures: whether 5xx are stored as answers; elsewhere nobody knows what they mean.
        ran: the response header, and its value, on every answer of a first run, where the profile wants one.
        first_sent: the request header with the time of the first try, where there is one.
        outside: the status for a first try that is older than what is kept, and the header that says so.
    """

    name: str
    header: str = "Idempotency-Key"
    replayed: tuple[str, str] = ("Idempotency-Replayed", "true")
    ran: tuple[str, str] | None = None
    running: int = 409
    reused: int = 422
    retried: Statuses = _REFUSED | _NOT_NOW
    stores_failures: bool = False
    first_sent: str | None = None
    outside: int = 412
    rejected: tuple[tuple[str, str], ...] = ()

    def meaning(self, status: int) -> Meaning:
        """What a status says of the work behind it."""
        if status in self.retried:
            return "retried"
        if status >= 500 and not self.stores_failures:  # noqa: PLR2004 - the class of server errors
            return "doubtful"
        return "stored"


PROFILES: Final = {
    profile.name: profile
    for profile in (
        Profile(name="ietf"),
        Profile(
            name="stripe-v1",
            replayed=("Idempotent-Replayed", "true"),
            reused=400,
            retried=frozenset({400, 401, 403, 409, 429}),
            stores_failures=True,
        ),
        Profile(
            name="stripe-v2",
            replayed=("Idempotent-Replayed", "true"),
            reused=400,
            retried=frozenset(range(400, 500)),
        ),
        Profile(name="paypal", header="PayPal-Request-Id", reused=400),
        Profile(
            name="oasis",
            header="Repeatability-Request-ID",
            replayed=("Repeatability-Result", "accepted"),
            ran=("Repeatability-Result", "accepted"),
            first_sent="Repeatability-First-Sent",
            rejected=(("Repeatability-Result", "rejected"),),
        ),
    )
}
