"""What the API takes: bodies of requests and the names in a query, each as a value that is checked."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec

from semel.batch.status import BatchState
from semel.core.key import SHARED
from semel.engine.engine import RecordFilter
from semel.server.bulk import LetterFilter

MOST: Final = 2**62
Number = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
"""What a store can keep; a longer one no program has made."""
Days = Annotated[int, msgspec.Meta(ge=-100_000, le=100_000)]
"""What a length of time can be made of, before anybody asks whether it is too long."""


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may stand behind the question mark."""


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may stand in the body."""


class Filter(Query, frozen=True, kw_only=True):
    """Which records; `scope` empty: the shared one. `tag` is NAME=VALUE."""

    status: str | None = None
    stuck: bool = False
    operation: str | None = None
    scope: str | None = None
    before: datetime | None = None
    after: datetime | None = None
    subject: str | None = None
    business_key: str | None = None
    process_instance: str | None = None
    requester: str | None = None
    tag: str | None = None
    scan: bool = False

    def to_filter(self) -> RecordFilter:
        """As the engine takes it."""
        name, _, value = (self.tag or "").partition("=")
        return RecordFilter(
            status=self.status,
            stuck=self.stuck,
            operation=self.operation,
            scope=SHARED if self.scope == "" else self.scope,
            before=self.before,
            after=self.after,
            subject=self.subject,
            business_key=self.business_key,
            process_instance=self.process_instance,
            requester=self.requester,
            tag=(name, value) if self.tag is not None else None,
            scan=self.scan,
        )


class ListRecords(Filter, frozen=True, kw_only=True):
    """Which records, and which page of them."""

    cursor: str | None = None
    limit: Number = 50


class ListLetters(Query, frozen=True, kw_only=True):
    """Which dead letters, and which page of them."""

    reason: str | None = None
    type: str | None = None
    subject: str | None = None
    scope: str | None = None
    before: datetime | None = None
    cursor: str | None = None
    limit: Number = 50


class ListParked(Query, frozen=True, kw_only=True):
    """Which page of parked events."""

    after: Number = 0
    limit: Number = 50


class ListBatches(Query, frozen=True, kw_only=True):
    """Which batches, and which page of them."""

    state: BatchState | None = None
    scope: str | None = None
    after: Number = 0
    limit: Number = 100


class OfScope(Query, frozen=True, kw_only=True):
    """Whose it is; empty: shared."""

    scope: str = ""


class ListItems(OfScope, frozen=True, kw_only=True):
    """Which items of the batch, and which page of them."""

    status: Literal["failed", "in_doubt"]
    after: Number | None = None
    limit: Number = 100


class ListRefusals(OfScope, frozen=True, kw_only=True):
    """Which page of refusals."""

    after: Number | None = None
    limit: Number = 100


class ListAudit(Query, frozen=True, kw_only=True):
    """Which entries, and which page of them."""

    scope: str | None = None
    actor: str | None = None
    action: str | None = None
    target: str | None = None
    only_open: bool = False
    before: str | None = None
    limit: Number = 50


class VerifyAudit(Query, frozen=True, kw_only=True):
    """Which chain."""

    scope: str | None = None


class Reason(Body, frozen=True, kw_only=True):
    """Why."""

    reason: str


class EraseSubject(Body, frozen=True, kw_only=True):
    """Whose data, where (`scope` empty: the shared one; null: everywhere), and why."""

    subject: str
    reason: str
    scope: str | None = None
    scan: bool = False
    dry_run: bool = False


class Decision(Reason, frozen=True, kw_only=True):
    """A decision about a record. With `fence` it is refused where the record has changed since it was looked at."""

    fence: Number | None = None


class Ending(Decision, frozen=True, kw_only=True):
    """The same for one that may end a live lease: with `force`, `confirm` is the first 8 digits of the reference."""

    force: bool = False
    confirm: str = ""


class Resolve(Ending, frozen=True, kw_only=True):
    """It happened, with this value. With `correct` it replaces the value that was stated before."""

    value: msgspec.Raw
    correct: bool = False


class Fail(Ending, frozen=True, kw_only=True):
    """It failed; duplicates are told this error."""

    error: str


class Sweep(Reason, frozen=True, kw_only=True):
    """Delete and mark at most so many."""

    limit: Number | None = None


class OnScope(Reason, frozen=True, kw_only=True):
    """Why, and whose it is; empty: shared."""

    scope: str = ""


class RetryBatch(OnScope, frozen=True, kw_only=True):
    """Which items run again."""

    which: Literal["failed", "in_doubt"]


class Bulk(Reason, frozen=True, kw_only=True):
    """An action on all that match. With `dry_run` it is only counted. The same `id` is the same bulk action.

    `error` is for `fail`, `value` for `resolve`.
    """

    records: Filter | None = None
    letters: LetterFilter | None = None
    error: str = ""
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    rate: float | None = None
    id: str | None = None
    dry_run: bool = False


class ChangeBulk(OnScope, frozen=True, kw_only=True):
    """What becomes of a bulk action."""

    what: Literal["pause", "resume", "cancel"]


class RedactAudit(OnScope, frozen=True, kw_only=True):
    """Which entry of the chain of that scope."""

    seq: Annotated[int, msgspec.Meta(ge=1, le=MOST)]


class AddToken(Body, frozen=True, kw_only=True):
    """A token to be made: `expires_in` is a number of days, a year at most."""

    name: str
    roles: list[str]
    scopes: list[str] | None = None
    expires_in: Days = 90
