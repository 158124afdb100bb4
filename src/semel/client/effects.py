"""What the flows of a client ask for, and how a try can end. Values; no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from semel.client.outgoing import Outgoing, Reply, Saved
from semel.core.flow import Flow
from semel.core.key import Key
from semel.core.record import Status
from semel.engine.colourless import Asked


@dataclass(frozen=True, slots=True)
class Look:
    """Asks for the record of a key; answered with a `Record` or None."""

    key: Key


@dataclass(frozen=True, slots=True)
class Carry:
    """Asks to run `flow` once for a key; answered with its `Result`, raises what the flow raises."""

    key: Key
    asked: Asked
    flow: Flow[Reply]


@dataclass(frozen=True, slots=True)
class Keep:
    """Asks to keep the request with the running attempt.

    Answered with what the first attempt kept, and whether an earlier one may have had its effect.
    """

    saved: Saved


@dataclass(frozen=True, slots=True, eq=False)
class Send:
    """Asks to send a request with this value in its key header; answered with a `Reply`, raises `Cut`."""

    outgoing: Outgoing
    key: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Asks for what lies at an address; answered with its bytes, none where nothing lies there, or None: no answer."""

    url: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Asks to let time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """Asks to delete what has expired, and to mark what nobody works at any more as in doubt."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Asks for all records of a status, or of an intent; answered with a list."""

    scope: str
    status: Status | None = None
    intent: str | None = None


@dataclass(frozen=True, slots=True)
class Resend:
    """Asks to send an unfinished request again, through the caller's client; answered with the library's response."""

    send: Callable[[Any], Any]
    pending: Any


@dataclass(frozen=True, slots=True)
class Cancel:
    """Asks to end a doubt: nothing more will be done. Answered with whether there was one."""

    key: Key
    why: str


class Cut(Exception):
    """No answer came. `sent` says whether the request may have arrived, `again` whether another try is of use."""

    def __init__(self, error: Exception, *, sent: bool, again: bool = True) -> None:
        super().__init__(type(error).__name__)
        self.error = error
        self.sent = sent
        self.again = again


class Ended(Exception):
    """A try, or all of them, ended without success: with an answer, or with the library's error."""

    def __init__(self, reply: Reply | None, error: Exception | None, place: str) -> None:
        how = type(error).__name__ if reply is None else f"status {reply.status}"
        super().__init__(f"{place}: {how}")
        self.reply = reply
        self.error = error

    def told(self) -> Reply:
        """The answer for the caller; where there is none, the library's own error is raised."""
        if self.reply is not None:
            return self.reply
        assert self.error is not None  # noqa: S101 - an end has one or the other
        raise self.error


class Refused(Ended):
    """The service refused it, and will under this key: the next one asked for takes a new key."""


class NothingRan(Ended):
    """No try was carried out: nothing has to be found out."""


class Unsettled(Ended):
    """It may have run: the key is kept, and asked with again."""
