"""The documented configuration of Debezium names columns that the outbox has."""

import re

from tests.shape.tree import ROOT

PAGE = ROOT / "docs/explanation/inbox-and-outbox.md"
SCHEMA = ROOT / "src/semel/stores/postgresql/schema/0004_outbox.sql"


def _settings() -> dict[str, str]:
    (block,) = re.findall(r"```text\n(connector\..*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return dict(line.split("=", 1) for line in block.splitlines())


def _columns() -> set[str]:
    (table,) = re.findall(r"CREATE TABLE \{outbox_table\} \((.*?)\n\)", SCHEMA.read_text(encoding="utf-8"), re.DOTALL)
    return set(re.findall(r"^    ([a-z]\w*) ", table, re.MULTILINE))


def test_debezium_is_told_columns_of_the_outbox() -> None:
    settings = _settings()
    single = [value for name, value in settings.items() if ".table.field.event." in name or name.endswith("by.field")]
    further = [one.split(":")[0] for one in settings["transforms.outbox.table.fields.additional.placement"].split(",")]
    assert len(single) == 5
    assert {*single, *further} <= _columns()
