"""The signatures of the reference are those of the code, and leave nothing out that people can import."""

import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Semel
from tests.docs.pages import page
from tests.docs.test_public_imports import AUTHORS, STORES

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "generate-signatures"
PAGES = ("api", "http", "client", "stores", "events", "audit", "batch", "workflow", "metrics", "security", "admin-api")
IMPORTED = re.compile(r"^from (semel(?:\.[\w.]+)?) import ([\w, ]+)$", re.MULTILINE)
OTHER_PAGES = {"semel.errors", "semel.events.brokers", "semel.testing.contract", "semel.workflow.engines"}
"""The error tree has a table of its own, which is compared elsewhere; of the packages of brokers and engines, modules
are imported, which show what they export; the contract is for authors of stores."""


@pytest.fixture(scope="module")
def script() -> Any:
    spec = spec_from_loader("generate_signatures", SourceFileLoader("generate_signatures", str(SCRIPT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def marked() -> dict[str, str]:
    """What the blocks of all pages say, by the name that they are marked with."""
    found: dict[str, str] = {}
    for name in PAGES:
        text = page(f"docs/reference/{name}.md").text
        for names, block in re.findall(r"<!-- signatures: ([\w. ]+) -->\n\n```text\n(.*?)```", text, re.DOTALL):
            found |= dict.fromkeys(names.split(), block)
    return found


def test_the_signatures_are_what_the_script_writes() -> None:
    checked = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_a_stale_signature_is_shown_beside_what_the_code_says(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = tmp_path / "docs" / "reference"
    pages.mkdir(parents=True)
    stale = "<!-- signatures: semel.is_key -->\n\n```text\nis_key(word) -> bool\n```\n"
    (pages / "api.md").write_text(stale)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "PAGES", ("api",))
    assert script.main(["--check"]) == 1
    told = capsys.readouterr().err
    assert "-is_key(word) -> bool" in told
    assert "+is_key(text) -> bool" in told
    assert (pages / "api.md").read_text() == stale
    assert script.main([]) == 0
    assert script.main(["--check"]) == 0


def test_every_package_that_pages_import_from_has_its_signatures_told() -> None:
    told, missing = marked(), set()
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        if path.parent.name == "decisions" or str(path.relative_to(ROOT)) in AUTHORS:
            continue
        for module, names in IMPORTED.findall(path.read_text(encoding="utf-8")):
            for name in names.split(","):
                shown = told.get(module) or told.get(f"{module}.{name.strip()}") or ""
                is_told = re.search(rf"^(await )?{name.strip()}\b", shown, re.MULTILINE) or name.strip() == "errors"
                if module not in OTHER_PAGES and not is_told:
                    missing.add((module, name.strip()))
    assert missing == set()


def test_the_stores_that_people_make_are_told() -> None:
    assert {f"{module}.{name}" for module, name in STORES} <= marked().keys()


@pytest.mark.parametrize("kind", [Semel, AsyncSemel])
def test_an_engine_shows_the_names_that_the_page_tells(kind: type[Semel] | type[AsyncSemel]) -> None:
    block = re.search(rf"^{kind.__name__}\(.*?(?=^\S|\Z)", marked()["semel"], re.MULTILINE | re.DOTALL)
    assert block is not None
    told = re.findall(r"^ {4}(?:await )?\.(\w+)", block.group(), re.MULTILINE)
    assert sorted(told) == [name for name in dir(kind("memory://")) if not name.startswith("_")]


def test_members_that_are_not_for_people_are_there_to_be_left_out(script: Any) -> None:
    # Otherwise the list hides a name that means something else by now.
    exported = {
        name: getattr(script.find(module)[1], name) for module in _modules(script) for name in script.exports(module)
    }
    unknown = {
        f"{name}.{member}"
        for name, members in script.NOT_FOR_PEOPLE.items()
        for member in members
        if not any(hasattr(cls, member) for cls in _all_named(script, name)) and not hasattr(exported[name], member)
    }
    assert unknown == set()


def _modules(script: Any) -> list[str]:
    return [name for name in marked() if name in script.NAMES or hasattr(script.find(name)[1], "__all__")]


def _all_named(script: Any, name: str) -> list[Any]:
    modules = [module for module in _modules(script) if name in script.exports(module)]
    return [getattr(script.find(module)[1], name) for module in modules]
