"""The mark that a request carries while its key is claimed: nobody claims twice, and what its view raised is noted.

What always holds: an error counts as the outcome only where Django made a server error of it. What became a page that
says no (404, 403, 400), or what another middleware answered, counts by its status.
"""

from __future__ import annotations

from typing import Any

_NAME = "_semel_carried"
_SERVER_ERROR = 500


class Carried:
    """What is noted with a request.

    Attributes:
        error: what the view raised, where Django made a response of it.
        raised: whether the view raised at all, also where the response says more than the error.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.raised = False

    def counts(self, response: Any) -> Exception | None:
        """The error that this response stands for."""
        return self.error if response.status_code >= _SERVER_ERROR else None


def carry(django: Any) -> Carried:
    """Mark a request as claimed for."""
    made = Carried()
    setattr(django, _NAME, made)
    return made


def note_raised(django: Any) -> None:
    """The view of a request has raised, and what is answered counts by its status."""
    found = carried(django)
    if found is not None:
        found.raised = True


def carried(django: Any) -> Carried | None:
    """What is noted with a request, if somebody has claimed for it."""
    found: Carried | None = getattr(django, _NAME, None)
    return found
