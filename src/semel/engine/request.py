"""What one call asks for, as a value, and what comes of it."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from semel.core.codec import Shape
from semel.core.fingerprint import Fingerprints
from semel.core.key import Key
from semel.core.operations import Granted, Terms
from semel.core.outcome import is_tombstone, tombstone_reason
from semel.core.policy import Policy, microseconds
from semel.core.record import About, Record, Status

T = TypeVar("T")


class Request(msgspec.Struct, frozen=True):
    """One call: which key, what was asked, under which policy, and what the result looks like.

    `asked` and `fingerprints` serve to compare it with a record whose fingerprint was taken in another way. Without
    them only equal fingerprints are the same request.
    """

    key: Key
    fingerprint: bytes
    policy: Policy
    terms: Terms
    about: About
    shape: Shape
    asked: Any = None
    fingerprints: Fingerprints | None = None

    def __repr__(self) -> str:
        return f"Request({self.key.operation!r}, {self.key.reference})"  # arguments may be personal

    def is_asked_by(self, stored: bytes) -> bool:
        """Whether a stored fingerprint is one of this request.

        Raises:
            RecordUnreadable: it was made in a way that is not known here.
        """
        if stored == self.fingerprint:
            return True
        return self.fingerprints is not None and self.fingerprints.matches(stored, self.asked)


def terms_of(policy: Policy) -> Terms:
    """What of a policy the store has to know."""
    return Terms(
        microseconds(policy.lease_for),
        microseconds(policy.keep_for),
        policy.in_doubt,
        microseconds(policy.reconcile_after),
    )


class Result(msgspec.Struct, Generic[T], frozen=True, dict=True):
    """What a call gave.

    Attributes:
        value: the value, fresh or replayed.
        replayed: whether it was stored before; then nothing ran now.
        cache: whether a cache in front of the store answered.
        seconds: how long the call took, waiting included.
        protected: false only where the store was down and the policy said to run all the same.
    """

    value: T
    replayed: bool
    seconds: float = 0.0
    cache: bool = False
    protected: bool = True
    _granted: Granted | None = None
    _outcome: bytes | None = None
    _at_us: int = 0
    _found: Record | None = None

    def __repr__(self) -> str:
        return f"Result(value={self.value!r}, replayed={self.replayed}, protected={self.protected})"

    def why_not_kept(self) -> str | None:
        """Why the value of this run could not be kept for duplicates; None where it was, or was replayed."""
        outcome = self._outcome
        return tombstone_reason(outcome) if outcome is not None and is_tombstone(outcome) else None

    @cached_property
    def record(self) -> Record | None:
        """The record behind the value; None where the call was unprotected."""
        if self._found is not None or self._granted is None:
            return self._found
        return replace(
            self._granted.record,
            status=Status.COMPLETED,
            outcome=self._outcome,
            completed_us=self._at_us,
            updated_us=self._at_us,
            expires_us=self._granted.record.kept_until(self._at_us),
            error=None,
        )
