"""Dead letters in memory, and which of them a query asks for: what every store's letters have to be like."""

from __future__ import annotations

from msgspec.structs import asdict, replace

from semel.core.letters import (
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


class Letters:
    """Dead letters by id."""

    def __init__(self) -> None:
        self._kept: dict[bytes, StoredLetter] = {}

    def apply(
        self, operation: PutLetter | TouchLetter | ScanLetters | DropLetter, now: int
    ) -> LetterFound | LetterPage:
        """Carry out `operation` at the instant `now`."""
        match operation:
            case PutLetter(letter):
                return LetterFound(self.put(letter, now))
            case TouchLetter(consumer, record):
                kept = self._kept.values()
                mine = next((one for one in kept if one.consumer == consumer and one.record == record), None)
                return LetterFound(None if mine is None else self._touch(mine, now))
            case ScanLetters():
                return self._scan(operation)
            case DropLetter(consumer, id_):
                found = self._kept.get(id_)
                return LetterFound(self._kept.pop(id_) if found is not None and found.consumer == consumer else None)

    def put(self, letter: Letter, now: int) -> StoredLetter:
        """Keep a letter, or see it once more."""
        found = self._kept.get(letter.id)
        if found is not None:
            told = {"reason": letter.reason, "attempts": letter.attempts, "error": letter.error}
            return self._touch(replace(found, **told), now)
        kept = StoredLetter(**asdict(letter), first_us=now, last_us=now, seen=1, expires_us=now + letter.keep_us)
        self._kept[letter.id] = kept
        return kept

    def drop(self, id_: bytes | None) -> None:
        """Its record is completed."""
        if id_ is not None:
            self._kept.pop(id_, None)

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
