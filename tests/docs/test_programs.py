"""Every program that the documentation shows does what it shows. How blocks are marked: `pages.py`."""

import os
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page, pages
from tests.processes import run_bounded

KINDS = {"python", "text", "console", "sql", "sh", "toml", "ini", "html", "js", "json", "xml"}


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in pages() if page.has_program], ids=lambda page: page.name)
def test_the_program_of_a_page_runs(page: Page, tmp_path: Path) -> None:
    done = run_bounded(
        [sys.executable, "-m", "tests.docs.driver", str(page.path)],
        100,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0, done.stderr
    # What only the end of the process brings to light: a resource left open, a thread that failed.
    assert "Exception ignored" not in done.stderr, done.stderr
    assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_python_that_is_not_run_says_why_and_compiles(page: Page) -> None:
    for block in page.blocks:
        if block.kind == "python" and block.word == "not run":
            assert block.rest, f"{page.name}:{block.line} does not say why it is not run"
        if block.kind == "python":
            compile(block.text, f"{page.name}:{block.line}", "exec")


def test_every_block_says_what_it_is() -> None:
    unknown = [f"{page.name}:{b.line} {b.kind!r}" for page in pages() for b in page.blocks if b.kind not in KINDS]
    assert unknown == []


def test_the_quick_start_is_short_and_runs() -> None:
    readme = next(page for page in pages() if page.name == "README.md")
    quick_start = next(block for block in readme.blocks if block.kind == "python")
    assert quick_start.runs
    assert len([line for line in quick_start.text.splitlines() if line.strip()]) <= 12
