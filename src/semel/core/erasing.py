"""What erasing leaves of a record: enough to keep the key shut, and nothing that may be personal or lets it be guessed.

What always holds: only a settled record is erased, and an erased record never runs again before it expires. Outcome,
error, finished steps, what it is about, earlier notes, the texts of key and scope and the fingerprint are gone: who has
the digest of a request tries out all the values that it can have had. Digest of the key, operation, status, fence,
nonce, all instants and the expiry stay. A failure that could have been tried again becomes final: without its finished
steps the next attempt would do once more what they did.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from semel.core.key import Key
from semel.core.outcome import pack_tombstone
from semel.core.record import NOTHING, Failure, Record, Status

REASON: Final = "it was erased"
TOMBSTONE: Final = pack_tombstone(REASON)
FAILURE: Final = Failure("semel.Erased", REASON)
BLANK: Final = b""
"""The fingerprint of an erased record; no request has it."""
RESOLUTION: Final = "Erased"
"""How the note of an erased record names what was done."""


def erased(record: Record, note: str) -> Record:
    """What is left of a settled record."""
    return replace(
        record,
        key=Key("", record.key.operation, "", record.key.digest),
        retryable=False,
        fingerprint=BLANK,
        doubtful=False,
        outcome=TOMBSTONE if record.status is Status.COMPLETED else None,
        error=FAILURE if record.status is Status.FAILED else None,
        about=NOTHING,
        resolution=note,
        steps=(),
    )
