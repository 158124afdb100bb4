"""Where items come from: Python objects, JSON lines, CSV; read once, and every one that cannot be loaded is named.

A source gives lots of items that are encoded and checked, so that no more than a lot is in memory.
"""

from __future__ import annotations

import asyncio
import csv
import threading
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite, isinf
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from semel.batch.items import Decode, decoder_of
from semel.core.batch.values import NewItem, add_digests
from semel.core.record import NOTHING, About
from semel.errors import BatchInvalid, UsageError
from semel.handlers import DoesNotDecode, is_pydantic, is_untyped

LOT: Final = 5000
"""So many items are added together, at most: each lot costs a commit and its round trips."""
ONE_WRITER_LOT: Final = 2000
"""So many, where all other writers wait meanwhile."""
LOT_BYTES: Final = 1 << 20
"""About so many bytes are added together, at most."""
MOST_PROBLEMS: Final = 1000
_TURN: Final = 64
"""So many items are looked at together, and an event loop gets its turn after so many."""
_MOST_ID: Final = 200
# What a file says is kept as it says it: a number with all its digits.
_NUMBERS: Final = msgspec.json.Encoder(order="deterministic", decimal_format="number")
_TYPED_LINES: Final = msgspec.json.Decoder(float_hook=Decimal)


def _number(text: str) -> Decimal:
    """A number with all its digits.

    Raises:
        ValueError: read without a type, as the handler reads it, it is none.
    """
    if isinf(float(text)):
        raise ValueError("a number is out of range")
    return Decimal(text)


_LINES: Final = msgspec.json.Decoder(float_hook=_number)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} cannot be kept as JSON")


_OBJECTS: Final = msgspec.json.Encoder(order="deterministic", enc_hook=_plain)


def encode_value(value: Any) -> bytes:
    """The JSON of a value.

    Raises:
        TypeError: it has no JSON.
        ValueError: it has numbers that JSON has not.
    """
    data = _OBJECTS.encode(value)
    if b"null" in data:
        _refuse_not_finite(value)
    return data


def _refuse_not_finite(value: Any) -> None:
    """Refuse what would become null without a word: a handler that is given null was not given what was loaded."""
    waiting = [msgspec.to_builtins(value, enc_hook=_plain)]
    while waiting:
        one = waiting.pop()
        if isinstance(one, float) and not isfinite(one):
            raise ValueError(f"{one} is a number that cannot be kept as JSON")
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple | set | frozenset):
            waiting.extend(one)


AboutRule = Callable[[Any], About | Mapping[str, Any] | None]
Rows = Generator[tuple[int, Any], None, None]
Source = Iterable[Any] | AsyncIterable[Any] | str | PathLike[str]


class Unusable(Exception):
    """An item that cannot be loaded; the message says why."""


