"""The port for sealing what is stored, and the form that sealed bytes and texts have. No cryptography, no keys.

- Sealed bytes are an envelope (`semel.core.record`) whose `seal` names the key. Version and key id can be read without
  the key; the rest says nothing. A sealed error is a `Failure` of the type `semel.Sealed` whose message is the same
  bytes as base64.
- Every sealing is bound to its place: the subject (32 bytes that name the record, letter, event or item) and the field.
  What was moved from one place to another, or changed, cannot be opened.
- What cannot be opened is never taken for "nothing there": it becomes a value that says why, and whoever needs what was
  in it gets `RecordUnreadable`.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from semel.core.record import UNREADABLE, VERSION, Envelope, Failure
from semel.errors import RecordUnreadable

OUTCOME: Final = b"outcome"
ERROR: Final = b"error"
LETTER_CONTENT: Final = b"letter.content"
LETTER_ERROR: Final = b"letter.error"
EVENT_DATA: Final = b"event.data"
EVENT_ATTRIBUTES: Final = b"event.attributes"
PARKED_ERROR: Final = b"parked.error"
ITEM_DATA: Final = b"item.data"
ITEM_OUTCOME: Final = b"item.outcome"
CACHE_ENTRY: Final = b"cache"

SEALED: Final = "semel.Sealed"
"""The type of a failure whose message is sealed."""

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODER: Final = msgspec.msgpack.Decoder(Envelope)
_TEXTS: Final = msgspec.msgpack.Decoder(tuple[str, str])
_START: Final = b"\x95" + _ENCODE(VERSION) + _ENCODE("") + _ENCODE("")  # five parts; neither codec nor compression
_OF_SEMEL: Final = "semel."
_EMPTY: Final = b"\xa0"
_LONG_TEXT: Final = b"\xd9"
_SHORT_LENGTH: Final = 0x1F
_SHORT_BODY: Final = 1 << 8
_LONG_BODY: Final = 1 << 16


class Sealer(Protocol):
    """What seals and opens, with keys that are its own affair."""

    @property
    def active(self) -> str:
        """The id of the key that it seals with."""

    @property
    def accepts_plain(self) -> bool:
        """Whether what is not sealed is read as it is."""

    def seal(self, subject: bytes, field: bytes, plain: bytes, *, repeatable: bool = False) -> bytes:
        """`plain`, sealed with the active key for one field of one subject.

        `repeatable`: the same again gives the same bytes, for a write that is recognised by them when it is sent again.
        """

    def open(self, subject: bytes, field: bytes, sealed: bytes) -> bytes:
        """What was sealed there.

        Raises:
            RecordUnreadable: the key is not at hand, or these bytes were not sealed there.
        """


def step_field(index: int) -> bytes:
    """The field of a finished step of a record."""
    return b"step.%d" % index


def event_subject(stream: str, event_id: str, source: str, event_type: str, scope: str) -> bytes:
    """What names an event that waits to be published, from columns that stay readable."""
    return _subject(b"event", *(_encoded(text) for text in (stream, event_id, source, event_type, scope)))


def item_subject(number: int, position: int) -> bytes:
    """What names an item: its batch and its position there."""
    return _subject(b"item", b"%d" % number, b"%d" % position)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")  # as stores keep what no encoding has


def _subject(*parts: bytes) -> bytes:
    digest = hashlib.sha256(b"semel.sealed\x00")
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def sealed_start(key_id: str) -> bytes:
    """How bytes begin that are sealed with this key, up to their body."""
    return _START + _ENCODE(key_id)


@lru_cache(1024)
def body_start(length: int) -> bytes:
    """What stands between the start of sealed bytes and their body: how long it is, as MessagePack says it."""
    if length < _SHORT_BODY:
        return b"\xc4" + length.to_bytes(1, "big")
    return b"\xc5" + length.to_bytes(2, "big") if length < _LONG_BODY else b"\xc6" + length.to_bytes(4, "big")


def is_sealed(stored: bytes) -> bool:
    """Whether bytes are sealed. JSON begins with no such byte, and a plain outcome names its codec."""
    return stored.startswith(_START) and stored[len(_START) : len(_START) + 1] != _EMPTY


def unpack_sealed(stored: bytes) -> tuple[str, bytes]:
    """Key id and body of sealed bytes.

    Raises:
        RecordUnreadable: they are damaged.
    """
    try:
        if not is_sealed(stored):
            raise tampered_error("")
        envelope = _DECODER.decode(stored)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as problem:
        raise tampered_error("") from problem
    return envelope.seal, envelope.body


def key_id_of(stored: bytes) -> str | None:
    """Which key sealed bytes name, from their first 100 alone; None: they are not sealed, or damaged."""
    if not is_sealed(stored):
        return None
    found = stored[len(_START) :]
    if not found:
        return ""
    # A short text has its length in its first byte, a longer one in the next.
    length, first = (found[1], 2) if found[:1] == _LONG_TEXT and len(found) > 1 else (found[0] & _SHORT_LENGTH, 1)
    return found[first : first + length].decode("utf-8", "replace")


def missing_key_error(key_id: str, why: str = "which the keyring does not have") -> RecordUnreadable:
    """The error for what is sealed with a key that is not at hand."""
    return RecordUnreadable(
        f"What is stored is sealed with the key {key_id!r}, {why}. It did run before and nothing ran now; "
        f"give that key to the keyring.",
        key_id=key_id,
    )


def refuse_sealed(stored: bytes) -> None:
    """Refuse what is sealed where nobody opened it: it would be taken for what it is not.

    Raises:
        RecordUnreadable: it is, so whoever reads it has no keyring.
    """
    if is_sealed(stored):
        raise RecordUnreadable(
            f"What is stored is sealed with the key {key_id_of(stored)!r}, and no keyring was given (seal=); nothing "
            f"ran and nothing was changed. Give this engine the keyring that the others have.",
            key_id=key_id_of(stored),
        )


def tampered_error(key_id: str) -> RecordUnreadable:
    """The error for sealed bytes that were changed, or moved from where they were sealed."""
    named = f" with the key {key_id!r}" if key_id else ""
    return RecordUnreadable(
        f"What is stored was sealed{named} and cannot be opened: it was changed, moved from another place, or sealed "
        f"under another key of that id. It did run before and nothing ran now; look at who writes to the store.",
        key_id=key_id,
    )


def unsealed_error() -> RecordUnreadable:
    """The error for what is not sealed, where only sealed values are accepted."""
    return RecordUnreadable(
        "What is stored is not sealed, and this keyring accepts only what is (accept_plain=False). It did run before "
        "and nothing ran now; look at who writes to the store, or seal it with `semel reseal`."
    )


def seal_failure(sealer: Sealer, subject: bytes, field: bytes, failure: Failure) -> Failure:
    """An error as it is stored: type and message sealed together. A failure sent again is recognised by its bytes."""
    return Failure(SEALED, b64encode(sealer.seal(subject, field, _packed(failure), repeatable=True)).decode())


def _packed(failure: Failure) -> bytes:
    texts = (failure.type, failure.message)
    return _ENCODE([text.encode("utf-8", "backslashreplace").decode() for text in texts])


def open_failure(sealer: Sealer, subject: bytes, field: bytes, failure: Failure) -> Failure:
    """An error as it was before it was sealed; one of the type `semel.Unreadable` where it cannot be opened."""
    if failure.type != SEALED:
        is_taken = sealer.accepts_plain or failure.type.startswith(_OF_SEMEL)  # what stores write by themselves
        return failure if is_taken else Failure(UNREADABLE, str(unsealed_error()))
    sealed = sealed_text(failure)
    if sealed is None:
        return Failure(UNREADABLE, "the sealed text of the error is longer than this store keeps there, or was changed")
    try:
        return Failure(*_TEXTS.decode(sealer.open(subject, field, sealed)))
    except (RecordUnreadable, msgspec.MsgspecError) as error:
        return Failure(UNREADABLE, str(error))


def sealed_text(failure: Failure) -> bytes | None:
    """The sealed bytes in a stored error; None where it was cut short, or is no sealed one."""
    if failure.type != SEALED:
        return None
    try:
        sealed = b64decode(failure.message, validate=True)
    except ValueError:
        return None
    return sealed if is_sealed(sealed) else None


def unreadable_outcome(error: RecordUnreadable) -> bytes:
    """What stands in the place of an outcome that cannot be opened; decoding it raises `error` again."""
    key_id = str(error.facts.get("key_id", ""))
    return _ENCODE(Envelope(VERSION, UNREADABLE, "", key_id or "?", str(error).encode()))
