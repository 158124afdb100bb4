"""How long a broker may deliver a message again, and how it gives messages up, to be compared with consumers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """What a broker is configured with, as far as it tells.

    Attributes:
        place: which queue or stream.
        longest: how old a message may be when it is delivered; None: there is no limit.
        limited_by: the setting that says so, or would.
        drops_expired: whether what is older is deleted, and kept nowhere.
        drops_when_full: the setting by which old messages are deleted to make room; None: none are.
        delivery_limit: after how many deliveries a message is given up; None: never.
        delivery_limited_by: the setting that says so.
        consumer_timeout: how long it waits for an acknowledgement; None: it does not tell.
        duplicate_window: for how long it leaves out a message of an id that it has seen; None: it does not.
        visibility: how long a message stays with a process that is gone; None: it does not tell.
        longest_visibility: for how long it can be kept from others in all; None: for ever.
    """

    place: str
    longest: timedelta | None
    limited_by: str
    drops_expired: bool = False
    drops_when_full: str | None = None
    delivery_limit: int | None = None
    delivery_limited_by: str = ""
    consumer_timeout: timedelta | None = None
    duplicate_window: timedelta | None = None
    visibility: timedelta | None = None
    longest_visibility: timedelta | None = None
