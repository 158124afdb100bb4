"""What stores of every kind write alike: the record of a new claim, and texts as a database can keep them.

What always holds: what is written in these forms is equal to what is read back.
"""

from __future__ import annotations

from semel.core.operations import Claim
from semel.core.record import NOTHING, About, Failure, Record, Status


def new_record(claim: Claim, now: int, *, lease_us: int, fence: int = 1) -> Record:
    """The record that a claim writes where there is none, or only an expired one: known without reading it back."""
    terms = claim.terms
    return Record(
        key=claim.key,
        status=Status.RUNNING,
        retryable=False,
        fingerprint=claim.fingerprint,
        fence=fence,
        nonce=claim.nonce,
        lease_us=now + lease_us,
        in_doubt_policy=terms.in_doubt,
        reconcile_after_us=terms.reconcile_after_us,
        doubtful=False,
        attempts=1,
        outcome=None,
        error=None,
        about=claim.about,
        created_us=now,
        started_us=now,
        updated_us=now,
        completed_us=None,
        expires_us=now + terms.keep_us,
        keep_us=terms.keep_us,
    )


def storable(text: str | None) -> str | None:
    """`text` as a database can keep it: half a surrogate pair, which no encoding has, is written out as an escape."""
    return text if text is None or text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def stored_failure(failure: Failure) -> Failure:
    """`failure` as it comes back from a store."""
    return Failure(storable(failure.type) or "", storable(failure.message) or "")


def stored_about(about: About) -> About:
    """`about` as it comes back from a store."""
    if about is NOTHING:
        return NOTHING
    return About(
        subject=storable(about.subject),
        business_key=storable(about.business_key),
        process_instance=storable(about.process_instance),
        requester=storable(about.requester),
        tags={storable(name) or "": storable(value) or "" for name, value in about.tags.items()},
    )
