"""The settings file: what it may say, what wins, and how mistakes in it are told."""

from datetime import time, timedelta
from pathlib import Path

import pytest

from semel import Policy, errors
from semel.configuration import Settings, read_duration, read_settings

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
    assert found.operations.policy("PAY", Policy()).keep_for == timedelta(days=90)


def test_variables_that_are_no_settings_are_left_alone() -> None:
    found = read_settings(None, {"SEMEL_STORE": "memory://", "SEMEL_TEST_MYSQL": "1", "PATH": "/bin"})
    assert found == read_settings(None, {"SEMEL_STORE": "memory://"})


def test_a_declared_operation_has_what_the_file_says_over_what_the_code_says(tmp_path: Path) -> None:
    text = f'{STORE}[operations."*"]\nkeep_for = "P7D"\n[operations.pay]\nlease_for = 60\n'
    operations = read(tmp_path, text).operations
    changed = operations.policy("pay", Policy(keep_for=timedelta(days=1), wait_for=timedelta(seconds=3)))
    assert changed == Policy(keep_for=timedelta(days=7), lease_for=timedelta(minutes=1), wait_for=timedelta(seconds=3))


def test_an_operation_that_is_not_declared_stays_as_the_code_has_it(tmp_path: Path) -> None:
    own = Policy(keep_for=timedelta(days=1))
    assert read(tmp_path, f'{STORE}[operations."*"]\nkeep_for = "P7D"\n').operations.policy("other", own) is own


def test_a_strict_file_refuses_an_operation_that_is_not_declared(tmp_path: Path) -> None:
    operations = read(tmp_path, f'{STORE}[operations]\nstrict = true\n[operations.pay]\nkeep_for = "P90D"\n').operations
    assert operations.policy("pay", Policy()).keep_for == timedelta(days=90)
    with pytest.raises(errors.UsageError, match=r"'refund' is not declared; nothing ran\. Give it a table"):
        operations.policy("refund", Policy())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stor = 'x'", r"has no setting 'stor'; nothing was opened\. Did you mean 'store'\?"),
        (f"{STORE}[polcy]\nkeep_for = 1", "Did you mean 'policy'"),
        (f"{STORE}[policy]\nkep_for = 1", r"\[policy\] of .*semel\.toml has no setting 'kep_for'.*'keep_for'"),
        (f"{STORE}[operations.pay]\nkeepfor = 1", r"\[operations\.pay\] of .*'keep_for'"),
        (f"{STORE}[policy]\nreconcile = 'x'", "It is Python code"),
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
