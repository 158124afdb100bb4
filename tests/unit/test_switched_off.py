"""`enabled = false`: everything runs, nothing is protected, nothing is contacted, and somebody is told."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncAttempt, AsyncSemel, Attempt, Semel, Signal, errors
from semel.testing.clock import VirtualClock

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=1"


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []

    def observe(self, signal: Signal) -> None:
        self.signals.append(signal)

    def warnings(self) -> list[Signal]:
        return [signal for signal in self.signals if signal.kind == "unprotected"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Settings that switch semel off, and name a store that nobody can reach."""
    file = tmp_path / "semel.toml"
    file.write_text(f'store = "{NOWHERE}"\ncache = "redis://127.0.0.1:1"\nenabled = false\n')
    return str(file)


class Both:
    """A script that both kinds of engine play, each in its own way."""

    def __init__(self, path: str, kind: str, **settings: Any) -> None:
        self.kind = kind
        self.semel: Any = (Semel if kind == "sync" else AsyncSemel).from_settings(path, **settings)
        self.ran = 0
        self.attempts: list[tuple[int, bool]] = []

    def play(self, script: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run what is awaited; methods of a sync engine give what they give at once."""

        async def main() -> Any:
            try:
                return await script(self)
            finally:
                await self.settle(self.semel.close())

        return asyncio.run(main())

    async def settle(self, given: Any) -> Any:
        return await given if self.kind == "async" else given

    def handler(self, work: Callable[[Any], Any] | None = None) -> Any:
        """A function that runs once; `work` gets its attempt, and what it gives may have to be awaited."""
        if self.kind == "sync":

            def sync_handler(key: str, attempt: Attempt) -> int:
                self.ran += 1
                return self.ran if work is None else work(attempt)

            return self.semel.once(key="key", operation="pay")(sync_handler)

        async def async_handler(key: str, attempt: AsyncAttempt) -> int:
            self.ran += 1
            return self.ran if work is None else await work(attempt)

        return self.semel.once(key="key", operation="pay")(async_handler)

    def plain(self, value: Any) -> Any:
        """A function without arguments that counts its runs and gives `value`."""
        if self.kind == "sync":

            def sync_plain() -> Any:
                self.ran += 1
                return value

            return sync_plain

        async def async_plain() -> Any:
            self.ran += 1
            return value

        return async_plain


@pytest.fixture(params=["sync", "async"])
def both(request: pytest.FixtureRequest, path: str) -> Both:
    return Both(path, request.param)


def test_a_function_runs_at_every_call(both: Both) -> None:
    async def script(both: Both) -> list[Any]:
        pay = both.handler()
        return [await both.settle(pay("k")) for _ in range(3)]

    assert both.play(script) == [1, 2, 3]


def test_run_says_that_nothing_was_protected(both: Both) -> None:
    async def script(both: Both) -> Any:
        handler = both.plain("v")
        return [await both.settle(both.semel.run("k", handler, operation="pay", fingerprint=None)) for _ in range(2)]

    _, result = both.play(script)
    assert (result.value, result.replayed, result.protected, result.record, both.ran) == ("v", False, False, None, 2)


def test_another_request_under_the_same_key_runs(both: Both) -> None:
    async def script(both: Both) -> None:
        for asked in (1, 2):
            await both.settle(both.semel.run("k", both.plain(1), operation="pay", fingerprint=asked))

    both.play(script)
    assert both.ran == 2


def test_an_error_of_the_handler_leaves_as_it_is(both: Both) -> None:
    def work(_attempt: object) -> Any:
        raise OSError("no")

    async def script(both: Both) -> None:
        pay = both.handler(work)
        for _ in range(2):
            with pytest.raises(OSError, match="no"):
                await both.settle(pay("k"))

    both.play(script)
    assert both.ran == 2


def test_steps_run_plainly(both: Both) -> None:
    async def script(both: Both) -> list[Any]:
        steps = both.plain("stepped")
        pay = both.handler(lambda attempt: attempt.step("first", steps))
        return [await both.settle(pay("k")) for _ in range(2)]

    assert both.play(script) == ["stepped"] * 2
    assert both.ran == 4, "each of two calls runs its handler and its step"


def test_the_attempt_is_there_and_derives_the_same_keys_as_with_a_store(both: Both, tmp_path: Path) -> None:
    def work(attempt: Any) -> Any:
        both.attempts.append((attempt.number, attempt.in_doubt))
        return both.plain(attempt.derive("next"))()

    async def script(both: Both) -> Any:
        return await both.settle(both.handler(work)("k"))

    derived = both.play(script)
    with Semel("memory://") as protected:
        expected = protected.run(
            "k", lambda: protected.current().derive("next"), operation="pay", fingerprint=None
        ).value
    assert (derived, both.attempts) == (expected, [(1, False)])


def test_inside_a_transaction_of_the_caller_rows_are_the_callers_alone(both: Both, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "rows.db", isolation_level=None)
    connection.execute("CREATE TABLE row (number)")

    async def script(both: Both) -> list[Any]:
        connection.execute("BEGIN")
        within = both.semel.within(connection)
        values = []
        for _ in range(2):
            connection.execute("INSERT INTO row VALUES (1)")
            found = await both.settle(within.run("k", both.plain("v"), operation="pay", fingerprint=None))
            values.append((found.value, found.protected))
        connection.execute("COMMIT")
        return values

    try:
        assert both.play(script) == [("v", False)] * 2
        assert connection.execute("SELECT count(*) FROM row").fetchone() == (2,)
    finally:
        connection.close()


def test_a_step_in_a_transaction_of_its_own_runs(both: Both) -> None:
    async def script(both: Both) -> Any:
        steps = both.plain("stepped")
        pay = both.handler(lambda attempt: attempt.step("first", steps, within=object()))
        return await both.settle(pay("k"))

    assert both.play(script) == "stepped"


def test_there_are_no_records(both: Both) -> None:
    async def script(both: Both) -> Any:
        await both.settle(both.handler()("k"))
        swept = await both.settle(both.semel.sweep())
        return await both.settle(both.semel.read("k", operation="pay")), swept.deleted

    assert both.play(script) == (None, 0)


def test_there_is_nothing_to_resolve(both: Both) -> None:
    async def script(both: Both) -> None:
        with pytest.raises(errors.RecordNotFound):
            await both.settle(both.semel.reopen("k", operation="pay", reason="asked"))

    both.play(script)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_one_warning_a_minute(path: str, kind: str) -> None:
    clock, notes = VirtualClock(), Notes()
    both = Both(path, kind, clock=clock, observer=notes)

    async def script(both: Both) -> list[int]:
        counts = []
        pay = both.handler()
        for pause in (0.0, 1.0, 58.5, 0.5, 59.5, 0.5, 3600.0):
            clock.advance(pause)
            await both.settle(pay("k"))
            counts.append(len(notes.warnings()))
        return counts

    assert both.play(script) == [1, 1, 1, 2, 2, 3, 4]
    warning = notes.warnings()[0]
    assert warning.operation == "pay"
    assert "enabled = false" in warning.detail


def test_the_warning_is_logged_as_one(both: Both, caplog: pytest.LogCaptureFixture) -> None:
    async def script(both: Both) -> None:
        pay = both.handler()
        for _ in range(3):
            await both.settle(pay("k"))

    both.play(script)
    lines = [line for line in caplog.records if line.name == "semel" and line.levelno == logging.WARNING]
    assert len(lines) == 1, caplog.text
    assert "switched off" in lines[0].getMessage()


def test_the_environment_switches_off_what_the_file_switches_on(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(path).write_text(f'store = "{NOWHERE}"\nenabled = true\n')
    monkeypatch.setenv("SEMEL_ENABLED", "false")
    with Semel.from_settings(path) as semel:
        assert semel.run("k", lambda: 1, operation="pay", fingerprint=None).protected is False


def test_no_password_is_shown(path: str) -> None:
    Path(path).write_text('store = "postgresql://me:secret@db/x"\nenabled = false\n')
    assert "secret" not in repr(Semel.from_settings(path))


def test_mistakes_in_the_file_are_told_all_the_same(path: str) -> None:
    Path(path).write_text('store = "memory://"\nenabled = false\n[pool]\nsize = 4\n')
    with pytest.raises(errors.UsageError, match="no use for size"):
        Semel.from_settings(path)


def test_limits_and_strictness_hold_all_the_same(path: str) -> None:
    Path(path).write_text(f'store = "{NOWHERE}"\nenabled = false\n[operations]\nstrict = true\n')
    with Semel.from_settings(path) as semel, pytest.raises(errors.UsageError, match="not declared"):
        semel.run("k", lambda: 1, operation="pay", fingerprint=None)
