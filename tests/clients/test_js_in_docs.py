"""The programs on the pages about the browser client are programs: every block of JavaScript parses as a module."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.servers.plugin import verdict

PAGES: Final = ("docs/how-to/browser-client.md", "docs/reference/browser-client.md", "clients/js/README.md")
SCRIPT: Final = re.compile(r"<script\b[^>]*>(.*?)</script>", re.DOTALL)
ROOT: Final = Path(__file__).parents[2]
FENCED: Final = re.compile(r"^```(js|html)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def _programs(name: str) -> list[str]:
    found = []
    for kind, text in FENCED.findall((ROOT / name).read_text(encoding="utf-8")):
        found += [text] if kind == "js" else SCRIPT.findall(text)
    return found


def _complaint(program: str, folder: Path) -> str:
    node = shutil.which("node")
    if node is None:
        raise verdict("NOT TESTED: the pages about the browser client, because there is no node on the PATH.")
    path = folder / "block.mjs"
    path.write_text(program, encoding="utf-8")
    done = subprocess.run([node, "--check", str(path)], capture_output=True, text=True, timeout=60, check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("name", PAGES)
def test_every_program_of_a_page_parses(name: str, tmp_path: Path) -> None:
    programs = _programs(name)
    assert programs
    assert [(program, said) for program in programs if (said := _complaint(program, tmp_path))] == []


def test_a_program_that_does_not_parse_is_found(tmp_path: Path) -> None:
    assert "SyntaxError" in _complaint("const one = ;", tmp_path)


def test_every_page_about_the_client_is_looked_at() -> None:
    named = {f"docs/{place}/browser-client.md" for place in ("how-to", "reference")}
    assert named <= set(PAGES)
