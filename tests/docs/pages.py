"""The pages of the documentation, taken apart: blocks of code, headings, links.

How a page says what its blocks are for, in comments that no reader sees:

    ```python                       is run. The blocks of a page are one program, in order, in an empty folder.
    <!-- not run: why -->           before a python block: it is only compiled.
    <!-- set-up … -->               python that is run but not shown.
    <!-- file: payment.py -->       before any block: it is saved under that name instead.
    <!-- run -->                    before a console block: each line after "$ " is run, and must end with 0.
    <!-- run: exit 137 -->          the same, and the last command ends with that code.
    <!-- prints -->                 before a text block: it is exactly what the block before printed.

Every other block (text, console, sql, toml) is for reading only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,}) *(?P<info>[^`]*)$")
_COMMENT = re.compile(r"^<!-- *(?P<word>not run|set-up|file|run|prints)\b:? *(?P<rest>.*?) *(?P<end>-->)?$")
_HEADING = re.compile(r"^(?P<level>#{1,6}) +(?P<text>.+?) *#*$")
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\((?P<target>[^()\s]+)(?: \"[^\"]*\")?\)")


@dataclass(frozen=True)
class Block:
    """One piece of a page that is, or could be, run. `line` is where its first line stands in the page."""

    kind: str
    text: str
    line: int
    word: str = ""
    rest: str = ""

    @property
    def runs(self) -> bool:
        """Whether it is carried out when the page is."""
        return (self.kind == "python" and self.word != "not run") or (self.kind == "console" and self.word == "run")


@dataclass
class Page:
    """One Markdown file."""

    path: Path
    blocks: list[Block] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    prose: list[tuple[int, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def links(self) -> Iterator[tuple[int, str]]:
        """Targets of links, with their lines."""
        for line, text in self.prose:
            for hit in _LINK.finditer(re.sub(r"`[^`]*`", "", text)):
                yield line, hit.group("target")

    @property
    def anchors(self) -> set[str]:
        """What a link may name after '#', as mkdocs and GitHub both make it."""
        return {slug(heading) for heading in self.headings}

    @property
    def has_program(self) -> bool:
        """Whether there is anything to run."""
        return any(block.runs for block in self.blocks)


def slug(heading: str) -> str:
    """The anchor of a heading."""
    plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading)
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


@cache
def pages() -> tuple[Page, ...]:
    """The README and every page of the documentation."""
    return tuple(read(path) for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))))


def page(name: str) -> Page:
    """One page by its path from the root."""
    return next(page for page in pages() if page.name == name)


def read(path: Path) -> Page:
    """Take a page apart."""
    found = Page(path)
    lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
    word = rest = ""
    for number, line in lines:
        fence = _FENCE.match(line)
        comment = _COMMENT.match(line)
        if fence is not None:
            text = "\n".join(_until_closed(lines, fence))
            kind = fence.group("info").split(" ")[0]
            found.blocks.append(Block(kind, text + "\n", number + 1, word, rest))
            word = rest = ""
        elif comment is not None and comment.group("word") == "set-up":
            text = "\n".join(_until_comment_ends(lines))
            found.blocks.append(Block("python", text + "\n", number + 1, "set-up"))
        elif comment is not None:
            word, rest = comment.group("word"), comment.group("rest")
        elif line.strip():
            heading = _HEADING.match(line)
            if heading is not None:
                found.headings.append(heading.group("text"))
            found.prose.append((number, line))
            word = rest = ""
    return found


def _until_closed(lines: Iterator[tuple[int, str]], fence: re.Match[str]) -> Iterator[str]:
    indent = fence.group("indent")
    for _, line in lines:
        if line.strip() == fence.group("mark"):
            return
        yield line.removeprefix(indent)


def _until_comment_ends(lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    for _, line in lines:
        if line.strip() == "-->":
            return
        yield line


def table(page: Page, first: str) -> list[list[str]]:
    """The rows of every table whose first column is headed `first`: cells as text, without backquotes."""
    found = []
    heads = 0
    for rows in _tables(page):
        if rows[0][0] == first:
            heads += 1
            found += rows[2:]
    assert heads, f"{page.name} has no table headed {first!r}"
    return found


def _tables(page: Page) -> Iterator[list[list[str]]]:
    rows: list[list[str]] = []
    last = 0
    for number, line in page.prose:
        if not line.startswith("|"):
            continue
        if rows and number != last + 1:
            yield rows
            rows = []
        rows.append([cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")])
        last = number
    if rows:
        yield rows
