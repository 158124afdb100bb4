"""The settings file: what it may say, what wins, and how mistakes in it are told."""

from dataclasses import fields
from datetime import time, timedelta
from pathlib import Path

import pytest

from semel import Limits, Policy, errors
from semel.settings import TABLES, Settings, read_duration, read_settings, show_settings

STORE = 'store = "sqlite:///semel.db"\n'


def read(folder: Path, text: str, **environment: str) -> Settings:
    path = folder / "semel.toml"
    path.write_text(text)
    return read_settings(path, environment)


def test_the_layout_of_the_reference_is_read(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
store = "postgresql://localhost/shop"
cache = "redis://localhost"
enabled = true
[policy]
keep_for = "P1D"
[operations.PAYMENT_PROCESSING]
keep_for = "P90D"
[operations."*"]
keep_for = "P7D"
[pool]
size = 10
statement_timeout = "PT5S"
log_statements = true
[limits]
max_handlers = 100
[cleanup]
at = "02:00"
check_every = "PT15M"
limit = 1000
[relay]
[server]
[security]
[telemetry]
""",
    )
    assert (found.store, found.cache, found.enabled) == ("postgresql://localhost/shop", "redis://localhost", True)
    assert found.policy == {"keep_for": timedelta(days=1)}
    assert found.pool == {"size": 10, "statement_timeout": timedelta(seconds=5), "log_statements": True}
    assert found.limits == {"max_handlers": 100}
    assert found.cleanup == {"at": time(2), "check_every": timedelta(minutes=15), "limit": 1000}


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    text = f'{STORE}[policy]\nkeep_for = "P1D"\n'
    found = read(tmp_path, text, SEMEL_STORE="memory://", SEMEL_POLICY__KEEP_FOR="P2D", SEMEL_ENABLED="false")
    assert (found.store, found.policy["keep_for"], found.enabled) == ("memory://", timedelta(days=2), False)


def test_the_environment_alone_is_enough() -> None:
    found = read_settings(None, {"SEMEL_STORE": "memory://", "SEMEL_OPERATIONS__PAY__KEEP_FOR": "P90D"})
    assert found.operations.policy("PAY", Policy(), Policy()).keep_for == timedelta(days=90)


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    text = f'{STORE}[policy]\nkeep_for = "P1D"\n'
    assert read(tmp_path, text, SEMEL_STORE="", SEMEL_POLICY__KEEP_FOR="", SEMEL_CACHE="") == read(tmp_path, text)


def test_variables_that_are_no_settings_are_left_alone() -> None:
    found = read_settings(None, {"SEMEL_STORE": "memory://", "SEMEL_TEST_MYSQL": "1", "PATH": "/bin"})
    assert found == read_settings(None, {"SEMEL_STORE": "memory://"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stor = 'x'", r"has no setting 'stor'; nothing was opened\. Did you mean 'store'\?"),
        (f"{STORE}[polcy]\nkeep_for = 1", "Did you mean 'policy'"),
        (f"{STORE}[policy]\nkep_for = 1", r"\[policy\] of .*semel\.toml has no setting 'kep_for'.*'keep_for'"),
        (f"{STORE}[operations.pay]\nkeepfor = 1", r"\[operations\.pay\] of .*'keep_for'"),
        (f"{STORE}[policy]\nreconcile = 'x'", "It is Python code"),
        (f"{STORE}[limits]\nwaiters = 3", "Write max_waiting"),
        (f"{STORE}[limits]\nkeep_for = 3", r"It belongs to the table \[policy\]"),
        (f"{STORE}keep_for = 3", r"It belongs to the table \[policy\]"),
        (f"{STORE}[pool]\ncache = 'redis://'", "cache stands before all tables"),
        (f"{STORE}[relay]\npublish = 'x'", r"\[relay\] of .* has no setting 'publish'.*'publisher'"),
        (f"{STORE}[policy]\nkeep_for = 'P1M'", r"policy\.keep_for in .* must be a duration .* not 'P1M'"),
        (f"{STORE}[policy]\nkeep_for = true", "must be a duration"),
        (f"{STORE}[policy]\nin_doubt = 'maybe'", "must be one of rerun, reconcile, hold"),
        (f"{STORE}[policy]\nmax_attempts = -1", "must be a whole number"),
        (f"{STORE}[cleanup]\nat = '25:00'", "a time of day"),
        (f"{STORE}enabled = 'perhaps'", "true or false"),
        (f"{STORE}policy = 3", "must be a table"),
        (f"{STORE}operations = 3", "must be a table"),
        (f"{STORE}[operations]\npay = 3", "must be a table"),
        ("cache = 'redis://'", "No store is named"),
        ("store = ", "is no TOML"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_would_be_usable(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(errors.UsageError, match=message) as refused:
        read(tmp_path, text)
    assert "nothing was opened" in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SEMEL_POLICY__KEP_FOR", "1", r"\[policy\] of SEMEL_POLICY__KEP_FOR has no setting 'kep_for'.*'keep_for'"),
        ("SEMEL_POLCY__KEEP_FOR", "1", "has no setting 'polcy'.*'policy'"),
        ("SEMEL_POLICY__KEEP_FOR", "soon", r"policy\.keep_for in SEMEL_POLICY__KEEP_FOR must be a duration"),
        ("SEMEL_ENABLED", "perhaps", "enabled in SEMEL_ENABLED must be true or false"),
        ("SEMEL_OPERATIONS__PAY__KEEPFOR", "1", r"\[operations\.PAY\] of SEMEL_OPERATIONS__PAY__KEEPFOR.*'keep_for'"),
    ],
)
def test_a_mistake_in_the_environment_is_told_with_its_variable(variable: str, value: str, message: str) -> None:
    with pytest.raises(errors.UsageError, match=message):
        read_settings(None, {"SEMEL_STORE": "memory://", variable: value})


def test_where_each_value_came_from_is_shown_without_secrets(tmp_path: Path) -> None:
    text = (
        'store = "postgresql://me:secret@db/shop?password=secret"\nenabled = false\n[cleanup]\nat = "02:00"\n'
        '[operations]\nstrict = true\n[operations.pay]\nkeep_for = "P90D"\n[operations."*"]\nkeep_for = "P7D"\n'
    )
    found = read(tmp_path, text, SEMEL_CACHE="redis://:secret@cache", SEMEL_POLICY__KEEP_FOR="P2D")
    file = str(tmp_path / "semel.toml")
    assert sorted(show_settings(found)) == [
        ("cache", "redis://…@cache", "SEMEL_CACHE"),
        ("cleanup.at", "02:00", file),
        ("enabled", "false", file),
        ("operations.*.keep_for", "7 days, 0:00:00", file),
        ("operations.pay.keep_for", "90 days, 0:00:00", file),
        ("operations.strict", "true", file),
        ("policy.keep_for", "2 days, 0:00:00", "SEMEL_POLICY__KEEP_FOR"),
        ("store", "postgresql://…@db/shop", file),
    ]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("sqlite:///semel.db", "sqlite:///semel.db"),
        ("semel.db", "semel.db"),
        ("me:secret@db/shop", "…"),
        ("postgresql://me:se@cret@db", "postgresql://…@db"),
        ("postgresql://db/shop#secret", "postgresql://db/shop"),
        ("redis://db,other:6379/0", "redis://db,other:6379/0"),
    ],
)
def test_an_address_is_shown_without_its_login(tmp_path: Path, address: str, shown: str) -> None:
    assert dict(row[:2] for row in show_settings(read(tmp_path, f'store = "{address}"\n')))["store"] == shown


def test_every_field_of_a_policy_that_is_text_can_be_written() -> None:
    in_code = {"final_errors", "retry_errors", "reconcile"}
    assert set(TABLES["policy"]) == {each.name for each in fields(Policy)} - in_code


def test_every_limit_can_be_written() -> None:
    renamed = {"max_waiting": "waiters"}
    assert {renamed.get(name, name) for name in TABLES["limits"]} == {each.name for each in fields(Limits)}


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match=r"semel\.toml cannot be read: No such file"):
        read_settings(tmp_path / "semel.toml", {})


def test_no_address_is_shown(tmp_path: Path) -> None:
    found = read(tmp_path, 'store = "postgresql://me:pass@db/x"\ncache = "redis://:pass@db"\n')
    assert "pass" not in repr(found)


def test_an_address_that_is_no_text_is_refused_without_showing_it(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="must be a text") as refused:
        read(tmp_path, 'store = ["postgresql://me:pass@db/x"]\n')
    assert "pass" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("P1D", timedelta(days=1)),
        ("P90D", timedelta(days=90)),
        ("PT15M", timedelta(minutes=15)),
        ("P1DT12H", timedelta(days=1, hours=12)),
        ("P2W", timedelta(weeks=2)),
        ("PT0.5S", timedelta(milliseconds=500)),
        ("PT1H30M5S", timedelta(hours=1, minutes=30, seconds=5)),
        ("30", timedelta(seconds=30)),
        (30, timedelta(seconds=30)),
        (0.5, timedelta(milliseconds=500)),
    ],
)
def test_a_duration_is_read(text: object, duration: timedelta) -> None:
    assert read_duration(text) == duration


@pytest.mark.parametrize(
    "text", ["P", "PT", "P1DT", "P1M", "P1Y", "1D", "-P1D", "p1d", "P1D ", "", None, True, "PT1M2H", []]
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        read_duration(text)
