"""The log of statements, on every store: one line each, with duration and size, and nothing of keys or values."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, Semel, errors
from semel.engine.engine import engine_of
from semel.stores.statement_log import LoggedStore

STORES = ["memory", "sqlite", "postgresql", "mariadb", "redis_keys", "dynamodb"]
LINE = re.compile(r"(\w+), statement (\d+), operations (\d+): (\d+\.\d{3}) ms, (?:rows \d+, )?bytes (\d+)")
KEY, SCOPE, VALUE, ERROR = "key-of-somebody", "scope-of-somebody", "value-of-somebody", "error-of-somebody"
Lines = Callable[[], list[str]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """The lines of the log so far."""
    caplog.set_level(logging.DEBUG, "semel.statements")
    return lambda: [line.getMessage() for line in caplog.records if line.name == "semel.statements"]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path / 'records.db'}"
    server: Any = request.getfixturevalue(request.param)
    found: str = server.new_table() if request.param == "dynamodb" else server.url
    if request.param == "redis_keys":
        server.empty()
    elif request.param != "dynamodb":
        found = server.new_database()
    return found


def settings(folder: Path, url: str, *, on: bool) -> str:
    path = folder / "semel.toml"
    path.write_text(f'store = "{url}"\n' + ("[pool]\nlog_statements = true\n" if on else ""))
    return str(path)


def use(semel: Semel) -> None:
    """A first run, a replay, steps, and a failure whose text is somebody's."""

    def handler() -> str:
        return semel.current().step("step", lambda: VALUE)

    def failing() -> None:
        raise OSError(ERROR)

    for _ in range(2):
        semel.run(KEY, handler, operation="pay", fingerprint=VALUE, scope=SCOPE, about={"business_key": KEY})
    with pytest.raises(OSError, match=ERROR):
        semel.run(f"{KEY}-2", failing, operation="pay", fingerprint=None, scope=SCOPE)


def test_each_statement_is_a_line(url: str, lines: Lines, tmp_path: Path) -> None:
    with Semel.from_settings(settings(tmp_path, url, on=True)) as semel:
        use(semel)
    found = [LINE.fullmatch(line) for line in lines()]
    assert all(found), lines()
    named = [match[1] for match in found if match]
    assert {"Claim", "Checkpoint", "Complete", "Fail"} <= set(named), named
    if not url.startswith("memory"):  # whose replies are no bytes
        assert sum(int(match[5]) for match in found if match) > 0, "no line tells of any bytes"


def test_an_async_engine_logs_the_same(url: str, lines: Lines, tmp_path: Path) -> None:
    async def handler() -> str:
        return VALUE

    async def main() -> None:
        async with AsyncSemel.from_settings(settings(tmp_path, url, on=True)) as semel:
            for _ in range(2):
                await semel.run(KEY, handler, operation="pay", fingerprint=None, scope=SCOPE)

    asyncio.run(main())
    assert {"Claim", "Complete"} <= {line.partition(",")[0] for line in lines()}, lines()


def test_no_line_holds_a_key_or_a_value(url: str, lines: Lines, tmp_path: Path) -> None:
    with Semel.from_settings(settings(tmp_path, url, on=True)) as semel:
        use(semel)
    text = "\n".join(lines())
    assert "somebody" not in text, text


def test_without_the_setting_nothing_is_logged_and_no_store_stands_before_the_store(
    url: str, lines: Lines, tmp_path: Path
) -> None:
    with Semel.from_settings(settings(tmp_path, url, on=False)) as semel:
        semel.run(KEY, lambda: VALUE, operation="pay", fingerprint=None)
        assert not isinstance(engine_of(semel).store, LoggedStore)
    assert lines() == []


@pytest.mark.parametrize("url", ["postgresql", "mariadb"], indirect=True)
def test_a_statement_that_failed_is_logged_with_the_class_of_the_error(
    url: str, lines: Lines, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue("postgresql" if url.startswith("postgresql") else "mariadb")
    with Semel.from_settings(settings(tmp_path, url, on=True)) as semel:
        semel.run(KEY, lambda: VALUE, operation="pay", fingerprint=None)
        server.admin("DROP TABLE semel_step", url)
        server.admin("DROP TABLE semel_record", url)
        with pytest.raises(errors.SemelError):
            semel.run(f"{KEY}-2", lambda: VALUE, operation="pay", fingerprint=None)
    failed = [line for line in lines() if "failed: " in line]
    assert failed, lines()
    assert "somebody" not in "\n".join(failed)


def test_a_cache_stands_before_the_log(tmp_path: Path, lines: Lines, request: pytest.FixtureRequest) -> None:
    cache = request.getfixturevalue("redis_keys").url
    path = tmp_path / "semel.toml"
    path.write_text(f'store = "{tmp_path / "r.db"}"\ncache = "{cache}"\n[pool]\nlog_statements = true\n')
    with Semel.from_settings(path) as semel:
        for _ in range(2):
            semel.run(KEY, lambda: VALUE, operation="pay", fingerprint=None)
        claims = [line for line in lines() if line.startswith("Claim")]
        semel.run(KEY, lambda: VALUE, operation="pay", fingerprint=None)
        assert [line for line in lines() if line.startswith("Claim")] == claims, "the cache was not asked first"


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_call_inside_a_transaction_of_the_caller_is_logged(url: str, lines: Lines, tmp_path: Path) -> None:
    import psycopg

    with (
        Semel.from_settings(settings(tmp_path, url, on=True)) as semel,
        psycopg.connect(url) as connection,
        connection.transaction(),
    ):
        semel.within(connection).run(KEY, lambda: VALUE, operation="pay", fingerprint=None)
    assert {"Claim", "Complete"} <= {line.partition(",")[0] for line in lines()}, lines()
