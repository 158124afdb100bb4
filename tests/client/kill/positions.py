"""Where a client can be killed, and where its connection can be cut."""

from enum import Enum
from typing import Final


class At(Enum):
    """Where a life of the client is when it is killed, in the order in which it gets there."""

    STARTED = "it has begun, and nothing is on disk"
    CLAIMED = "the key is on disk, the request is not"
    KEPT = "key and request are on disk, nothing is sent"
    SENT = "the request is sent, nothing of it has arrived"
    IN_REQUEST = "a part of the request has arrived"
    RECEIVED = "the service has the request, there is no effect yet"
    EFFECTED = "the effect has happened, there is no reply yet"
    IN_REPLY = "a part of the reply has arrived"
    ANSWERED = "the reply has arrived, the outcome is not on disk"
    RECORDED = "the outcome is on disk, the caller does not know it"
    MOMENT = "at a random moment"


class Cut(Enum):
    """Where the proxy ends a connection."""

    BEFORE = "before anything of the request arrived"
    IN_REQUEST = "in the middle of the request"
    AFTER_REQUEST = "behind the request, without waiting for the service"
    INSTEAD_OF_REPLY = "when the reply came, before any of it was passed on"
    IN_HEADERS = "in the headers of the reply"
    IN_BODY = "in the body of the reply"


TOLD_BY_LIFE: Final = frozenset({At.STARTED, At.CLAIMED, At.KEPT, At.ANSWERED, At.RECORDED})
"""Positions at which the life itself stands still; at the others the proxy or the service holds it."""
