"""Dead letters: in memory, which is what those of every store have to be like, and as the rows of the SQL stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import asdict, replace

from semel.core.events.letters import (
    REUSED,
    DropLetter,
    Letter,
    LetterFound,
    LetterPage,
    LetterQuery,
    PutLetter,
    ScanLetters,
    StoredLetter,
    TouchLetter,
)
from semel.core.operations import Complete, Fail, PurgeLetters, SweepCount
from semel.core.record import Failure
from semel.stores.rows import storable, stored_failure
from semel.stores.search import Selection, Wording

LETTER_COLUMNS: Final = (
    *("id", "consumer", "scope", "record", "reason", "type", "subject", "content", "readable", "attempts"),
    *("error_type", "error_message", "keep_us", "first_us", "last_us", "seen", "expires_us"),
)
"""In which order a letter is read. What comes before `first_us` is what a writer says of it."""
_SELECTED: Final = ("consumer", "scope", "reason", "type", "subject")


class Letters:
    """Dead letters by id."""

    def __init__(self) -> None:
        self._kept: dict[bytes, StoredLetter] = {}

    def apply(
        self, operation: PutLetter | TouchLetter | ScanLetters | DropLetter | PurgeLetters, now: int
    ) -> LetterFound | LetterPage | SweepCount:
        """Carry out `operation` at the instant `now`."""
        match operation:
            case PutLetter(letter):
                return LetterFound(self.put(letter, now))
            case TouchLetter(consumer, record):
                mine = (one for one in self._of_record(record) if one.consumer == consumer)
                found = next(mine, None)
                return LetterFound(None if found is None else self._touch(found, now))
            case ScanLetters():
                return self._scan(operation)
            case DropLetter(consumer, id_):
                found = self._kept.get(id_)
                return LetterFound(self._kept.pop(id_) if found is not None and found.consumer == consumer else None)
            case PurgeLetters(limit):
                gone = [one.id for one in self._kept.values() if one.expires_us <= now][:limit]
                for id_ in gone:
                    del self._kept[id_]
                return SweepCount(len(gone))

    def put(self, letter: Letter, now: int) -> StoredLetter:
        """Keep a letter, or see it once more."""
        found, expires_us = self._kept.get(letter.id), now + letter.keep_us
        if found is not None:
            newest = {name: getattr(letter, name) for name in ("reason", "attempts", "error", "keep_us")}
            return self._touch(replace(found, **newest, expires_us=expires_us), now)
        kept = StoredLetter(**asdict(letter), first_us=now, last_us=now, seen=1, expires_us=expires_us)
        self._kept[letter.id] = kept
        return kept

    def drop(self, id_: bytes) -> None:
        """Its record is completed."""
        self._kept.pop(id_, None)

    def close(self, record: bytes) -> None:
        """Somebody decided what becomes of a record: the letters of its event have served."""
        for letter in self._of_record(record):
            del self._kept[letter.id]

    def erase(self, record: bytes) -> None:
        """Delete every letter of a record, also those of other events under its id."""
        self._kept = {id_: letter for id_, letter in self._kept.items() if letter.record != record}

    def _of_record(self, record: bytes) -> list[StoredLetter]:
        return [one for one in self._kept.values() if one.record == record and one.reason != REUSED]

    def _touch(self, letter: StoredLetter, now: int) -> StoredLetter:
        touched = self._kept[letter.id] = replace(letter, last_us=now, seen=letter.seen + 1)
        return touched

    def _scan(self, operation: ScanLetters) -> LetterPage:
        ordered = sorted(self._kept.values(), key=lambda one: (one.first_us, one.id))
        found = [
            one
            for one in ordered
            if matches_letter(one, operation.query)
            and (operation.cursor is None or (one.first_us, one.id) > operation.cursor)
        ]
        return page_of(found, operation.limit)


def letter_with(operation: Complete | Fail) -> Letter | bytes | None:
    """The letter that is written with a failure, or the id of the one that goes with a completion."""
    may_be_claimed = isinstance(operation, Fail) and operation.ending == "retry"
    return None if may_be_claimed else operation.letter


def matches_letter(letter: StoredLetter, query: LetterQuery) -> bool:
    """Whether a letter is among those asked for."""
    wanted = {name: getattr(query, name) for name in ("consumer", "id", "record", "scope", "reason", "type", "subject")}
    same = all(value is None or getattr(letter, name) == value for name, value in wanted.items())
    return same and (query.before_us is None or letter.first_us < query.before_us)


def letter_values(letter: Letter) -> dict[str, Any]:
    """A letter as values by name, in the order of `LETTER_COLUMNS`. Their prefix keeps them apart from a record's."""
    error = None if letter.error is None else stored_failure(letter.error)
    told = {
        **{name: getattr(letter, name) for name in ("id", "consumer", "scope", "record", "reason")},
        "type": storable(letter.type),
        "subject": storable(letter.subject),
        **{name: getattr(letter, name) for name in ("content", "readable", "attempts")},
        "error_type": None if error is None else error.type,
        "error_message": None if error is None else error.message,
        "keep_us": letter.keep_us,
    }
    return {f"letter_{name}": value for name, value in told.items()}


def letter_of(row: Sequence[Any]) -> StoredLetter:
    """The letter that a row stands for."""
    told = dict(zip(LETTER_COLUMNS, row, strict=True))
    error_type, error_message = told.pop("error_type"), told.pop("error_message")
    told["readable"] = bool(told["readable"])
    return StoredLetter(**told, error=None if error_type is None else Failure(error_type, error_message))


def select_letters(operation: ScanLetters, wording: Wording) -> Selection:
    """The conditions for the letters of a page."""
    query, mark = operation.query, wording.mark
    terms, values = [], dict[str, Any]()
    for name in _SELECTED:
        wanted = getattr(query, name)
        if wanted is not None:
            terms.append(f"l.{name} = {mark(name, 'text')}")
            values[name] = storable(wanted)
    for name in ("id", "record"):
        wanted = getattr(query, name)
        if wanted is not None:
            terms.append(f"l.{name} = {mark(name, 'digest')}")
            values[name] = wanted
    if query.before_us is not None:
        terms.append(f"l.first_us < {mark('before_us', 'number')}")
        values["before_us"] = query.before_us
    if operation.cursor is not None:
        terms.append(f"(l.first_us, l.id) > ({mark('cursor_us', 'number')}, {mark('cursor_id', 'digest')})")
        values["cursor_us"], values["cursor_id"] = operation.cursor
    return Selection("l", terms, values)


def page_of(letters: Sequence[StoredLetter], limit: int) -> LetterPage:
    """A page, from one letter more than it holds where there are more."""
    page = tuple(letters[:limit])
    return LetterPage(page, (page[-1].first_us, page[-1].id) if len(letters) > limit and page else None)
