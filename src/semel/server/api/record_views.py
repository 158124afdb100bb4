"""Records and their history as plain values, the same for the API and for the command line.

Instants are in UTC, ISO 8601. A shared scope is null, and so is what was erased. No fingerprint, nonce or outcome is
part of any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from semel.core.record import Failure, HistoryEntry, Holder, Note, Record


def iso(at: datetime) -> str:
    """An instant for machines: in UTC, ISO 8601."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def iso_or_none(at: datetime | None) -> str | None:
    """The same of what there may be none of."""
    return None if at is None else iso(at)


class HolderView(msgspec.Struct, frozen=True):
    """A process that held a record."""

    host: str
    pid: int
    version: str
    started: str

    @staticmethod
    def of(holder: Holder) -> HolderView:
        """As it is shown."""
        return HolderView(holder.host, holder.pid, holder.version, iso(holder.started))


class AboutView(msgspec.Struct, frozen=True):
    """What a record is searched by."""

    subject: str | None
    business_key: str | None
    process_instance: str | None
    requester: str | None
    tags: Mapping[str, str]


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """A record, without its outcome."""

    reference: str
    operation: str
    scope: str | None
    key: str | None
    status: str
    retryable: bool
    attempts: int
    fence: int
    in_doubt_policy: str
    created_at: str
    started_at: str
    updated_at: str
    lease_until: str
    completed_at: str | None
    expires_at: str | None
    replays: int
    replayed_at: str | None
    outcome_bytes: int | None
    error: Failure | None
    resolution: Note | None
    about: AboutView

    @staticmethod
    def of(record: Record) -> RecordView:
        """As it is shown."""
        about = record.about
        return RecordView(
            reference=record.reference,
            operation=record.key.operation,
            scope=record.key.scope or None,
            key=record.key.value or None,
            status=record.status.value,
            retryable=record.retryable,
            attempts=record.attempts,
            fence=record.fence,
            in_doubt_policy=record.in_doubt_policy,
            created_at=iso(record.created_at),
            started_at=iso(record.started_at),
            updated_at=iso(record.updated_at),
            lease_until=iso(record.lease_until),
            completed_at=iso_or_none(record.completed_at),
            expires_at=iso(record.expires_at) if record.settled else None,
            replays=record.replays,
            replayed_at=iso_or_none(record.replayed_at),
            outcome_bytes=None if record.outcome is None else len(record.outcome),
            error=record.error,
            resolution=record.note,
            about=AboutView(
                about.subject, about.business_key, about.process_instance, about.requester, dict(about.tags)
            ),
        )


class EntryView(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a record."""

    kind: str
    number: int
    started: str
    ended: str | None
    ending: str | None
    error: Failure | None
    holder: HolderView | None

    @staticmethod
    def of(entry: HistoryEntry) -> EntryView:
        """As it is shown."""
        return EntryView(
            kind=entry.kind,
            number=entry.number,
            started=iso(entry.started),
            ended=iso_or_none(entry.ended),
            ending=entry.ending,
            error=entry.error,
            holder=None if entry.holder is None else HolderView.of(entry.holder),
        )
