"""What can be set, read from the environment once, at the start.

What always holds: settings never change while the service runs. How long each kind of request is remembered is said
here and nowhere else.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from examples.hotel.settings import Clock, utc_now


@dataclass(frozen=True, kw_only=True)
class Retention:
    """For how long the same key is the same request.

    Attributes:
        payment: payments; longer than any client, queue or person tries again.
        order: orders, which charge nothing by themselves.
        bulk: bulks of payments and their items, counted from the end of the bulk.
        critical: what must not happen twice even much later: accounts, refunds, and the balance of wallets.
    """

    payment: timedelta = timedelta(days=90)
    order: timedelta = timedelta(days=7)
    bulk: timedelta = timedelta(days=30)
    critical: timedelta = timedelta(days=365)


@dataclass(frozen=True, kw_only=True)
class BulkLimits:
    """What a file of payments may be, checked before anything of it is loaded.

    Attributes:
        size: how many bytes it has at most.
        lines: how many lines it has at most.
        line: how many bytes a line has at most.
    """

    size: int = 32 * 1024 * 1024
    lines: int = 100_000
    line: int = 4096


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How this service runs.

    Attributes:
        database: where payments and semel's records live: sqlite:///payments.db, postgresql://… or mysql://….
        gateway: the address of the payment gateway.
        clock: gives the time in UTC.
        currency: of all amounts.
        retention: how long requests are remembered.
        bulk: the limits of a file of payments.
        lease_for: how long a killed process blocks a key or an item.
        wait_for: how long a repeated request waits for the first one before it is told to come back.
        gateway_timeout: how long an answer of the gateway is waited for.
        concurrency: how many items of a bulk a worker works on at the same time.
        page: how many items of a bulk a worker claims together.
        max_attempts: how often an item is tried while the gateway does not answer.
        poll_every: how often a worker looks for bulks.
        sweep_every: how often a worker sweeps; None: never.
        ask_after: how old a payment without an end is before the sweeper asks the gateway about it.
        close_after: how old it is before its key is closed, so that it is never charged.
    """

    database: str = "sqlite:///payments.db"
    gateway: str = "http://127.0.0.1:8001"
    clock: Clock = utc_now
    currency: str = "EUR"
    retention: Retention = field(default_factory=Retention)
    bulk: BulkLimits = field(default_factory=BulkLimits)
    lease_for: timedelta = timedelta(seconds=5)
    wait_for: timedelta = timedelta(seconds=10)
    gateway_timeout: timedelta = timedelta(seconds=10)
    concurrency: int = 8
    page: int = 100
    max_attempts: int = 8
    poll_every: timedelta = timedelta(seconds=0.25)
    sweep_every: timedelta | None = timedelta(seconds=10)
    ask_after: timedelta = timedelta(minutes=1)
    close_after: timedelta = timedelta(hours=1)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """PAYMENTS_DATABASE, PAYMENTS_GATEWAY and so on; durations are seconds, and PAYMENTS_SWEEP_EVERY=0 is never."""
        given: dict[str, Any] = {
            name: kind(environment[_variable(name)]) for name, kind in _KINDS.items() if _variable(name) in environment
        }
        settings = cls(**given)
        return settings if settings.sweep_every else replace(settings, sweep_every=None)


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=float(text))


_DURATIONS = ("lease_for", "wait_for", "gateway_timeout", "poll_every", "sweep_every", "ask_after", "close_after")
_KINDS: dict[str, Callable[[str], object]] = {
    "database": str,
    "gateway": str,
    "currency": str,
    "concurrency": int,
    "page": int,
    "max_attempts": int,
} | dict.fromkeys(_DURATIONS, _seconds)


def _variable(name: str) -> str:
    return f"PAYMENTS_{name.upper()}"
