"""When sweeps that go on by themselves are due: every so often, at a time of day, or both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any

from semel.cli.exit_codes import usage_error

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times of sweeps. With neither of the two there is a single one.

    Args:
        every: so often.
        at: every day at this time, in this machine's zone.
    """

    every: timedelta | None = None
    at: time | None = None

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
                "settings file, or give --every."
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

    def pause(self, now: datetime) -> float:
        """Seconds from `now`, a time with a zone, until the next sweep."""
        pauses = [] if self.every is None else [self.every.total_seconds()]
        if self.at is not None:
            pauses.append((self._next_time_of_day(now.astimezone(), self.at) - now).total_seconds())
        return min(pauses)

    @staticmethod
    def _next_time_of_day(here: datetime, at: time) -> datetime:
        # Made from the calendar of the zone: on a day with a change of clocks it is not 24 hours later.
        today = datetime.combine(here.date(), at).astimezone()
        return today if today > here else datetime.combine(here.date() + _DAY, at).astimezone()
