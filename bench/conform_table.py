"""One table out of the reports on several products: case by case, for a terminal and for a page.

What always holds: the same behaviour gives the same text. Keys, numbers of orders and counts of repeated requests
change from run to run, so they are left out, or written as letters where two of them tell something. What was seen is
told once, in a note that all cells with the same sight share.
"""

from __future__ import annotations

import re
import string
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

from semel_lab.conform import Case, NotSeen, Result

BEGIN: Final = "<!-- conform-peers: begin; made by bench.conform_peers, do not edit -->"
END: Final = "<!-- conform-peers: end -->"
COMMAND: Final = ".venv-bench/bin/python -m bench.conform_peers --write"

_STYLES: Final = {"passed": "green", "failed": "bold red", "not seen": "yellow"}
_KEY: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ORDER: Final = re.compile(r'("order": ?|/orders/)([0-9]+)')
_COUNT: Final = re.compile(r"[0-9]+ of [0-9]+ without")
_WIDTH: Final = 120


@dataclass(frozen=True)
class Column:
    """A product with its version, and what was seen of it."""

    name: str
    version: str
    results: tuple[Result, ...]

    @property
    def title(self) -> str:
        """What stands above it."""
        return f"{self.name} {self.version}"

    def failed(self, severity: str) -> int:
        """How many cases of a severity failed."""
        return sum(result.word == "failed" and result.case.severity == severity for result in self.results)


@dataclass
class Notes:
    """What was seen, each sight once, numbered as they come."""

    texts: list[str] = field(default_factory=list)

    def number(self, text: str) -> int:
        """The number of a text; a new one is the next."""
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


@dataclass(frozen=True)
class Row:
    """A case, and for each product the verdict in a word and the number of its note, if there is more to say."""

    case: Case
    cells: tuple[tuple[str, int | None], ...]


def rows(columns: Sequence[Column], notes: Notes) -> list[Row]:
    """The cases in the order of the first product; all of them have the same.

    Raises:
        ValueError: they have not.
    """
    found = []
    for results in zip(*(column.results for column in columns), strict=True):
        case = results[0].case
        if any(result.case.id != case.id for result in results):
            message = f"The reports are not about the same cases: {', '.join(result.case.id for result in results)}."
            raise ValueError(message)
        found.append(Row(case, tuple(_cell(result, notes) for result in results)))
    return found


def _cell(result: Result, notes: Notes) -> tuple[str, int | None]:
    if result.word == "passed":
        return result.word, None
    return result.word, notes.number(_note(result))


def _note(result: Result) -> str:
    if isinstance(result.verdict, NotSeen):
        return f"Not seen: {steady(result.seen)}."
    return steady(f"Expected {_quoted(result.expected or '')}, and seen was {_quoted(result.seen)}.")


def _quoted(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`"


def steady(text: str) -> str:
    """A text without what changes from run to run."""
    orders: dict[str, str] = {}

    def lettered(hit: re.Match[str]) -> str:
        return hit[1] + orders.setdefault(hit[2], string.ascii_uppercase[len(orders)])

    return _COUNT.sub("some without", _KEY.sub("…", _ORDER.sub(lettered, text)))


def markdown(columns: Sequence[Column], server: str) -> str:
    """What stands between the markers of the page."""
    notes = Notes()
    lines = [
        f"Made by `{COMMAND}`, on {server}.",
        "",
        f"| case | | {' | '.join(column.title for column in columns)} |",
        "|---|---|" + "---|" * len(columns),
        *(_line(row) for row in rows(columns, notes)),
        *_sums(columns),
        "",
        *_listed(notes),
    ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    cells = [word if note is None else f"{_marked(word)} ({note})" for word, note in row.cells]
    return f"| `{row.case.id}` | {row.case.severity} | {' | '.join(cells)} |"


def _marked(word: str) -> str:
    return f"**{word}**" if word == "failed" else word


def _sums(columns: Sequence[Column]) -> Iterator[str]:
    for severity in ("must", "should"):
        numbers = " | ".join(str(column.failed(severity)) for column in columns)
        yield f"| all that failed | {severity} | {numbers} |"


def _listed(notes: Notes) -> Iterator[str]:
    for number, text in enumerate(notes.texts, 1):
        begin = f"{number}. "
        yield textwrap.fill(
            text,
            _WIDTH,
            initial_indent=begin,
            subsequent_indent=" " * len(begin),
            break_long_words=False,
            break_on_hyphens=False,
        )


def terminal(columns: Sequence[Column]) -> tuple[Table, list[Text]]:
    """The same for a terminal: the table, and the notes below it."""
    notes = Notes()
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("case", no_wrap=True)
    for name in ("", *(column.title for column in columns)):
        table.add_column(name, overflow="fold")
    for row in rows(columns, notes):
        cells = [Text(word if note is None else f"{word} ({note})", _STYLES[word]) for word, note in row.cells]
        table.add_row(row.case.id, Text(row.case.severity, "dim"), *cells)
    return table, [Text(f"({number}) {text}") for number, text in enumerate(notes.texts, 1)]


def replaced(page: str, part: str) -> str:
    """The page with `part` between its markers.

    Raises:
        ValueError: the page has not both of them, each once.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in after or END in after:
        message = "The page needs both markers, each once, to be written to."
        raise ValueError(message)
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{after}"