@dataclass(slots=True)
class Problems:
    """What is wrong with an input: all of it is counted, the first thousand are kept."""

    count: int = 0
    kept: list[tuple[int, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, line: int, text: str) -> None:
        """Note what is wrong with a line, or with an item by its place; while one lot is added, the next is read."""
        with self.lock:
            self.count += 1
            if len(self.kept) < MOST_PROBLEMS:
                self.kept.append((line, text))

    def error(self, batch: str) -> BatchInvalid:
        """The error that names them."""
        problems = tuple(sorted(self.kept))
        shown = "; ".join(f"{line}: {text}" for line, text in problems[:10])
        more = f"; and {self.count - 10} more" if self.count > 10 else ""  # noqa: PLR2004 - as many as are shown
        return BatchInvalid(
            f"{self.count} lines of {batch!r} cannot be loaded, so no item ran: {shown}{more}. Correct them, and start "
            f"it again.",
            problems=problems,
            count=self.count,
        )


@dataclass(slots=True)
class Lot:
    """Items that are added together, the positions they take, and what names each of them to people."""

    offset: int
    items: list[NewItem] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    size: int = 0

    @property
    def end(self) -> int:
        """The position behind it."""
        return self.offset + len(self.items)


@dataclass(slots=True)
class ItemReader:
    """Makes items of what a source gives, one after the other.

    Attributes:
        batch: the id of the batch.
        item_id: the name of the member that is the id of an item; None: they are numbered.
        encode: makes JSON of a value.
        check: refuses data that is not of the type that was given.
        about: what the record of an item is searched by.
        typed: whether a type was given.
        most: how many items are added together, at most.
        problems: what could not be used.
        count: how many items there are so far.
        digest: the sum of their digests.
        lot: items that were read.
        fresh: those behind them, which were not looked at yet, and their lines.
    """

    batch: str
    item_id: str | None
    encode: Callable[[Any], bytes]
    check: Decode | None
    about: AboutRule | None
    typed: bool
    most: int
    problems: Problems = field(default_factory=Problems)
    count: int = 0
    digest: int = 0
    lot: Lot = field(default_factory=lambda: Lot(0))
    fresh: list[NewItem] = field(default_factory=list)
    fresh_lines: list[int] = field(default_factory=list)

    def add(self, line: int, value: Any) -> Lot | None:
        """Take one value; answers a lot that is full."""
        try:
            item = self._item(value)
        except Unusable as problem:
            self.problems.add(line, str(problem))
            return None
        fresh, lot = self.fresh, self.lot
        fresh.append(item)
        self.fresh_lines.append(line)
        lot.size += len(item.data) + len(item.id)
        if len(fresh) < _TURN and len(fresh) + len(lot.items) < self.most and lot.size < LOT_BYTES:
            return None
        self._add_fresh()
        return self.take() if len(lot.items) >= self.most or lot.size >= LOT_BYTES else None

    def take(self) -> Lot:
        """The items so far, which are not among the next ones."""
        self._add_fresh()
        lot, self.lot = self.lot, Lot(self.count)
        return lot

    def _add_fresh(self) -> None:
        """Add the items that were read last: together if their ids are as most are, which takes half the time."""
        fresh, lines = self.fresh, self.fresh_lines
        self.fresh, self.fresh_lines = [], []
        ids = [item.id for item in fresh]
        if not self._are_plain(ids):
            fresh, lines = self._pick_usable(fresh, lines)
            ids = [item.id for item in fresh]
        self.count += len(fresh)
        self.digest = add_digests(self.digest, fresh)
        self.lot.items += fresh
        self.lot.lines.update(zip(ids, lines, strict=True))

    def _are_plain(self, ids: list[str]) -> bool:
        """Whether all of these ids can be used, as far as that is seen at once."""
        if self.item_id is None:
            return True
        text = "".join(ids)
        return (
            text.isascii()
            and text.isprintable()
            and " " not in text
            and all(ids)
            and max(map(len, ids), default=0) <= _MOST_ID
            and len(set(ids)) == len(ids)
            and self.lot.lines.keys().isdisjoint(ids)
        )

    def _pick_usable(self, items: list[NewItem], lines: list[int]) -> tuple[list[NewItem], list[int]]:
        """The items whose ids can be used, at the positions they take without the others."""
        seen: dict[str, int] = {}
        usable: list[NewItem] = []
        for item, line in zip(items, lines, strict=True):
            id_ = item.id
            before = self.lot.lines.get(id_, seen.get(id_))
            if not _is_usable(id_):
                text = f"the id {id_!r:.80} is empty, longer than {_MOST_ID} bytes, or has characters nobody sees"
                self.problems.add(line, text)
            elif before is not None:
                self.problems.add(line, f"the id {id_!r} was there already, in {before}")
            else:
                seen[id_] = line
                usable.append(replace(item, position=self.count + len(usable)))
        return usable, list(seen.values())

    def _item(self, value: Any) -> NewItem:
        try:
            data = self.encode(value)
            decoded = self.check(data) if self.check is not None else None
        except (DoesNotDecode, TypeError, ValueError, msgspec.MsgspecError, RecursionError) as problem:
            raise Unusable(_describe(problem)) from None
        position = self.count + len(self.fresh)
        id_ = f"{self.batch}_{position}" if self.item_id is None else _id_of(value, self.item_id)
        if self.about is None:
            return NewItem(position, id_, data)
        about = self._about(self.about, decoded if self.typed else value)
        packed = None if about is NOTHING else msgspec.json.encode(about)
        return NewItem(position, id_, data, packed, about.subject)

    def _about(self, rule: AboutRule, value: Any) -> About:
        try:
            return About.of(rule(value))
        except Unusable:
            raise
        except UsageError as problem:
            raise Unusable(problem.message) from None
        except Exception as problem:
            raise Unusable(f"about= raised {type(problem).__name__}: {problem!s:.200}") from problem


def _describe(problem: Exception) -> str:
    if isinstance(problem, UnicodeEncodeError):
        letter = problem.object[problem.start]
        if "\udc80" <= letter <= "\udcff":  # what a file is read with stands for a byte by this
            return f"it is no UTF-8: there is the byte 0x{ord(letter) - 0xDC00:02x}"
    return str(problem)[:300] or type(problem).__name__


def _id_of(value: Any, name: str) -> str:
    found = value[name] if type(value) is dict and name in value else member_of(value, name)
    if type(found) is str:
        return found
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise Unusable(f"{name} is {type(found).__name__}, and an id is text or a whole number")
    return str(found)


def _is_usable(id_: str) -> bool:
    # What is not printable may be half a character, which has no bytes.
    return id_.isprintable() and 0 < len(id_.encode()) <= _MOST_ID and id_ == id_.strip()


def member_of(value: Any, name: str) -> Any:
    """The member of that name; dots lead into members of members.

    Raises:
        Unusable: there is none.
    """
    if type(value) is dict and name in value:
        return value[name]
    for part in name.split("."):
        found = value.get(part, member_of) if isinstance(value, Mapping) else getattr(value, part, member_of)
        if found is member_of:
            raise Unusable(f"there is no {name}")
        value = found
    return value


def is_path(source: Any) -> bool:
    """Whether a source is the name of a file."""
    return isinstance(source, str | PathLike)


def check_source(source: Any, *, may_be_awaited: bool) -> None:
    """Look at a source before anything is begun with it.

    Raises:
        UsageError: it is no source, one that has to be awaited, or a file that cannot be read.
    """
    if is_path(source):
        _check_file(fspath(source))
    elif isinstance(source, AsyncIterable):
        if not may_be_awaited:
            raise UsageError("These items have to be awaited, and a Semel cannot; nothing was loaded. Use AsyncSemel.")
    elif not isinstance(source, Iterable) or isinstance(source, bytes | Mapping):
        raise UsageError(
            f"Items are given as an iterable or a path, not a {type(source).__name__}; nothing was loaded."
        )


def _check_file(name: str | bytes) -> None:
    if not isinstance(name, str) or not name.endswith((".jsonl", ".csv")):
        raise UsageError(f"{name!r:.200} ends neither in .jsonl nor in .csv; nothing was loaded.")
    try:
        Path(name).open("rb").close()
    except (OSError, ValueError) as problem:
        raise UsageError(f"{name!r:.200} cannot be read: {problem}; nothing was loaded.") from problem


def make_reader(
    batch: str, source: Any, item_id: str | None, type_: Any, about: AboutRule | None, *, has_one_writer: bool
) -> ItemReader:
    """What makes items of a checked source, in lots for a store where a writer keeps all others waiting, or does not.

    Raises:
        UsageError: there is no way from data to the type.
    """
    typed = not is_untyped(type_)
    check = decoder_of(type_, "the items") if typed else None
    encode: Callable[[Any], bytes] = encode_value
    if is_path(source):
        encode = _NUMBERS.encode
        if fspath(source).endswith(".csv") and typed:
            encode = _encode_texts(type_)
    most = min(LOT, ONE_WRITER_LOT) if has_one_writer else LOT
    return ItemReader(batch, item_id, encode, check, about, typed, most)


def _encode_texts(type_: Any) -> Callable[[Any], bytes]:
    """How a row of texts becomes JSON that a type can be read from: numbers are numbers there."""
    if is_pydantic(type_):
        return lambda row: _NUMBERS.encode(type_.model_validate(row).model_dump(mode="json"))
    return lambda row: encode_value(msgspec.to_builtins(msgspec.convert(row, type_, strict=False)))


def open_file(path: str | PathLike[str], reader: ItemReader) -> AbstractContextManager[Rows]:
    """The lines of a file with their numbers, as values."""
    if fspath(path).endswith(".csv"):
        return closing(_csv_rows(Path(path), reader.item_id, reader.problems))
    decoder = _TYPED_LINES if reader.typed else _LINES
    return closing(_json_lines(Path(path), decoder, reader.problems))


def _json_lines(path: Path, decoder: msgspec.json.Decoder[Any], problems: Problems) -> Rows:
    with path.open("rb") as file:
        if file.peek(len(BOM_UTF8)).startswith(BOM_UTF8):  # some programs begin every text with it
            file.read(len(BOM_UTF8))
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    value = decoder.decode(line)
                except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
                    problems.add(number, f"no JSON: {problem!s:.200}")
                else:
                    yield number, value


def _csv_rows(path: Path, item_id: str | None, problems: Problems) -> Rows:
    """The rows of a file, each with the number of the line where it begins: a text in quotes may take several."""
    with path.open(encoding="utf-8-sig", newline="", errors="surrogateescape") as file:
        rows = csv.reader(file, strict=True)
        names = _read_header(rows, item_id, problems)
        if names is None:
            return
        while True:
            line = rows.line_num + 1
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as problem:
                problems.add(line, f"no CSV: {problem}")
                continue
            if row and len(row) != len(names):
                problems.add(line, f"{len(names)} fields were expected")
            elif row:
                yield line, dict(zip(names, row, strict=True))


def _read_header(rows: Iterator[list[str]], item_id: str | None, problems: Problems) -> list[str] | None:
    """The names of the columns, or None where the first line has none to go by.

    Of two that have one name, the values of one would be lost; and without that of ids every row would be wrong.
    """
    try:
        names = next(rows, [])
    except csv.Error as problem:
        problems.add(1, f"no CSV: {problem}")
        return None
    twice = [name for name, count in Counter(names).items() if count > 1]
    for name in twice:
        problems.add(1, f"there are several columns {name!r:.80}")
    lacks_ids = bool(names) and item_id is not None and item_id not in names
    if lacks_ids:
        problems.add(1, f"there is no column {item_id!r:.80} among {', '.join(map(repr, names)):.200}")
    return None if lacks_ids or twice else names


async def async_lots(source: Source, reader: ItemReader) -> AsyncIterator[Lot]:
    """The items of a source in lots, for an event loop; the last one may be empty."""
    if isinstance(source, AsyncIterable):
        place = 0
        async for value in source:
            full = reader.add(place, value)
            if full is not None:
                yield full
            place += 1
        yield reader.take()
        return
    for lot in _lots(source, reader):
        if lot is None:
            await asyncio.sleep(0)
        else:
            yield lot


def sync_lots(source: Source, reader: ItemReader) -> Iterator[Lot]:
    """The same for threads."""
    return (lot for lot in _lots(source, reader) if lot is not None)


def _lots(source: Source, reader: ItemReader) -> Iterator[Lot | None]:
    """The same, and None now and then, so that an event loop gets its turn."""
    if isinstance(source, str | PathLike):
        with open_file(source, reader) as rows:
            yield from _lots_of(rows, reader)
    else:
        yield from _lots_of(enumerate(cast("Iterable[Any]", source)), reader)


def _lots_of(rows: Iterable[tuple[int, Any]], reader: ItemReader) -> Iterator[Lot | None]:
    add = reader.add
    for count, (line, value) in enumerate(rows, 1):
        full = add(line, value)
        if full is not None or not count % _TURN:
            yield full
    yield reader.take()
