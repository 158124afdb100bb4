"""Documentation and examples import what is public: from the root, and the stores' own classes from their packages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSIDE = re.compile(
    r"^\s*(?:from (semel\.(?:core|engine|stores)[\w.]*) import ([^\n#]+)|import (semel\.(?:core|engine|stores)\S*))",
    re.MULTILINE,
)
STORES = {
    ("semel.stores.dynamodb", "Writes"),
    ("semel.stores.memory", "MemoryStore"),
    ("semel.stores.redis", "RedisStore"),
    ("semel.stores.sqlite", "SqliteStore"),
}
"""Classes of stores that users make by themselves; everything else of a store is given as a setting."""
AUTHORS = {"docs/how-to/write-a-store.md"}
"""For authors of stores, who implement what the core asks for."""


def _imports(path: Path) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for module, names, plain in INSIDE.findall(path.read_text(encoding="utf-8")):
        found |= {(module or plain, name.strip()) for name in (names or "*").split(",")}
    return found


def _pages() -> list[Path]:
    pages = [
        ROOT / "README.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.py"),
        *ROOT.glob("examples/**/*.md"),
    ]
    return [page for page in pages if page.parent.name != "decisions" and str(page.relative_to(ROOT)) not in AUTHORS]


def test_pages_and_examples_import_nothing_from_the_inside() -> None:
    found = {str(page.relative_to(ROOT)): sorted(_imports(page) - STORES) for page in _pages()}
    assert {page: inside for page, inside in found.items() if inside} == {}


def test_errors_are_imported_and_not_reached_through_a_name_that_the_engine_takes() -> None:
    # In most pages `semel` is the engine, which has no errors.
    shadowed = re.compile(r"(?:except|raises\(|raise|isinstance\([^\n]*)[^\n]*\bsemel\.errors\.\w+")
    assert shadowed.search("except semel.errors.InDoubt as doubt:")
    found = {str(page.relative_to(ROOT)): shadowed.findall(page.read_text(encoding="utf-8")) for page in _pages()}
    assert {page: lines for page, lines in found.items() if lines} == {}


def test_the_pattern_finds_what_it_is_about() -> None:
    assert INSIDE.findall("from semel.core.circuit import Limits") == [("semel.core.circuit", "Limits", "")]
    assert len(_pages()) > 40
