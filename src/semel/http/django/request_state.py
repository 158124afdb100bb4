"""The mark that a request carries while its key is claimed: nobody claims twice, and what its view raised is noted.

What always holds: an error that nobody handled, of which Django made a server error, counts as the outcome. Where a
handler made a response of it (a page that says no, such as 404; what REST framework or another middleware answered),
the response is the outcome; what the policy says of the class of the error comes before its status.
"""

from __future__ import annotations

from typing import Any

_NAME = "_semel_carried"
_SERVER_ERROR = 500


class RequestState:
    """What is noted with a request.

    Attributes:
        error: what the view raised, where a response was made of it.
        handled: whether a handler is known to have made that response, whatever its status is.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.handled = False

    def counts(self, response: Any) -> Exception | None:
        """The error that this response only stands for."""
        return self.error if response.status_code >= _SERVER_ERROR and not self.handled else None


def carry(django: Any) -> RequestState:
    """Mark a request as claimed for."""
    made = RequestState()
    setattr(django, _NAME, made)
    return made


def note_handled(django: Any, error: Exception) -> None:
    """The view of a request has raised, and a handler made a response of it."""
    found = carried(django)
    if found is not None:
        found.error, found.handled = error, True


def carried(django: Any) -> RequestState | None:
    """What is noted with a request, if somebody has claimed for it."""
    found: RequestState | None = getattr(django, _NAME, None)
    return found
