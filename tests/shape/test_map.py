"""The map in CONTRIBUTING names every package of the source, and nothing that is not there."""

import re

from tests.shape.tree import LAB, PACKAGE, ROOT

# Parts of a package that its own line speaks of.
INSIDE = {
    "src/semel/cli/commands",
    "src/semel/cli/commands/batch",
    "src/semel/cli/commands/events",
    "src/semel/cli/commands/workflow",
    "src/semel/core/batch",
    "src/semel/core/erasure",
    "src/semel/core/events",
    "src/semel/core/operators",
    "src/semel/server/audit",
    "src/semel/stores/dynamodb/events",
    "src/semel/stores/mysql/batch",
    "src/semel/stores/mysql/operators",
    "src/semel/stores/postgresql/batch",
    "src/semel/stores/postgresql/operators",
    "src/semel/stores/sql/adapters",
    "src/semel/stores/sql/batch",
    "src/semel/stores/sql/events",
    "src/semel/stores/sql/operators",
    "src/semel/stores/sqlite/batch",
    "src/semel/stores/sqlite/operators",
    "src/semel/testing/contract",
    "src/semel_lab/conform/cases",
    "src/semel_lab/simulate/audits",
    "src/semel_lab/simulate/batches",
    "src/semel_lab/simulate/checks",
    "src/semel_lab/simulate/events",
    "src/semel_lab/simulate/relays",
    "src/semel_lab/simulate/models",
    "src/semel_lab/simulate/within",
    "src/semel/testing/contract/topics",
}


def _named() -> set[str]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return {path.rstrip("/") for path in re.findall(r"^(src/\S+)", text, re.MULTILINE)}


def test_every_package_is_on_the_map() -> None:
    packages = {path.parent.relative_to(ROOT).as_posix() for top in (PACKAGE, LAB) for path in top.rglob("__init__.py")}
    roots = {top.relative_to(ROOT).as_posix() for top in (PACKAGE, LAB)}
    assert packages - roots - INSIDE - _named() == set()


def test_everything_on_the_map_is_there() -> None:
    assert {name for name in _named() | INSIDE if not (ROOT / name).exists()} == set()
