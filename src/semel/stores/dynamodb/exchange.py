"""One command and its reply, without colour: what to send, what to learn from the reply, when to send it again.

What always holds: every reply with a Date teaches the clock, refusals too. A request that was throttled did nothing and
is sent again for `throttled_for`; one whose reply is lost is not, that is for the flow above to decide. Completions go
on for as long as the lease lasts, because the engine sends them again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from semel.core.flow import Flow
from semel.errors import SemelError, StoreUnavailable
from semel.stores.dynamodb import requests
from semel.stores.dynamodb.clock import SECOND, WIDEST, Moment, ServiceClock, VirtualServiceClock, instant_of
from semel.stores.dynamodb.commands import Call, Now, Pause
from semel.stores.dynamodb.listing import Places
from semel.stores.dynamodb.settings import Settings

_NOBODY: Final = bytes(32)
_REQUEST_ID: Final = "x-amzn-requestid"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.025, 0.4


@dataclass(frozen=True, slots=True)
class Send:
    """Send one request, once."""

    call: Call


@dataclass(frozen=True, slots=True)
class Place:
    """A table, and what is known of it; shared by the drivers of a store."""

    settings: Settings
    clock: ServiceClock
    sweeps: Places = field(default_factory=dict)
    chance: Callable[[], float] = random.random

    @classmethod
    def of(cls, settings: Settings) -> Place:
        """The place that settings name."""
        virtual = settings.clock
        return cls(settings, ServiceClock() if virtual is None else VirtualServiceClock(virtual))


def exchanged(place: Place, command: Call | Now | Pause) -> Flow[Any]:
    """The reply to a command.

    Raises:
        StoreUnavailable: the service did not answer, or was at its limit for too long.
        SchemaOutdated: there is no such table.
    """
    match command:
        case Now():
            return (yield from _now(place))
        case Pause():
            return (yield command)
        case Call():
            return (yield from _called(place, command))


def _called(place: Place, call: Call) -> Flow[Any]:
    began = place.clock.span()
    pause = _FIRST_PAUSE
    while True:
        sent = place.clock.span()
        try:
            response = yield Send(call)
        except SemelError:
            raise  # the SDK is not there to say more
        except Exception as error:
            from semel.stores.dynamodb.troubles import AGAIN, expected, response_of, translated, trouble_of

            _heard(place, sent, response_of(error))
            known = expected(error)
            if known is not None:
                return known
            passed = (place.clock.span() - began) / SECOND
            if trouble_of(error) not in AGAIN or passed + pause > place.settings.throttled_for:
                raise translated(error, place.settings.name) from error
        else:
            _heard(place, sent, response)
            return response
        # Somewhere between nothing and all of it: those who were throttled together do not come back together.
        yield Pause(pause * place.chance())
        pause = min(pause * 2, _LONGEST_PAUSE)


def _heard(place: Place, sent: int, response: dict[str, Any]) -> None:
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    date = instant_of(headers.get("date", ""))
    # A reply that a proxy made up has no request id of the service, and a Date of whoever made it.
    if date is not None and _REQUEST_ID in headers:
        place.clock.hear(sent, place.clock.span(), date)


def _now(place: Place) -> Flow[Moment]:
    moment = place.clock.moment()
    if moment is None or moment.high - moment.low > WIDEST:
        yield from _called(place, requests.get(place.settings.table, _NOBODY))
        moment = place.clock.moment()
    if moment is None:
        message = (
            f"{place.settings.name} sends replies without a Date, so its time is not known; nothing was recorded. "
            f"Let the proxy in between pass that header on."
        )
        raise StoreUnavailable(message)
    return moment
