"""Every link leads somewhere, every page can be reached, and nothing is loaded from another host."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, Page, pages, read

OTHER_HOST = re.compile(r"^[a-z][a-z0-9+.-]*:")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    assert [f"line {line}: {target}" for line, target in page.links if not _leads_somewhere(page, target)] == []


def _leads_somewhere(page: Page, target: str) -> bool:
    path, _, anchor = target.partition("#")
    found = (page.path.parent / path).resolve() if path else page.path
    if OTHER_HOST.match(target) or not found.is_relative_to(ROOT) or not found.exists():
        return False
    return not anchor or (found.suffix == ".md" and anchor in read(found).anchors)


def test_pages_of_the_documentation_link_only_among_themselves() -> None:
    outside = [
        f"{page.name}:{line} {target}"
        for page in pages()
        if page.path.is_relative_to(DOCS)
        for line, target in page.links
        if not (page.path.parent / target.partition("#")[0]).resolve().is_relative_to(DOCS)
    ]
    assert outside == []


def test_the_navigation_holds_every_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = re.findall(r"(?:: |- )([\w./-]+\.md)$", text, re.MULTILINE)
    there = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(listed) == sorted(there)


def test_the_first_page_leads_to_every_other() -> None:
    reached: set[Path] = set()
    open_ends = [DOCS / "index.md"]
    while open_ends:
        path = open_ends.pop()
        if path not in reached and path.suffix == ".md":
            reached.add(path)
            open_ends += [
                (path.parent / t.partition("#")[0]).resolve() for _, t in read(path).links if not t.startswith("#")
            ]
    assert {path.relative_to(DOCS) for path in DOCS.rglob("*.md")} == {path.relative_to(DOCS) for path in reached}


def test_no_page_loads_anything_but_pictures_of_its_own() -> None:
    loading = [
        f"{page.name}:{line}"
        for page in pages()
        for line, text in page.prose
        if re.search(r"<(img|script|link)", text)
        or any(not _is_kept(page.path, address) for address in re.findall(r"!\[[^]]*\]\(([^)]*)\)", text))
    ]
    assert loading == []


def _is_kept(path: Path, address: str) -> bool:
    """Whether a picture is among those that the tests of the console draw."""
    found = (path.parent / address).resolve()
    return found.parent == DOCS / "images" and found.suffix == ".png" and found.exists()
