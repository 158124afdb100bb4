"""Records, claims and grants as a store would have them, for tests that need no store."""

from typing import Any

from semel.core.key import Key
from semel.core.operations import Claim, Granted, Terms
from semel.core.record import NOTHING, Lease, Status, StoredRecord

FOREVER = 10**18


def record(**changes: Any) -> StoredRecord:
    """A completed record, with changes."""
    fields: dict[str, Any] = {
        "key": Key.of("k", operation="pay"),
        "status": Status.COMPLETED,
        "retryable": False,
        "fingerprint": b"\x01",
        "fence": 2,
        "nonce": b"n",
        "lease_us": 50,
        "in_doubt_policy": "rerun",
        "reconcile_after_us": 0,
        "doubtful": False,
        "attempts": 1,
        "outcome": b"o",
        "error": None,
        "about": NOTHING,
        "created_us": 10,
        "started_us": 20,
        "updated_us": 45,
        "completed_us": 45,
        "expires_us": 100,
        "keep_us": 90,
    }
    return StoredRecord(**{**fields, **changes})


def running(**changes: Any) -> StoredRecord:
    """A record that somebody runs under a live lease, with changes."""
    return record(**{"status": Status.RUNNING, "outcome": None, "completed_us": None, "lease_us": FOREVER, **changes})


def claim(value: str = "k", nonce: bytes = b"n", **changes: Any) -> Claim:
    """A claim, with changes to its terms."""
    terms: dict[str, Any] = {"lease_us": 30, "keep_us": 90, "in_doubt": "rerun", "reconcile_after_us": 0, **changes}
    return Claim(Key.of(value, operation="pay"), b"\x01", nonce, Terms(**terms), NOTHING)


def granted(wanted: Claim, **changes: Any) -> Granted:
    """The grant of a claim."""
    return Granted(running(key=wanted.key, nonce=wanted.nonce), **changes)


def lease(nonce: bytes = b"n") -> Lease:
    """A lease with this nonce."""
    return running(nonce=nonce).lease
