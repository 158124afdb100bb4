"""Headers of tables are never cut, however narrow the terminal and however short or long what stands below."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console, RenderableType

from semel import Record, Semel
from semel.cli import main
from semel.cli.commands.list import table
from tests.cli.conftest import Database


def _printed(part: RenderableType, width: int) -> str:
    out = Console(width=width, file=io.StringIO(), color_system=None)
    out.print(part)
    file = out.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def _heading(text: str) -> str:
    lines = text.splitlines()
    rule = next(number for number, line in enumerate(lines) if "─" in line)
    return "\n".join(lines[:rule])


@pytest.fixture
def records() -> list[Record]:
    semel = Semel("memory://")
    semel.run("k", lambda: 1, operation="o", fingerprint=None)
    semel.run(
        "a long key " * 20, lambda: 1, operation="a long operation " * 5, fingerprint=None, scope="a long scope " * 5
    )
    return list(semel.records())


@pytest.mark.parametrize("width", [40, 50, 60, 70, 80, 100, 117, 118, 120, 160, 200, 1000])
@pytest.mark.parametrize("which", ["short", "long", "both"])
def test_no_header_of_a_listing_is_cut(records: list[Record], width: int, which: str) -> None:
    chosen = {"short": records[:1], "long": records[1:], "both": records}[which]
    heading = _heading(_printed(table(chosen, datetime.now(UTC), width), width))
    assert "…" not in heading
    for word in ("reference", "operation", "scope", "key", "status"):
        assert word in heading, f"{word} is not whole in {heading!r}"


@pytest.mark.parametrize("width", ["60", "80", "100", "120"])
def test_no_header_of_doctor_is_cut(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    database.completed("done")
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", width)
    main(["doctor", database.url])
    printed = capsys.readouterr().out
    for word in ("what", "found", "what to do", "holds", "boundary", "promise", "condition"):
        assert word in printed, f"{word} is not whole at {width} columns"
