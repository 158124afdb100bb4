"""The tables of the reference say what the code says: one row for each thing there is, and none for what is not."""

import dataclasses
import inspect
import re
import sqlite3
import tomllib
import typing
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

import semel.client
from semel import Limits, Policy, Record, errors
from semel.cli import exit_codes
from semel.cli.app import build_app
from semel.client.settings import Settings as ClientSettings
from semel.core.observer import Signal
from semel.core.operations import Operation
from semel.core.record import About, Status
from semel.core.store import Store
from semel.engine.admin import SweepReport
from semel.engine.call_flow import Result
from semel.http.problem import PROFILES
from semel.http.route import Settings as RouteSettings
from semel.server.api.endpoints import ENDPOINTS
from semel.settings import TABLES, TOP, read_settings
from semel.stores.cache import Cache
from semel.stores.dynamodb.settings import Settings as DynamoSettings
from semel.stores.memory import MemoryStore
from semel.stores.redis.settings import Settings as RedisSettings
from semel.stores.sql.settings import Settings
from semel.stores.sqlite import SqliteStore
from semel.stores.sqlite.migrations import schema
from tests.docs.pages import page, pages, slug, table

HTTP = Path(semel.__file__).parent / "http"
WORDS = ["key", "fingerprint", "claim", "lease", "outcome", "replay", "record", "policy", "in doubt"]


def first_column(name: str, heading: str) -> list[str]:
    return [row[0].strip("*") for row in table(page(name), heading)]


def test_the_policy_table_holds_every_field_with_its_default() -> None:
    rows = {row[0]: row[1] for row in table(page("docs/reference/policy.md"), "field")}
    assert rows == {field.name: _default(field.default) for field in dataclasses.fields(Policy)}


def _default(value: object) -> str:
    if isinstance(value, timedelta):
        # 24:00:00 reads better than "1 day, 0:00:00".
        hours, seconds = divmod(int(value.total_seconds()), 3600)
        return f"{hours}:{seconds // 60:02}:{seconds % 60:02}"
    return f'"{value}"' if isinstance(value, str) else str(value)


def test_the_policy_table_says_what_the_docstring_says() -> None:
    told = re.sub(r"\s+", " ", inspect.getdoc(Policy) or "")
    shortened = {row[0]: row[2] for row in table(page("docs/reference/policy.md"), "field")}
    for name in ("keep_for", "lease_for", "max_runtime", "final_errors", "reconcile_after"):
        assert shortened[name].split(":")[0].split(",")[0] in told, name


def test_the_settings_page_holds_every_name_with_its_variable_and_default() -> None:
    told = {row[0]: (row[1], row[2]) for row in table(page("docs/reference/settings.md"), "name")}
    names = [*TOP, *(f"{name}.{key}" for name, keys in TABLES.items() for key in keys)]
    assert list(told) == names
    for name, (default, variable) in told.items():
        assert variable == f"SEMEL_{name.upper().replace('.', '__')}", name
        if name.startswith(("policy.", "limits.")):
            assert default == _default_of_setting(name), name


def _default_of_setting(name: str) -> str:
    owner, _, field = name.partition(".")
    default = getattr(Policy() if owner == "policy" else Limits(), {"max_waiting": "waiters"}.get(field, field))
    if default == timedelta(milliseconds=100):
        return "0:00:00.1"
    return "" if default is None else _default(default).strip('"')


def test_the_settings_page_shows_a_file_that_can_be_read(tmp_path: Path) -> None:
    for name in ("docs/reference/settings.md", "docs/how-to/settings-file.md"):
        (shown,) = [block.text for block in page(name).blocks if block.kind == "toml"]
        (tmp_path / "semel.toml").write_text(shown)
        read_settings(tmp_path / "semel.toml", {})


def test_the_table_of_client_settings_holds_every_one_with_its_default() -> None:
    rows = {row[0]: row[1] for row in table(page("docs/reference/client.md"), "setting")}
    told = {field.name: str(field.default) for field in dataclasses.fields(ClientSettings)}
    told |= {"name": '"client"', "header": '"Idempotency-Key"', "methods": "POST, PUT, PATCH, DELETE"}
    assert rows == told | {"keep_headers": "none"}


def test_the_table_of_the_client_names_every_export() -> None:
    named = {row[0].partition("(")[0] for row in table(page("docs/reference/client.md"), "name")}
    assert set(semel.client.__all__) <= named


def _tree(root: type[errors.SemelError]) -> list[type[errors.SemelError]]:
    below = [error for error in root.__subclasses__() if error.__module__ == "semel.errors"]
    return [root, *(found for error in below for found in _tree(error))]


def test_the_error_table_holds_every_error_with_its_code() -> None:
    rows = {row[0]: row[1] for row in table(page("docs/reference/errors.md"), "error") if len(row) == 4}
    assert rows == {error.__name__: error.code for error in _tree(errors.SemelError)}


