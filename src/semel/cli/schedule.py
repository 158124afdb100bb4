"""When sweeps that go on by themselves are due: every so often, at a time of day, or both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from semel.cli.exit_codes import usage_error

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times of sweeps. With neither of the two there is a single one.

    Args:
        every: so often.
        at: every day at this time.
        zone: the zone of `at`; None is that of this machine.
    """

    every: timedelta | None = None
    at: time | None = None
    zone: tzinfo | None = None

    @classmethod
    def of_cleanup(cls, cleanup: Mapping[str, Any]) -> Schedule:
        """The schedule in the table `[cleanup]` of a settings file.

        Raises:
            Refused: it has none.
        """
        found = cls(cleanup.get("check_every"), cleanup.get("at"))
        if not found.goes_on:
            message = (
                "No schedule was found; nothing was swept. Write at or check_every into the table [cleanup] of the "
                "settings file, or give --every or --at."
            )
            raise usage_error(message)
        return found

    @property
    def goes_on(self) -> bool:
        """Whether there is another sweep after the first."""
        return self.every is not None or self.at is not None

    @property
    def begins_at_once(self) -> bool:
        """Whether the first sweep is due now; one that has a time of day alone waits for that."""
        return self.every is not None or self.at is None

    def due(self, now: datetime) -> datetime:
        """When the next sweep is due after `now`, a time with a zone."""
        times = [] if self.every is None else [now + self.every]
        if self.at is not None:
            times.append(self._next_time_of_day(now, self.at))
        return min(times)

    def pause(self, now: datetime) -> float:
        """Seconds from `now`, a time with a zone, until the next sweep."""
        return (self.due(now) - now).total_seconds()

    def _next_time_of_day(self, now: datetime, at: time) -> datetime:
        """The first such time after `now`. One that a change of the clocks leaves out is an hour later."""
        # Made from the calendar of the zone: on a day with a change of clocks it is not 24 hours later. Compared in
        # UTC: times of a day with a change are equal to none of another zone.
        today = now.astimezone(self.zone).date()
        days = (datetime.combine(today + number * _DAY, at, self.zone).astimezone(UTC) for number in range(3))
        return next(day for day in days if day > now).astimezone(self.zone)


def time_of_day(at: str | None, zone: str | None) -> Schedule | None:
    """A schedule with a time of day such as `02:00`, in a zone of that name or this machine's.

    Raises:
        Refused: it is none, or there is no such zone.
    """
    if at is None:
        if zone is not None:
            message = "--zone is the zone of --at, which was not given; nothing was swept."
            raise usage_error(message)
        return None
    try:
        wanted = datetime.strptime(at, "%H:%M").time()  # noqa: DTZ007 - a time of day; its zone is given beside it
    except ValueError:
        message = f"{at!r} is no time of day; nothing was swept. Write 02:00."
        raise usage_error(message) from None
    try:
        return Schedule(at=wanted, zone=None if zone is None else ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError):
        message = f"There is no time zone {zone!r} here; nothing was swept. Write a name such as Europe/Berlin."
        raise usage_error(message) from None
