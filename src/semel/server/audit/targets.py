"""How the audit chain names what is no record: the same for the server and for the command line."""

from __future__ import annotations

from typing import Final

from semel.core.events.letters import StoredLetter

_DIGITS: Final = 16


def letter_target(letter: StoredLetter) -> str:
    """A dead letter."""
    return f"letter:{letter.consumer}:{letter.id.hex()[:_DIGITS]}"


def batch_target(batch: str) -> str:
    """A batch, by its id."""
    return f"batch:{batch}"


def bulk_target(bulk: str) -> str:
    """A bulk action, by its id."""
    return f"bulk:{bulk}"


def parked_target(stream: str, position: int | None) -> str:
    """A parked event of a stream; None: all of them."""
    return f"parked:{stream}:{'all' if position is None else position}"
