"""What the SQL stores share about text and rows: named statements from `.sql` files, records as rows.

- A row is read in the order of `RECORD_COLUMNS`, and every statement that returns a record names its columns by it.
- A word in a row that this release does not know is `RecordUnreadable`, never a guess.
- What is written in these forms equals what is read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Literal, get_args

import msgspec

from semel.core.key import Key
from semel.core.operations import Claim, CountFailure, Erase, Reopen, Resolve
from semel.core.policy import Doubt
from semel.core.record import (
    ERASED_FAILURE,
    ERASED_OUTCOME,
    NOTHING,
    REOPENED,
    About,
    Failure,
    Status,
    Step,
    StoredRecord,
    Worker,
)
from semel.errors import RecordUnreadable


def new_record(claim: Claim, now: int, *, lease_us: int, fence: int = 1) -> StoredRecord:
    """The record that a claim writes where there is none, or only an expired one: known without reading it back."""
    terms = claim.terms
    return StoredRecord(
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


RECORD_COLUMNS = (
    "digest",
    "scope",
    "operation",
    "value",
    "status",
    "retryable",
    "fingerprint",
    "fence",
    "nonce",
    "lease_us",
    "in_doubt_policy",
    "reconcile_after_us",
    "doubtful",
    "attempts",
    "outcome",
    "error_type",
    "error_message",
    "subject",
    "business_key",
    "process_instance",
    "requester",
    "tags",
    "created_us",
    "started_us",
    "updated_us",
    "completed_us",
    "expires_us",
    "keep_us",
    "resolution",
    "replays",
    "replayed_us",
    "steps",
)
TEXT_COLUMNS = frozenset(
    {
        "scope",
        "operation",
        "value",
        "status",
        "in_doubt_policy",
        "error_type",
        "error_message",
        "subject",
        "business_key",
        "process_instance",
        "requester",
        "tags",
        "resolution",
    }
)

USUAL_TERMS = {"in_doubt_policy": "'rerun'", "reconcile_after_us": "30000000"}
"""What NULL stands for in the tables of SQL servers, as it is written in their statements: the terms of nearly every
record take no bytes. Stored records are read by it, so it stays as it is even if the defaults of policies change."""

_HEADING = re.compile(r"^-- (name|part): (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_PART = re.compile(r"\{(\w+)\}")
_STATUS = {status.value: status for status in Status}
_DOUBTS = frozenset(get_args(Doubt))
_UNREADABLE_TAGS = "semel.unreadable"
_SHOWN = 100
_TAGS = msgspec.json.Decoder(dict[str, str])
_ENCODE = msgspec.json.Encoder().encode
_ABOUT_NOTHING = (None, None, None, None, None)


def load_statements(
    package: str, name: str, parts: Mapping[str, str], *, only: Literal["name", "part"] = "name"
) -> dict[str, str]:
    """The statements of a `.sql` file by name, without comments; or its pieces, for another file to include.

    A section is headed `-- name: x` (a statement) or `-- part: y` (a piece that later sections include as `{y}`).
    `parts` are further pieces.
    """
    texts = _HEADING.split(files(package).joinpath(name).read_text(encoding="utf-8"))[1:]
    known = dict(parts)
    statements: dict[str, str] = {}
    for kind, title, text in zip(texts[0::3], texts[1::3], texts[2::3], strict=True):
        body = _PART.sub(lambda hit: known[hit.group(1)], _COMMENT.sub("", text)).strip().rstrip(";")
        (known if kind == "part" else statements)[title] = body
    return statements if only == "name" else known


def load_rules(row: str) -> dict[str, str]:
    """The rules of arbitration on `row`, as pieces for the statements of a server."""
    terms = usual_terms(f"{row}.")
    parts = {"r": row, "r_policy": terms["in_doubt_policy"], "r_quiet": terms["reconcile_after_us"]}
    return load_statements("semel.stores.sql", "rules.sql", parts, only="part")


def usual_terms(row: str = "") -> dict[str, str]:
    """The two columns whose usual value is not stored, as they are read from `row`, by their names."""
    return {name: f"coalesce({row}{name}, {usual})" for name, usual in USUAL_TERMS.items()}


def record_of(row: Sequence[Any], steps: tuple[Step, ...] = ()) -> StoredRecord:
    """The record that a row stands for.

    Raises:
        RecordUnreadable: the row holds a word that this release does not know.
    """
    (
        digest,
        scope,
        operation,
        value,
        status,
        retryable,
        fingerprint,
        fence,
        nonce,
        lease_us,
        in_doubt_policy,
        reconcile_after_us,
        doubtful,
        attempts,
        outcome,
        error_type,
        error_message,
        subject,
        business_key,
        process_instance,
        requester,
        tags,
        created_us,
        started_us,
        updated_us,
        completed_us,
        expires_us,
        keep_us,
        resolution,
        replays,
        replayed_us,
        _,
    ) = row
    if status not in _STATUS or in_doubt_policy not in _DOUBTS:
        raise _unknown_word(digest, status, in_doubt_policy)
    return StoredRecord(
        key=Key(scope, operation, value, digest),
        status=_STATUS[status],
        retryable=bool(retryable),
        fingerprint=fingerprint,
        fence=fence,
        nonce=nonce,
        lease_us=lease_us,
        in_doubt_policy=in_doubt_policy,
        reconcile_after_us=reconcile_after_us,
        doubtful=bool(doubtful),
        attempts=attempts,
        outcome=outcome,
        error=None if error_type is None else Failure(error_type, error_message),
        about=_about(subject, business_key, process_instance, requester, tags),
        created_us=created_us,
        started_us=started_us,
        updated_us=updated_us,
        completed_us=completed_us,
        expires_us=expires_us,
        keep_us=keep_us,
        resolution=resolution,
        replays=replays,
        replayed_us=replayed_us,
        steps=steps,
    )


def claim_values(claim: Claim, *, lease_us: int) -> dict[str, Any]:
    """A claim as named parameters, without what it is about."""
    key, terms = claim.key, claim.terms
    return {
        "digest": key.digest,
        "scope": key.scope,
        "operation": key.operation,
        "value": key.value,
        "fingerprint": claim.fingerprint,
        "nonce": claim.nonce,
        "lease_us": lease_us,
        "keep_us": terms.keep_us,
        "in_doubt": terms.in_doubt,
        "reconcile_after_us": terms.reconcile_after_us,
    }


def claim_row(claim: Claim, *, lease_us: int) -> tuple[Any, ...]:
    """A claim as values by position: what it asks for, then what it is about."""
    key, terms = claim.key, claim.terms
    return (
        key.digest,
        key.scope,
        key.operation,
        key.value,
        claim.fingerprint,
        claim.nonce,
        lease_us,
        terms.keep_us,
        terms.in_doubt,
        terms.reconcile_after_us,
        *(_ABOUT_NOTHING if claim.about is NOTHING else about_values(claim.about).values()),
    )


def resolve_values(operation: Resolve) -> dict[str, Any]:
    """A decision as values by name, in the order in which statements take them by position."""
    error = None if operation.error is None else stored_failure(operation.error)
    return {
        "digest": operation.digest,
        "nonce": operation.nonce,
        "status": operation.status.value,
        "outcome": operation.outcome,
        "note": storable(operation.note),
        "corrects": operation.corrects,
        "error_type": None if error is None else error.type,
        "error_message": None if error is None else error.message,
        "forced": operation.force,
        "fence": operation.fence,
    }


def reopen_values(operation: Reopen) -> dict[str, Any]:
    """A reopening as values by name, in the order in which statements take them by position."""
    return {
        "digest": operation.digest,
        "nonce": operation.nonce,
        "seen": operation.seen,
        "note": storable(operation.note),
        "error_type": REOPENED.type,
        "error_message": REOPENED.message,
    }


def count_values(operation: CountFailure, fence: int) -> dict[str, Any]:
    """A failure to be counted as values by name, in the order in which statements take them by position."""
    key, terms, error = operation.key, operation.terms, stored_failure(operation.error)
    return {
        "digest": key.digest,
        "scope": key.scope,
        "operation": key.operation,
        "value": key.value,
        "fingerprint": operation.fingerprint,
        "nonce": operation.nonce,
        "keep_us": terms.keep_us,
        "in_doubt_policy": terms.in_doubt,
        "reconcile_after_us": terms.reconcile_after_us,
        "error_type": error.type,
        "error_message": error.message,
        "most": operation.max_attempts,
        "fence": fence,
        **about_values(operation.about),
    }


def erase_row(operation: Erase) -> tuple[Any, ...]:
    """An erasure as values by position: what it is asked for, then what it leaves in place of what it takes."""
    failure = ERASED_FAILURE
    note = storable(operation.note)
    return operation.digest, note, operation.invalidates, ERASED_OUTCOME, failure.type, failure.message


def worker_row(worker: Worker) -> tuple[Any, ...]:
    """A worker as values by position."""
    return worker.process, storable(worker.host), worker.pid, storable(worker.version)


def about_values(about: About) -> dict[str, str | None]:
    """What a claim is about, as named parameters."""
    kept = stored_about(about)
    return {
        "subject": kept.subject,
        "business_key": kept.business_key,
        "process_instance": kept.process_instance,
        "requester": kept.requester,
        "tags": _ENCODE(kept.tags).decode() if kept.tags else None,
    }


def steps_of(rows: Iterable[Sequence[Any]]) -> tuple[Step, ...]:
    """Finished steps from rows of position, name and outcome, in order."""
    return tuple(Step(position, name, outcome) for position, name, outcome in rows)


def _about(
    subject: str | None, business_key: str | None, process_instance: str | None, requester: str | None, tags: str | None
) -> About:
    if subject is business_key is process_instance is requester is tags is None:
        return NOTHING
    return About(
        subject=subject,
        business_key=business_key,
        process_instance=process_instance,
        requester=requester,
        tags={} if tags is None else _tags(tags),
    )


def _tags(text: str) -> dict[str, str]:
    """Tags as they were given; where somebody has changed them so that they are none, one that says so.

    Nothing is decided by them, so such a record can be looked at, and hides no other.
    """
    try:
        return _TAGS.decode(text)
    except msgspec.DecodeError as problem:
        return {_UNREADABLE_TAGS: f"{problem}: {text[:_SHOWN]}"}


def _unknown_word(digest: bytes, status: object, in_doubt_policy: object) -> RecordUnreadable:
    return RecordUnreadable(
        f"The record {digest.hex()} has status {status!r} and in-doubt policy {in_doubt_policy!r}, which this release "
        f"does not know; nothing ran. Read it with the release that wrote it.",
        reference=digest.hex(),
    )
