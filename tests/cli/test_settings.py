"""Where the command line finds its database: a URL, a settings file that was named, or one that lies here."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Database, Run


@pytest.fixture
def file(database: Database, tmp_path: Path) -> Path:
    """A settings file that names a database with one record."""
    database.completed("o-1")
    path = tmp_path / "elsewhere" / "shop.toml"
    path.parent.mkdir()
    path.write_text(f'store = "{database.url}"\n')
    return path


def keys(text: str) -> list[str]:
    return [json.loads(line)["key"] for line in text.splitlines()]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--settings", "{file}", "list", "--json"),
        ("--settings={file}", "list", "--json"),
        ("list", "--settings", "{file}", "--json"),
        ("list", "--json", "--settings={file}"),
        ("list", "--json", "{file}"),
    ],
)
def test_a_settings_file_can_be_named(call: Run, file: Path, arguments: tuple[str, ...]) -> None:
    done = call(*(word.format(file=file) for word in arguments))
    assert keys(done.stdout) == ["o-1"], done.stderr


def test_the_variable_names_a_file(call: Run, file: Path) -> None:
    assert keys(call("list", "--json", SEMEL_SETTINGS=str(file)).stdout) == ["o-1"]


def test_the_file_in_the_working_directory_is_found(call: Run, file: Path, tmp_path: Path) -> None:
    file.rename(tmp_path / "semel.toml")
    assert keys(call("list", "--json").stdout) == ["o-1"]


def test_the_environment_alone_names_a_store(call: Run, database: Database) -> None:
    database.completed("o-1")
    assert keys(call("list", "--json", SEMEL_STORE=database.url).stdout) == ["o-1"]


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_a_url_goes_before_the_file_that_lies_here(call: Run, database: Database, tmp_path: Path, how: str) -> None:
    database.completed("o-1")
    (tmp_path / "semel.toml").write_text('store = "sqlite:///nowhere.db"\n')
    words = ("list", "--json", *([database.url] if how == "argument" else []))
    variables = {"SEMEL_URL": database.url} if how == "variable" else {}
    assert keys(call(*words, **variables).stdout) == ["o-1"]


def test_a_named_file_goes_before_the_url_of_the_environment(call: Run, file: Path) -> None:
    done = call("--settings", str(file), "list", "--json", SEMEL_URL="sqlite:///nowhere.db")
    assert keys(done.stdout) == ["o-1"], done.stderr


def test_the_file_of_one_command_is_not_that_of_the_next(call: Run, file: Path) -> None:
    assert call("--settings", str(file), "list").returncode == 0
    assert call("list").returncode == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stor = 'x'", "Did you mean 'store'"),
        ("store = ", "is no TOML"),
        ("", "No store is named"),
        ('store = "memory://"', "lives inside one process"),
        ('store = "sqlite:///x.db"\n[pool]\nsize = 4', "has no use for size"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(call: Run, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "semel.toml").write_text(text)
    done = call("list")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert told in done.stderr
    assert not (tmp_path / "x.db").exists()


def test_migrate_makes_the_database_of_the_file(call: Run, tmp_path: Path) -> None:
    (tmp_path / "semel.toml").write_text('store = "sqlite:///new.db"\n')
    assert call("migrate").returncode == 0
    assert (tmp_path / "new.db").exists()


def test_erasing_reaches_the_database_of_the_file(call: Run, file: Path) -> None:
    done = call(
        "erase",
        "o-1",
        "--operation",
        "charge",
        "--scope",
        "acme",
        "--reason",
        "asked",
        "--yes",
        "--settings",
        str(file),
    )
    assert done.returncode == 0, done.stderr


def test_the_doctor_says_what_was_set_where(call: Run, database: Database, tmp_path: Path) -> None:
    database.completed("o-1")
    (tmp_path / "semel.toml").write_text(f'store = "{database.url}"\n[policy]\nkeep_for = "P1D"\n')
    done = call("doctor", "--json", SEMEL_CACHE="redis://:secret@cache", SEMEL_POLICY__KEEP_FOR="P2D")
    told = {row["name"]: (row["value"], row["from"]) for row in json.loads(done.stdout)["settings"]}
    assert told == {
        "store": (database.url, "semel.toml"),
        "cache": ("redis://…@cache", "SEMEL_CACHE"),
        "policy.keep_for": ("2 days, 0:00:00", "SEMEL_POLICY__KEEP_FOR"),
    }
    shown = call("doctor", SEMEL_CACHE="redis://:secret@cache", COLUMNS="200")
    assert "semel.toml" in shown.stdout
    assert "secret" not in shown.stdout + done.stdout


def test_the_doctor_without_a_file_has_nothing_to_say_of_settings(call: Run, database: Database) -> None:
    database.completed("o-1")
    assert json.loads(call("doctor", database.url, "--json").stdout)["settings"] == []


def test_the_doctor_is_red_while_semel_is_switched_off(call: Run, database: Database, tmp_path: Path) -> None:
    database.completed("o-1")
    file = tmp_path / "semel.toml"
    file.write_text(f'store = "{database.url}"\nenabled = false\n')
    done = call("doctor", "--json")
    told = json.loads(done.stdout)
    (finding,) = [finding for finding in told["findings"] if finding["topic"] == "enabled"]
    assert (done.returncode, told["fine"], finding["verdict"]) == (1, False, "fix")
    assert "semel.toml" in finding["advice"]
    assert not any(promise["holds"] for promise in told["promises"]), "a promise is said to hold"
    file.write_text(f'store = "{database.url}"\n')
    assert call("doctor", "--json").returncode == 0
    assert call("doctor", "--json", SEMEL_ENABLED="false").returncode == 1
