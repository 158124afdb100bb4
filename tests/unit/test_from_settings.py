"""Engines that a settings file makes: which policy wins, what a strict file refuses, and what is handed on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from semel import AsyncSemel, DidNotHappen, Policy, Semel, errors
from semel.batch import Batches
from semel.engine.engine import engine_of
from semel.settings import read_settings

HOUR = timedelta(hours=1)
FILE = """
store = "memory://"
[policy]
keep_for = "P2D"
lease_for = "PT1M"
[operations.pay]
keep_for = "P90D"
[operations.refund]
[operations."*"]
keep_for = "P7D"
wait_for = "PT3S"
"""
Keeping = Callable[..., timedelta]


def file_of(folder: Path, text: str = FILE) -> str:
    path = folder / "semel.toml"
    path.write_text(text)
    return str(path)


def kept_by_run(path: str, operation: str, policy: Policy | None) -> timedelta:
    with Semel.from_settings(path) as semel:
        record = semel.run("k", lambda: 1, operation=operation, fingerprint=None, policy=policy).record
        assert record is not None
        return record.expires_at - record.created_at


def kept_by_async_run(path: str, operation: str, policy: Policy | None) -> timedelta:
    async def one() -> int:
        return 1

    async def main() -> timedelta:
        async with AsyncSemel.from_settings(path) as semel:
            record = (await semel.run("k", one, operation=operation, fingerprint=None, policy=policy)).record
            assert record is not None
            return record.expires_at - record.created_at

    return asyncio.run(main())


def kept_by_function(path: str, operation: str, policy: Policy | None) -> timedelta:
    with Semel.from_settings(path) as semel:

        @semel.once(key="key", operation=operation, policy=policy)
        def handler(key: str) -> int:
            return 1

        record = handler.result("k").record
        assert record is not None
        return record.expires_at - record.created_at


def kept_by_field(path: str, operation: str, policy: Policy | None) -> timedelta:
    with Semel.from_settings(path) as semel:
        changes: dict[str, Any] = {} if policy is None else {"keep_for": policy.keep_for}

        @semel.once(key="key", operation=operation, **changes)
        def handler(key: str) -> int:
            return 1

        record = handler.result("k").record
        assert record is not None
        return record.expires_at - record.created_at


@pytest.mark.parametrize("kept", [kept_by_run, kept_by_async_run, kept_by_function, kept_by_field])
@pytest.mark.parametrize(
    ("operation", "policy", "expected"),
    [
        pytest.param("other", None, timedelta(days=2), id="not declared, code says nothing: [policy]"),
        pytest.param("other", Policy(keep_for=HOUR), HOUR, id="not declared: the code"),
        pytest.param("refund", None, timedelta(days=7), id="declared, code says nothing: *"),
        pytest.param("refund", Policy(keep_for=HOUR), HOUR, id="declared without the field: the code"),
        pytest.param("pay", None, timedelta(days=90), id="declared with the field, code says nothing"),
        pytest.param("pay", Policy(keep_for=HOUR), timedelta(days=90), id="declared with the field wins over the code"),
    ],
)
def test_the_narrower_word_wins(
    tmp_path: Path, kept: Keeping, operation: str, policy: Policy | None, expected: timedelta
) -> None:
    assert kept(file_of(tmp_path), operation, policy) == expected


def test_a_field_that_the_code_sets_to_the_default_wins_over_the_common_table(tmp_path: Path) -> None:
    with Semel.from_settings(file_of(tmp_path)) as semel:

        @semel.once(key="key", operation="refund", keep_for=timedelta(days=2))
        def refund(key: str) -> int:
            return 1

        record = refund.result("k").record
        assert record is not None
        assert record.expires_at - record.created_at == timedelta(days=2)


def test_the_policy_of_an_operation_is_worked_out_once(tmp_path: Path) -> None:
    with Semel.from_settings(file_of(tmp_path)) as semel:
        for key in ("a", "b"):
            semel.run(key, lambda: 1, operation="pay", fingerprint=None)
        known = engine_of(semel).known["pay"]
        request = engine_of(semel).request(
            "c", lambda: 1, operation="pay", scope="s", asked=None, policy=None, about=None, returns=int
        )
        assert request.terms is known.terms


def test_a_file_may_end_doubts_in_another_way_than_the_code(tmp_path: Path) -> None:
    text = 'store = "memory://"\n[operations.pay]\nin_doubt = "hold"\n'
    with Semel.from_settings(file_of(tmp_path, text)) as semel:
        asked: list[object] = []

        def hook(attempt: object) -> DidNotHappen:
            asked.append(attempt)
            return DidNotHappen()

        @semel.once(key="key", operation="pay", in_doubt="reconcile", reconcile=hook)
        def pay(key: str) -> None:
            raise OSError(key)

        with pytest.raises(OSError, match="k"):
            pay("k")
        with pytest.raises(errors.InDoubt):
            pay("k")
        assert asked == [], "the hook was asked although the file holds what is in doubt"


def test_a_file_cannot_ask_a_hook_that_the_code_does_not_have(tmp_path: Path) -> None:
    text = 'store = "memory://"\n[operations.pay]\nin_doubt = "reconcile"\n'
    with (
        Semel.from_settings(file_of(tmp_path, text)) as semel,
        pytest.raises(errors.PolicyInvalid, match="needs reconcile="),
    ):
        semel.run("k", lambda: 1, operation="pay", fingerprint=None)


STRICT = 'store = "memory://"\n[operations]\nstrict = true\n[operations.pay]\n'


def test_a_strict_file_refuses_a_call_that_is_not_declared(tmp_path: Path) -> None:
    ran: list[int] = []
    with Semel.from_settings(file_of(tmp_path, STRICT)) as semel:
        with pytest.raises(
            errors.UsageError, match=r"'refund' is not declared; nothing ran\. .*\[operations\.\"refund\"\]"
        ):
            semel.run("k", lambda: ran.append(1), operation="refund", fingerprint=None)
        semel.run("k", lambda: ran.append(2), operation="pay", fingerprint=None)
    assert ran == [2]


def test_a_strict_file_refuses_a_call_of_an_async_engine(tmp_path: Path) -> None:
    async def handler() -> None:
        raise AssertionError("it ran")

    async def main() -> None:
        async with AsyncSemel.from_settings(file_of(tmp_path, STRICT)) as semel:
            with pytest.raises(errors.UsageError, match="not declared"):
                await semel.run("k", handler, operation="refund", fingerprint=None)

    asyncio.run(main())


def test_a_strict_file_refuses_a_function_when_it_is_decorated(tmp_path: Path) -> None:
    with Semel.from_settings(file_of(tmp_path, STRICT)) as semel:
        with pytest.raises(errors.UsageError, match="not declared"):

            @semel.once(key="key", operation="refund")
            def refund(key: str) -> int:
                return 1

        @semel.once(key="key", operation="pay")
        def pay(key: str) -> int:
            return 1

        assert pay("k") == 1


def test_a_strict_file_refuses_nothing_that_semel_does_for_itself(tmp_path: Path) -> None:
    with Semel.from_settings(file_of(tmp_path, STRICT)) as semel:
        assert Batches(semel).start("b", [1, 2], operation="pay").run(lambda: None).completed == 2
        other = Batches(semel).start("other", [1, 2], operation="refund")
        with pytest.raises(errors.UsageError, match="'refund' is not declared; nothing ran"):
            other.run(lambda: None)


def test_limits_reach_the_engine(tmp_path: Path) -> None:
    text = 'store = "memory://"\n[limits]\nmax_handlers = 7\nmax_waiting = 8\nopen_after = 9\nslow_call = "PT2S"\n'
    limits = engine_of(Semel.from_settings(file_of(tmp_path, text))).limits
    found = (limits.max_handlers, limits.waiters, limits.open_after, limits.slow_call)
    assert found == (7, 8, 9, timedelta(seconds=2))


def test_a_limit_out_of_bounds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="max_handlers must be a whole number from 1 up"):
        Semel.from_settings(file_of(tmp_path, 'store = "memory://"\n[limits]\nmax_handlers = 0\n'))


def test_settings_that_were_read_are_taken(tmp_path: Path) -> None:
    with Semel.from_settings(read_settings(file_of(tmp_path), {})) as semel:
        assert semel.run("k", lambda: 1, operation="pay", fingerprint=None).value == 1


def test_without_a_path_the_variable_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMEL_SETTINGS", file_of(tmp_path))
    assert engine_of(Semel.from_settings()).policy.keep_for == timedelta(days=2)


def test_without_a_path_the_file_in_the_working_directory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert engine_of(AsyncSemel.from_settings()).policy.keep_for == timedelta(days=2)


def test_without_any_file_the_environment_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMEL_STORE", "memory://")
    monkeypatch.setenv("SEMEL_POLICY__KEEP_FOR", "PT1H")
    assert engine_of(Semel.from_settings()).policy.keep_for == HOUR


def test_without_a_file_and_a_store_nothing_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.UsageError, match="No store is named in the environment; nothing was opened"):
        Semel.from_settings()


def test_the_path_of_a_file_is_a_store(tmp_path: Path) -> None:
    with Semel.from_settings(file_of(tmp_path, f'store = "{tmp_path / "records.db"}"\n')) as semel:
        semel.run("k", lambda: 1, operation="pay", fingerprint=None)
    assert (tmp_path / "records.db").exists()


@pytest.mark.parametrize(
    ("store", "line", "message"),
    [
        ("memory://", "size = 4", "memory:// has no use for size of a pool: it lives in this process"),
        ("sqlite:///semel.db", "lifetime = 60", "sqlite:// has no use for lifetime of a pool: it is a file"),
        ("semel.db", "min_idle = 1", "sqlite:// has no use for min_idle"),
        ("redis://localhost", "size = 4", "redis:// has no use for size .* It has connect_timeout, idle_for"),
        ("rediss://localhost", "min_idle = 4", "redis:// has no use for min_idle"),
        ("dynamodb://records", "idle_for = 60", "dynamodb:// has no use for idle_for .*: the SDK keeps"),
        ("postgresql://localhost/x", "size = 0", "pool_size must be a whole number from 1"),
    ],
)
def test_a_pool_setting_without_use_is_refused_by_name(tmp_path: Path, store: str, line: str, message: str) -> None:
    with pytest.raises(errors.UsageError, match=message) as refused:
        Semel.from_settings(file_of(tmp_path, f'store = "{store}"\n[pool]\n{line}\n'))
    assert "nothing was opened" in str(refused.value)


ALL = """
[pool]
size = 7
min_idle = 2
idle_for = "PT1M"
lifetime = "PT30M"
connect_timeout = "PT3S"
statement_timeout = 5
"""


@pytest.mark.parametrize("store", ["postgresql://localhost/x", "mysql://localhost/x"])
def test_pool_settings_reach_a_server(tmp_path: Path, store: str) -> None:
    engine = engine_of(Semel.from_settings(file_of(tmp_path, f'store = "{store}"\n{ALL}')))
    given = engine.store._context.settings  # type: ignore[attr-defined]
    found = (given.pool_size, given.min_idle, given.idle_for, given.lifetime, given.connect_timeout)
    assert (*found, given.statement_timeout) == (7, 2, 60.0, 1800.0, 3.0, 5.0)


def test_pool_settings_reach_redis(tmp_path: Path) -> None:
    text = (
        'store = "redis://localhost"\n[pool]\nidle_for = 60\nlifetime = 90\nconnect_timeout = 3\n'
        "statement_timeout = 5\n"
    )
    engine = engine_of(Semel.from_settings(file_of(tmp_path, text)))
    given = engine.store._context.settings  # type: ignore[attr-defined]
    assert (given.idle_for, given.lifetime, given.connect_timeout, given.timeout) == (60.0, 90.0, 3.0, 5.0)


def test_pool_settings_reach_dynamodb(tmp_path: Path) -> None:
    text = 'store = "dynamodb://records"\n[pool]\nsize = 7\nconnect_timeout = 3\nstatement_timeout = 4\n'
    engine = engine_of(Semel.from_settings(file_of(tmp_path, text)))
    given = engine.store._context.settings  # type: ignore[attr-defined]
    assert (given.pool_size, given.connect_timeout, given.read_timeout) == (7, 3.0, 4.0)
