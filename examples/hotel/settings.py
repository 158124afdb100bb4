"""What can be set, read from the environment once, at the start.

What always holds: settings never change while the hotel runs, and `clock` is the only source of "now" in the hotel.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time of this machine."""
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How this hotel runs.

    Attributes:
        database: where reservations and semel's records live: sqlite:///hotel.db, postgresql://… or mysql://….
        gateway: the address of the payment gateway.
        clock: gives the time in UTC.
        currency: of all prices.
        draft_for: how long the price of a draft is honoured.
        paying_for: how long rooms are held for a payment; after that the sweeper decides.
        lease_for: how long a killed server blocks a key.
        wait_for: how long a repeated request waits for the first one before it is told to come back.
        gateway_timeout: how long an answer of the gateway is waited for.
        reconcile_after: how long after a lost answer the gateway is asked what became of the charge.
        sweep_every: how often the server sweeps in the background; None: never.
    """

    database: str = "sqlite:///hotel.db"
    gateway: str = "http://127.0.0.1:8001"
    clock: Clock = utc_now
    currency: str = "EUR"
    draft_for: timedelta = timedelta(minutes=15)
    paying_for: timedelta = timedelta(minutes=2)
    lease_for: timedelta = timedelta(seconds=5)
    wait_for: timedelta = timedelta(seconds=10)
    gateway_timeout: timedelta = timedelta(seconds=10)
    reconcile_after: timedelta = timedelta(seconds=1)
    sweep_every: timedelta | None = timedelta(seconds=5)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """HOTEL_DATABASE, HOTEL_GATEWAY and so on; durations are seconds, and HOTEL_SWEEP_EVERY=0 switches it off."""
        given: dict[str, Any] = {
            name: kind(environment[_variable(name)]) for name, kind in _KINDS.items() if _variable(name) in environment
        }
        every = float(environment.get("HOTEL_SWEEP_EVERY", "5"))
        moved = environment.get("HOTEL_CLOCK_FILE")
        return cls(
            **given,
            clock=moved_clock(Path(moved)) if moved else utc_now,
            sweep_every=timedelta(seconds=every) if every else None,
        )


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=float(text))


_DURATIONS = ("draft_for", "paying_for", "lease_for", "wait_for", "gateway_timeout", "reconcile_after")
_KINDS: dict[str, Callable[[str], object]] = {"database": str, "gateway": str} | dict.fromkeys(_DURATIONS, _seconds)


def _variable(name: str) -> str:
    return f"HOTEL_{name.upper()}"


def moved_clock(file: Path) -> Clock:
    """A clock that is off by the seconds written in `file`: so that a test can move the time of several processes."""

    def now() -> datetime:
        return utc_now() + timedelta(seconds=float(file.read_text()) if file.exists() else 0)

    return now
