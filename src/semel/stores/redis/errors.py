"""Errors of Redis and redis-py, translated into semel's.

- A translated error says what happened, whether anything was recorded and what to do, and carries its cause.
- Only listed errors are translated; any other is a bug and is raised as it is.
- A lost reply is never taken for a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from redis import exceptions

from semel.errors import RecordUnreadable, SemelError, StoreMisconfigured, StoreUnavailable

_ADVICE: Final = {
    "LOADING": "it is still reading its data; try again",
    "READONLY": "it accepts no writes; give the address of the primary",
    "MASTERDOWN": "its primary is gone; try again once there is one",
    "CLUSTERDOWN": "the cluster has no node for this key; try again, or look at CLUSTER INFO",
    "TRYAGAIN": "the key is on its way to another node; try again",
    "MOVED": "the key moves from node to node; try again",
    "ASK": "the key is on its way to another node; try again",
    "OOM": "its memory is full; raise maxmemory, or keep records for a shorter time",
    "MISCONF": "it cannot write to its disk; look at the server's log",
    "NOREPLICAS": "too few replicas are there, as min-replicas-to-write demands; look at them",
    "BUSY": "a script of somebody else keeps it busy; end that one",
    "UNKILLABLE": "a script of somebody else keeps it busy; end that one",
    "NOPERM": "its user lacks a permission; grant ~<the prefix of the keys>* &<the same>* +@hash +@read +eval +evalsha "
    "+scan +time +persist +pexpireat +del +exists +publish +subscribe +info",
    "NOAUTH": "it wants a user and a password; put them into the URL",
    "WRONGPASS": "it does not know this user and password; look at the URL",
    "DBINDEX": "it has no database of that number; look at the number at the end of the URL",
    "MAXCLIENTS": "it has no connection left; raise maxclients",
}
_MISCONFIGURED: Final = frozenset({"NOPERM", "NOAUTH", "WRONGPASS", "DBINDEX"})
"""Trying again is of no use before somebody changes the URL or the server."""
_UNREADABLE: Final = frozenset({"WRONGTYPE", "UNREADABLE"})
_CODE: Final = re.compile(rf"\b({'|'.join([*_ADVICE, *_UNREADABLE])})\b")
_CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.MaxConnectionsError, "MAXCLIENTS"),
)
_TEXTS: Final = {
    "max number of clients": "MAXCLIENTS",
    "DB index is out of range": "DBINDEX",
    "invalid DB index": "DBINDEX",
    "Invalid Database": "DBINDEX",
}
"""Errors that the server gives no word of their own."""
REPLIES: Final = (exceptions.ResponseError, exceptions.BusyLoadingError, exceptions.AuthenticationError)
"""Errors that the server sent as replies: it is known what they did."""
WIRE: Final = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
"""Errors on the way: what was sent may or may not have been done."""


def code(error: Exception) -> str | None:
    """The server's word for an error that is known; also where a script of an older server wraps it in a sentence."""
    for kind, word in _CLASSES:
        if isinstance(error, kind):
            return word
    found = _CODE.search(str(error))
    if found is not None:
        return found[1]
    if isinstance(error, exceptions.AuthenticationError):
        return "NOAUTH" if "required" in str(error) else "WRONGPASS"
    return next((word for text, word in _TEXTS.items() if text in str(error)), None)


def is_demoted(replies: Sequence[object]) -> bool:
    """Whether the server takes no writes any more: it has become a replica, and what it knows may be old."""
    errors = [reply for reply in replies if isinstance(reply, Exception)]
    return any(code(error) == "READONLY" for error in errors)


def reply_error(error: Exception, name: str) -> Exception:
    """What an error that is a reply means."""
    word = code(error)
    known: SemelError
    if word is None:
        return error
    if word in _UNREADABLE:
        known = RecordUnreadable(
            f"{name} holds something that is no record of this release ({brief(error)}); nothing ran. "
            f"Give the store a pattern of keys that nobody else uses."
        )
    elif word in _MISCONFIGURED:
        known = StoreMisconfigured(
            f"{name} cannot be used ({word}: {brief(error)}); nothing was recorded. {_do(word)} "
            f"Trying again does not help."
        )
    else:
        known = StoreUnavailable(f"{name} did not do it ({word}: {brief(error)}); nothing was recorded. {_do(word)}")
    known.__cause__ = error
    return known


def lost_reply_error(error: Exception, name: str) -> Exception:
    """What an error after something was sent means."""
    known = StoreUnavailable(
        f"{name} did not answer ({brief(error)}); whether it was recorded is not known. "
        f"Try again once it can be reached."
    )
    known.__cause__ = error
    return known


def unreached_error(error: Exception, name: str) -> Exception:
    """What an error before anything was sent means."""
    if isinstance(error, SemelError):
        return error
    if code(error) is not None:
        return reply_error(error, name)
    known = StoreUnavailable(
        f"{name} cannot be reached ({brief(error)}); nothing was recorded. Look at the address and the server."
    )
    known.__cause__ = error
    return known


def brief(error: Exception) -> str:
    """The first line of a message: the rest may repeat what was sent."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _do(word: str) -> str:
    advice = _ADVICE[word]
    return f"{advice[0].upper()}{advice[1:]}."
