"""Sealing: what a keyring adds to the encryption itself, for one record of 1 KiB.

Invariant: every call that seals is about another record, so that no derived key is met a second time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bench.callers import alone
from bench.harness import Case, Comparison, Effort, Measure, Variant
from semel.core.sealing.values import OUTCOME
from semel.security import Keyring

_KEY = bytes(range(32))
_PLAIN = bytes(range(256)) * 4
_BOUND = bytes(64)
_RING = Keyring(active="2026-11", keys={"2026-11": _KEY})
_PREPARED = AESGCM(_KEY)
_SEALED = _RING.seal((1).to_bytes(32, "big"), OUTCOME, _PLAIN)


def _subject(number: int) -> bytes:
    return number.to_bytes(32, "big")


def _encrypt(number: int) -> bytes:
    """What one call takes that has the key of a record: its cipher, a nonce, the encryption."""
    return AESGCM(_subject(number)).encrypt(os.urandom(12), _PLAIN, _BOUND)


def _encrypt_prepared(number: int) -> bytes:
    return _PREPARED.encrypt(number.to_bytes(12, "big"), _PLAIN, _BOUND)


def _seal(number: int) -> bytes:
    return _RING.seal(_subject(number), OUTCOME, _PLAIN)


def _open(number: int) -> bytes:
    del number
    return _RING.open(_subject(1), OUTCOME, _SEALED)


def _calling(function: Callable[[int], object]) -> Callable[[Path, Effort], AbstractContextManager[Measure]]:
    @contextmanager
    def prepare(folder: Path, effort: Effort) -> Iterator[Measure]:
        del folder, effort
        yield lambda calls: alone(list(range(1, calls + 1)), function)

    return prepare


_PER_RECORD = "AESGCM(key of the record).encrypt"
_SHARED = "AESGCM.encrypt, one key for all"

SEALING = Case(
    "sealing",
    "Sealing an outcome of 1 KiB, per call",
    (
        Variant(_PER_RECORD, _calling(_encrypt), 5000),
        Variant("Keyring.seal", _calling(_seal), 5000, against=_PER_RECORD, by=Comparison("slower", 3.0)),
        Variant(_SHARED, _calling(_encrypt_prepared), 5000),
        Variant(
            "Keyring.seal, against one key for all",
            _calling(_seal),
            5000,
            against=_SHARED,
            by=Comparison("slower", 3.0),
        ),
        Variant("Keyring.open, again", _calling(_open), 5000, against=_SHARED, by=Comparison("slower", 3.0)),
    ),
    notes=(
        "A keyring derives a key for each record; the last two rows compare with one encryption under one key.",
        "What is opened again is a record that is replayed.",
    ),
    needs="cryptography",
)
