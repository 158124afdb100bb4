"""The port of whatever keeps personal data, what it is asked, and what is told of it.

- Whatever keeps personal data implements `Erasable` and is registered with the engine; whoever erases knows no more.
- What something still needs to come to its end is refused, with why and what to do. Nothing of it is changed.
- Erasing twice is harmless: what was erased is not found by its subject any more. So a run that was cut off is simply
  run again, and goes on with what is left.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from semel.core.fingerprint import Secrets
from semel.core.flow import Flow
from semel.core.record import ERASED_RESOLUTION, Note

RECORDS: Final = "records"
_NAMED: Final = 20
_LONGEST_REASON: Final = 1000
_DIGITS: Final = 16


class SubjectErasure(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of everything that keeps personal data.

    Attributes:
        subject: whose data it is.
        scope: only in this scope, as keys have it; None: in all of them.
        reason: why; kept with what is left.
        by: who decided it.
        scan: all records may be read where no index leads to those of the subject.
        dry_run: erase nothing, and count what would be erased.
    """

    subject: str
    scope: str | None = None
    reason: str
    by: str = ""
    scan: bool = False
    dry_run: bool = False

    @property
    def note(self) -> str:
        """What is kept with an erased record."""
        return Note(ERASED_RESOLUTION, self.reason[:_LONGEST_REASON], self.by).text()


def conceal_subject(subject: str, secrets: Secrets) -> str:
    """How a subject is named where it is kept for years who erased what: by a keyed digest, and not as the person.

    Without a secret by nothing at all: of a plain digest, "patient-7" is found by trying numbers.
    """
    if secrets.current is None:
        return "a subject"
    digest = hmac.digest(secrets.current[1], b"semel.subject\0" + subject.encode("utf-8", "replace"), "sha256")
    return f"subject {digest.hex()[:_DIGITS]}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What was not erased for one reason.

    Attributes:
        why: the reason, and what to do.
        number: how many.
        names: of the first of them: references of records, ids of letters, batches with positions.
    """

    why: str
    number: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubjectErasureReport:
    """What came of erasing a subject, by kind: records, letters, items, events, copies.

    Attributes:
        erased: how many were erased, or would be, of each kind of which there are any.
        refused: what was not, and why, of each kind of which there is any.
        dry_run: whether nothing was erased.
    """

    erased: Mapping[str, int]
    refused: Mapping[str, tuple[Refusal, ...]]
    dry_run: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing was refused."""
        return not self.refused


class ErasureTally:
    """Counts what is erased and refused while it goes on; of what is refused for one reason the first are named."""

    def __init__(self) -> None:
        self.records: set[bytes] = set()
        """The digests of the records that were erased."""
        self._erased: dict[str, int] = {}
        self._refused: dict[str, dict[str, tuple[int, tuple[str, ...]]]] = {}

    def add_erased(self, kind: str, number: int = 1) -> None:
        """So many were erased."""
        if number:
            self._erased[kind] = self._erased.get(kind, 0) + number

    def add_record(self, digest: bytes) -> None:
        """This record was erased, whichever way led to it."""
        self.add_erased(RECORDS, int(digest not in self.records))
        self.records.add(digest)

    def add_refused(self, kind: str, why: str, *names: str, number: int | None = None) -> None:
        """So many, or those of these names, were not."""
        added = len(names) if number is None else number
        if added:
            reasons = self._refused.setdefault(kind, {})
            before, named = reasons.get(why, (0, ()))
            reasons[why] = before + added, (*named, *names)[:_NAMED]

    def erased(self, kind: str) -> int:
        """How many of a kind were erased."""
        return self._erased.get(kind, 0)

    def refused(self, kind: str) -> int:
        """How many of a kind were not."""
        return sum(number for number, _ in self._refused.get(kind, {}).values())

    def report(self, *, dry_run: bool = False) -> SubjectErasureReport:
        """All that was counted."""
        refused = {
            kind: tuple(Refusal(why, number, names) for why, (number, names) in reasons.items())
            for kind, reasons in self._refused.items()
        }
        return SubjectErasureReport(dict(self._erased), refused, dry_run)


class Erasable(Protocol):
    """What keeps personal data."""

    def erase_subject(self, asked: SubjectErasure, tally: ErasureTally) -> Flow[None]:
        """Erase, page by page, what is kept about a subject, and count what is erased and what is refused.

        With `asked.dry_run` change nothing, and count what would be erased. What it yields are operations for the
        store of the engine that it is registered with.
        """


def erase_all(erasables: Iterable[Erasable], asked: SubjectErasure) -> Flow[SubjectErasureReport]:
    """Erase what is kept about a subject anywhere, in the order given."""
    tally = ErasureTally()
    for erasable in erasables:
        yield from erasable.erase_subject(asked, tally)
    return tally.report(dry_run=asked.dry_run)
