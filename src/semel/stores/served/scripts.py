"""Migrations as they are kept: numbered SQL files in two halves, and the single statements in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from semel.stores.served.migrate import Half

Scripts = Mapping[tuple[int, Half], str]

_HALVES: Final[tuple[Half, ...]] = ("pre", "post")


@cache
def scripts_of(package: str) -> Scripts:
    """The files of a release, by version and half: `schema/0001_records.pre.sql`."""
    found: dict[tuple[int, Half], str] = {}
    for entry in sorted(files(package).joinpath("schema").iterdir(), key=lambda entry: entry.name):
        for half in _HALVES:
            if entry.name.endswith(f".{half}.sql"):
                found[int(entry.name[:4]), half] = entry.read_text(encoding="utf-8")
    return found


def statements_of(script: str) -> Iterator[str]:
    """The single statements of a script: each ends with a semicolon at the end of a line."""
    statement = ""
    for line in script.splitlines(keepends=True):
        if line.lstrip().startswith("--"):
            continue
        statement += line
        if line.rstrip().endswith(";"):
            yield statement.strip().rstrip(";")
            statement = ""


def text_of(statements: Iterable[str]) -> str:
    """Statements as a script."""
    return "".join(f"{statement};\n" for statement in statements)
