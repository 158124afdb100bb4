"""Dead letters in memory, and which of them a query asks for: what every store's letters have to be like."""

from __future__ import annotations

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
from semel.core.operations import PurgeLetters, SweepCount


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
        found = self._kept.get(letter.id)
        if found is not None:
            newest = {"reason": letter.reason, "attempts": letter.attempts, "error": letter.error}
            return self._touch(replace(found, **newest), now)
        kept = StoredLetter(**asdict(letter), first_us=now, last_us=now, seen=1, expires_us=now + letter.keep_us)
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
        page = tuple(found[: operation.limit])
        return LetterPage(page, (page[-1].first_us, page[-1].id) if len(found) > operation.limit else None)


def matches_letter(letter: StoredLetter, query: LetterQuery) -> bool:
    """Whether a letter is among those asked for."""
    wanted = {name: getattr(query, name) for name in ("consumer", "id", "scope", "reason", "type", "subject")}
    same = all(value is None or getattr(letter, name) == value for name, value in wanted.items())
    return same and (query.before_us is None or letter.first_us < query.before_us)
