"""What director and workers say to each other: one JSON object per line."""

from __future__ import annotations

import msgspec


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Director to worker: a caller asks for this payment. Times are in seconds."""

    call: int
    payment: str
    amount: str
    before: float
    after: float
    fateful: bool


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The worker listens."""

    pid: int


class Runs(msgspec.Struct, frozen=True, tag=True):
    """The handler was called."""

    payment: str
    attempt: int
    in_doubt: bool


class Charged(msgspec.Struct, frozen=True, tag=True):
    """The provider answered: it charged, or it recognised the key of an earlier charge."""

    payment: str
    attempt: int
    charge: str
    recognised: bool


class Answered(msgspec.Struct, frozen=True, tag=True):
    """A caller has its receipt. `waited`: it was there before the outcome was."""

    call: int
    payment: str
    charge: str
    replayed: bool
    waited: bool


class Unanswered(msgspec.Struct, frozen=True, tag=True):
    """A caller got an error."""

    call: int
    payment: str
    code: str
    message: str


Event = Ready | Runs | Charged | Answered | Unanswered

encode = msgspec.json.Encoder().encode
ask_of = msgspec.json.Decoder(Ask).decode
event_of = msgspec.json.Decoder(Event).decode
