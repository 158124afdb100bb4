"""TLC checks the TLA+ model of searching, `docs/model/Search.tla`: what is found, and that every mistake is noticed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.model.test_tla_model import MODEL, SECONDS, SHORT, find_jar, find_java

pytestmark = pytest.mark.timeout(SECONDS + 60)

MISTAKES: Final = {
    "rows are not written": "Unnoticed_Missing",
    "rows are written outside": "Unnoticed_Outside",
    "erasing leaves rows": "Unnoticed_Erased",
    "deleting leaves rows": "Unnoticed_Deleted",
    "the text is not compared": "Unnoticed_Text",
}
VIOLATED: Final = re.compile(r"^Error: Invariant (\w+) is violated", re.MULTILINE)
COUNTS: Final = re.compile(r"^\d+ states generated, (\d+) distinct states found", re.MULTILINE)
REAL: Final = (MODEL / "Search.cfg").read_text(encoding="utf-8")


def violated(config: str, folder: Path, *options: str) -> set[str]:
    """The invariants that TLC finds violated; it goes on after the first."""
    (folder / "Search.tla").write_text((MODEL / "Search.tla").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "run.cfg").write_text(config, encoding="utf-8")
    command = [find_java(), *SHORT, f"-Djava.io.tmpdir={folder}", "-cp", str(find_jar()), "tlc2.TLC", "-workers", "1"]
    command += ["-continue", *options, "-metadir", str(folder / "meta"), "-config", "run.cfg", "Search.tla"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    counts = COUNTS.findall(done.stdout)
    assert counts, f"TLC did not run:\n{done.stdout}{done.stderr}"
    assert int(counts[-1]) > 100, f"too little was explored:\n{done.stdout}"
    return set(VIOLATED.findall(done.stdout))


def test_a_record_is_found_by_what_its_last_claim_said_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    assert violated(REAL, tmp_path) == set()


def test_every_mistake_of_searching_is_noticed(tmp_path: Path) -> None:
    chosen = ", ".join(f'"{mistake}"' for mistake in MISTAKES)
    head = REAL.replace('Mistakes = {"none"}', f"Mistakes = {{{chosen}}}")
    with_mistakes = head.replace(
        "    Search_FindsExactly\n    Search_NothingLeft\n", "".join(f"    {name}\n" for name in MISTAKES.values())
    )
    assert "Search_FindsExactly" not in with_mistakes
    assert violated(with_mistakes, tmp_path) == set(MISTAKES.values())