def test_the_error_tree_is_drawn_as_it_is() -> None:
    drawn = next(block.text for block in page("docs/reference/errors.md").blocks if "├──" in block.text)
    names = re.findall(r"\w+", drawn)
    parents: dict[int, str] = {}
    for line in drawn.splitlines():
        name = line.lstrip("│├└─ ")
        depth = (len(line) - len(name)) // 4
        parents[depth] = name
        assert depth == 0 or getattr(errors, name).__bases__[0] is getattr(errors, parents[depth - 1])
    assert names == [error.__name__ for error in _tree(errors.SemelError)]


def test_every_code_is_used_once() -> None:
    codes = [error.code for error in _tree(errors.SemelError)]
    assert len(codes) == len(set(codes))


def test_the_api_page_names_every_export() -> None:
    named = {name.strip() for row in table(page("docs/reference/api.md"), "name") for name in row[0].split(",")}
    assert set(semel.__all__) <= named


@pytest.mark.parametrize(
    "method", ["once", "run", "within", "current", "read", "records", "resolve", "erase", "sweep", "close"]
)
def test_the_api_page_names_every_argument(method: str) -> None:
    text = page("docs/reference/api.md").text
    parameters = [
        name for name in inspect.signature(getattr(semel.Semel, method)).parameters if name not in ("self", "changes")
    ]
    assert f"`{method}" in text
    assert [name for name in parameters if not re.search(rf"\b{name}\b", text)] == []


def test_the_api_page_names_every_method() -> None:
    text = page("docs/reference/api.md").text
    for kind in (semel.Semel, semel.Attempt):
        public = [name for name, _ in inspect.getmembers_static(kind, inspect.isroutine) if not name.startswith("_")]
        assert [name for name in public if f"`{name}" not in text and f".{name}(" not in text] == []


def test_the_api_page_names_every_part_of_a_result_and_of_about() -> None:
    text = page("docs/reference/api.md").text
    told = [name for name in (*_public(Result), "record", *About.__struct_fields__) if name not in text]
    assert told == []


def _public(kind: Any) -> list[str]:
    return [name for name in kind.__struct_fields__ if not name.startswith("_")]


def test_the_record_page_holds_every_field_and_property() -> None:
    told = first_column("docs/reference/record.md", "field")
    assert told == list(Record.__struct_fields__)
    text = page("docs/reference/record.md").text
    properties = [name for name, member in inspect.getmembers_static(Record) if isinstance(member, property)]
    assert [name for name in properties if f"`{name}`" not in text] == []


def test_every_status_is_explained() -> None:
    told = {row[0].split(",")[0] for row in table(page("docs/explanation/life-cycle.md"), "status")}
    assert told == set(Status)


def test_the_event_page_holds_every_kind_and_field() -> None:
    kinds = typing.get_args(typing.get_type_hints(Signal)["kind"])
    assert first_column("docs/reference/observer.md", "kind") == list(kinds)
    assert first_column("docs/reference/observer.md", "field of Signal") == list(Signal.__struct_fields__)


@pytest.mark.parametrize(
    ("store", "skipped"),
    [
        (SqliteStore, {"path"}),
        (MemoryStore, {"table"}),
        (Settings, {"url", "name"}),
        (RedisSettings, {"name", "kind", "addresses", "service", "tls_options"}),
        (DynamoSettings, {"table"}),
        (Cache, {"url"}),
    ],
    ids=["sqlite", "memory", "servers", "redis", "dynamodb", "cache"],
)
def test_the_settings_of_stores_are_told(store: Any, skipped: set[str]) -> None:
    told = set(first_column("docs/reference/stores.md", "setting"))
    assert set(inspect.signature(store).parameters) - skipped <= told


def test_no_setting_is_told_that_is_not_there() -> None:
    told = set(first_column("docs/reference/stores.md", "setting"))
    stores = (SqliteStore, MemoryStore, Settings, RedisSettings, DynamoSettings, Cache)
    assert told <= {name for store in stores for name in inspect.signature(store).parameters}


def test_the_port_of_a_store_is_told_whole() -> None:
    members = [name for name in vars(Store) if not name.startswith("_")]
    told = [row[0].split("(")[0] for row in table(page("docs/how-to/write-a-store.md"), "member")]
    assert told == members
    operations = [kind.__name__ for kind in typing.get_args(Operation)]
    assert first_column("docs/how-to/write-a-store.md", "operation") == operations


def test_the_counts_of_a_sweep_are_told() -> None:
    told = first_column("docs/how-to/run-the-sweeper.md", "count")
    assert told == list(inspect.signature(SweepReport).parameters)


@pytest.fixture
def database() -> typing.Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.executescript(schema().creation_sql())
    yield connection
    connection.close()


@pytest.mark.parametrize(
    "name",
    ["semel_record", "semel_step", "semel_history", "semel_worker", "semel_letter", "semel_schema", "semel_meta"],
)
def test_the_schema_page_holds_every_column(name: str, database: sqlite3.Connection) -> None:
    columns = [(column[1], column[2]) for column in database.execute(f"PRAGMA table_info({name})")]
    told = [(row[0], row[1]) for row in table(page("docs/reference/sqlite-schema.md"), f"column of {name}")]
    assert told == columns


