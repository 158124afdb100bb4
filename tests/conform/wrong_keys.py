"""Wrong services: what they take for a key."""

from __future__ import annotations

from collections.abc import Hashable

from tests.conform.fault import Fault
from tests.conform.service import Asked, Told


class RefusesKeys(Fault):
    """Every request with a key is refused."""

    told_by = "accepts-key"

    def once(self, asked: Asked, identity: Hashable, fingerprint: Hashable) -> Told:
        return self.problem(400, "No keys, please.")


class TakesQuotesAsPartOfTheKey(Fault):
    """Quoted and bare are two keys."""

    told_by = "quoted-and-bare"

    def spelled(self, line: str) -> str:
        key = super().spelled(line)
        return f"'{key}'" if key and line.startswith('"') else key


class TakesParametersAsPartOfTheKey(Fault):
    """A parameter makes another key."""

    told_by = "parameters-ignored"

    def spelled(self, line: str) -> str:
        return super().spelled(line) + line.partition(";")[2]


class TakesTheFirstLine(Fault):
    """Of repeated lines the first counts."""

    told_by = "repeated-lines"

    def key(self, lines: tuple[str, ...]) -> str | None:
        return super().key(lines[:1])


class TakesTheFirstOfAList(Fault):
    """Of a list the first key counts."""

    told_by = "list"

    def spelled(self, line: str) -> str:
        return super().spelled(line.partition(",")[0])


class TakesAnyEscape(Fault):
    """A backslash may stand before anything."""

    told_by = "bad-escape"

    def spelled(self, line: str) -> str:
        return super().spelled(line.replace("\\", "/"))


class TakesAnyByte(Fault):
    """Bytes outside of ASCII are part of a key."""

    told_by = "non-ascii"

    def sound(self, key: str) -> bool:
        return 0 < len(key) <= 255 and "\x01" not in key


class TakesControlCharacters(Fault):
    """Control characters are part of a key."""

    told_by = "control-character"

    def sound(self, key: str) -> bool:
        return 0 < len(key) <= 255 and key.isascii()


class TakesEmptyKeys(Fault):
    """An empty key is a key."""

    told_by = "empty-key"

    def sound(self, key: str) -> bool:
        return not key or super().sound(key)


class TakesEmptyLinesForNoKey(Fault):
    """A line without a value is as good as none."""

    told_by = "empty-key"

    def key(self, lines: tuple[str, ...]) -> str | None:
        return super().key(tuple(line for line in lines if line))


class CutsLongKeys(Fault):
    """A long key is cut to the size of the column."""

    told_by = "too-long"

    def spelled(self, line: str) -> str:
        return super().spelled(line)[:255]


class RefusesRequestsWithoutKey(Fault):
    """A key is required, and nobody said so."""

    told_by = "missing-key"
    required = True


class WantsNoKeyOnGet(Fault):
    """What only reads is refused because of the header."""

    told_by = "safe-methods"

    def read(self, asked: Asked) -> Told:
        return self.problem(400, "No key here.") if asked.keys else super().read(asked)


class ChecksKeysOnGet(Fault):
    """A header that is no key is refused even where it means nothing."""

    told_by = "safe-methods"

    def read(self, asked: Asked) -> Told:
        return self.problem(400, "Bad key.") if '"not a key' in asked.keys else super().read(asked)