def test_the_schema_page_holds_every_table_and_index(database: sqlite3.Connection) -> None:
    made = database.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    text = page("docs/reference/sqlite-schema.md").text
    assert {name for kind, name in made if kind == "index"} == set(
        first_column("docs/reference/sqlite-schema.md", "index")
    )
    assert [name for kind, name in made if kind == "table" and f"column of {name}" not in text] == []


@cache
def _commands() -> dict[str, Any]:
    """Each command by its name; those of a group by both names."""
    group: Any = typer.main.get_command(build_app())
    inner = {
        f"{name} {below}": command
        for name, one in group.commands.items()
        for below, command in getattr(one, "commands", {}).items()
    }
    return {name: one for name, one in group.commands.items() if not hasattr(one, "commands")} | inner


def test_every_command_is_on_the_page() -> None:
    commands = [f"semel {name}" for name in _commands()]
    told = [re.sub(r"\[|\]\(.*", "", row[0]) for row in table(page("docs/reference/cli.md"), "command")]
    assert sorted(told) == sorted(commands)
    assert {slug(command) for command in commands} <= page("docs/reference/cli.md").anchors


@pytest.mark.parametrize("name", sorted(_commands()))
def test_every_option_of_a_command_is_on_the_page(name: str) -> None:
    usage = next(
        b.text for b in page("docs/reference/cli.md").blocks if b.kind == "text" and b.text.startswith(f"semel {name} ")
    )
    options = {
        option
        for parameter in _commands()[name].params
        for option in parameter.opts
        if option.startswith("--") and option != "--help"
    }
    assert set(re.findall(r"--[a-z][a-z-]*", usage)) == options


def test_the_exit_codes_are_told() -> None:
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    told = {int(code) for code in first_column("docs/reference/cli.md", "exit code")}
    assert codes - {exit_codes.BROKEN_PIPE} == told


def test_the_glossary_holds_the_nine_words() -> None:
    rows = table(page("docs/reference/glossary.md"), "word")
    assert [row[0].strip("*") for row in rows if row[0].startswith("**")] == WORDS


def test_the_promise_is_the_same_everywhere() -> None:
    told = {
        name: table(page(name), "boundary") for name in ("README.md", "docs/index.md", "docs/explanation/guarantees.md")
    }
    assert len(told["README.md"]) == 9
    assert told["README.md"] == told["docs/index.md"] == told["docs/explanation/guarantees.md"]


def test_decisions_are_numbered_and_have_their_parts() -> None:
    decisions = [found for found in pages() if re.match(r"docs/decisions/\d", found.name)]
    assert [found.name[15:19] for found in decisions] == [f"{number:04}" for number in range(1, len(decisions) + 1)]
    for found in decisions:
        assert found.headings[0].startswith(found.name[15:19])
        assert found.headings[1:] == ["Context", "Decision", "Consequences", "Ways not taken"], found.name


def test_no_page_uses_a_word_that_the_glossary_rules_out() -> None:
    elsewhere = re.compile(r"\b(TTL|retention|payload|mutex|checksum|dedup\w*)\b", re.IGNORECASE)
    where_others_are_quoted = {"docs/reference/glossary.md", "docs/explanation/comparison.md"}
    found = [
        f"{found.name}:{line} {hit.group()}"
        for found in pages()
        if found.name not in where_others_are_quoted
        for line, text in found.prose
        if (hit := elsewhere.search(re.sub(r"`[^`]*`", "", text)))
    ]
    assert found == []


def test_the_table_of_routes_holds_every_setting() -> None:
    assert first_column("docs/reference/http.md", "setting") == [
        field.name for field in dataclasses.fields(RouteSettings)
    ]


def test_the_table_of_profiles_holds_every_profile() -> None:
    assert first_column("docs/reference/http.md", "profile") == list(PROFILES)


def test_the_table_of_problems_holds_every_problem() -> None:
    told = set(re.findall(r"urn:semel:problem:([a-z-]+)", page("docs/reference/http.md").text))
    known = set(re.findall(r'Problem\(\s*"([a-z-]+)"', "".join(path.read_text() for path in HTTP.rglob("*.py"))))
    assert told == known - {"refused"}


def test_the_install_page_has_every_extra_and_what_it_brings() -> None:
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = {row[0]: row[1] for row in table(page("docs/how-to/install.md"), "extra")}
    assert found.pop("semel[all]") == "all of these but pytest"
    [everything] = extras.pop("all")
    assert everything == f"semel[{','.join(sorted(extras.keys() - {'testing'}))}]"
    brought = {name: [re.split(r"[\[>=]", package)[0] for package in packages] for name, packages in extras.items()}
    assert found == {f"semel[{name}]": ", ".join(packages) for name, packages in brought.items()}


def test_the_page_of_the_admin_api_holds_every_endpoint_with_its_permission() -> None:
    told = {(row[0], row[1]): row[2].partition(" ")[0] for row in table(page("docs/reference/admin-api.md"), "method")}
    listed = {
        (endpoint.method, re.sub(r":(path|int)}", "}", endpoint.path)): str(endpoint.permission or "signed")
        for endpoint in ENDPOINTS
    }
    assert told == listed
