"""Bad input: a typed error that says nothing ran, before anything is sent to the store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from semel.errors import KeyInvalid, KeyMissing, PolicyInvalid, UsageError
from semel.testing.contract.suite import Contract, only_by_run
from semel.testing.contract.world import World

BAD_KEYS: list[tuple[Any, type[UsageError]]] = [
    (None, KeyMissing),
    ("", KeyInvalid),
    ((), KeyInvalid),
    (["a"], KeyInvalid),
    (object(), KeyInvalid),
    ("x" * 256, KeyInvalid),
    ("é" * 128, KeyInvalid),
    ("line\nbreak", KeyInvalid),
    ("nul\x00", KeyInvalid),
    ("\ud800", KeyInvalid),
    (("a", ["b"]), KeyInvalid),
    (("a", object()), KeyInvalid),
    ((float("nan"),), KeyInvalid),
]
# A decorated function takes such an argument as a key, or scope, of one part; and it has a name of its own.
BAD_KEYS_OF_RUN: list[Any] = [1, 1.5, b"bytes"]
BAD_SETTINGS_OF_RUN: dict[str, dict[str, Any]] = {
    "no operation": {"operation": None},
    "scope of another type": {"scope": 7},
}
BAD_SETTINGS: dict[str, dict[str, Any]] = {
    "empty operation": {"operation": ""},
    "operation of another type": {"operation": 7},
    "long operation": {"operation": "x" * 256},
    "no scope": {"scope": None},
    "empty scope": {"scope": ""},
    "about something unknown": {"about": {"colour": "red"}},
    "about of another type": {"about": {"subject": 7}},
    "tag of another type": {"about": {"tags": {"till": 7}}},
    "policy as a dictionary": {"policy": {"keep_for": 1}},
    "policy as a word": {"policy": "hold"},
    "fingerprint of an object": {"fingerprint": object()},
    "fingerprint of no number": {"fingerprint": {"x": float("nan")}},
    "result that cannot be replayed": {"returns": Callable[[], int]},
}
BAD_POLICIES: list[dict[str, Any]] = [
    {"keep_for": timedelta(0)},
    {"keep_for": timedelta(seconds=-1)},
    {"keep_for": 3600},
    {"keep_for": timedelta(days=365 * 101)},
    {"lease_for": timedelta(0)},
    {"lease_for": timedelta(seconds=-30)},
    {"max_runtime": timedelta(0)},
    {"wait_for": timedelta(seconds=-1)},
    {"reconcile_after": timedelta(seconds=-1)},
    {"when_running": "queue"},
    {"in_doubt": "ignore"},
    {"in_doubt": "reconcile"},
    {"in_doubt": "reconcile", "reconcile": "hook"},
    {"reconcile": print},
    {"store_down": "retry"},
    {"max_attempts": 0},
    {"max_attempts": True},
    {"max_attempts": 1.5},
    {"max_result": 0},
    {"final_errors": ("ValueError",)},
    {"retry_errors": (int,)},
    {"final_errors": (UsageError,)},
]


class InputContract(Contract):
    """Nothing runs and nothing is stored."""

    @pytest.mark.parametrize(("key", "kind"), BAD_KEYS, ids=lambda part: repr(part).split(" object at")[0][:20])
    async def test_a_bad_key_is_refused(self, world: World, key: Any, kind: type[UsageError]) -> None:
        door = world.door()
        error = await door.error(key)
        assert type(error) is kind
        assert world.ran == await door.keys() == []

    @only_by_run
    @pytest.mark.parametrize("key", BAD_KEYS_OF_RUN, ids=repr)
    async def test_a_bare_value_is_no_key_of_run(self, world: World, key: Any) -> None:
        door = world.door()
        error = await door.error(key)
        assert type(error) is KeyInvalid
        assert "othing ran" in str(error)
        assert world.ran == await door.keys() == []

    @only_by_run
    @pytest.mark.parametrize("settings", BAD_SETTINGS_OF_RUN.values(), ids=BAD_SETTINGS_OF_RUN.keys())
    async def test_a_bad_setting_of_run_is_refused(self, world: World, settings: dict[str, Any]) -> None:
        door = world.door()
        error = await door.error(**settings)
        assert isinstance(error, UsageError)
        assert world.ran == await door.keys() == []

    @pytest.mark.parametrize("settings", BAD_SETTINGS.values(), ids=BAD_SETTINGS.keys())
    async def test_a_bad_setting_is_refused(self, world: World, settings: dict[str, Any]) -> None:
        door = world.door()
        error = await door.error(**settings)
        assert isinstance(error, UsageError)
        assert world.ran == await door.keys() == []

    @pytest.mark.parametrize("settings", BAD_POLICIES, ids=str)
    async def test_a_bad_policy_is_refused(self, world: World, settings: dict[str, Any]) -> None:
        door = world.door()
        with pytest.raises(PolicyInvalid) as caught:
            door.once(key="order", **settings)(world.returning("value"))
        assert "nothing ran" in caught.value.message

    async def test_a_key_of_the_longest_length_is_accepted(self, world: World) -> None:
        assert await world.door().value("x" * 255) == "value"

    async def test_every_refusal_says_that_nothing_ran(self, world: World) -> None:
        door = world.door()
        errors = [await door.error(key) for key, _ in BAD_KEYS]
        assert [error for error in errors if "othing ran" not in str(error)] == []

    @only_by_run
    async def test_a_handler_that_cannot_be_called_is_refused(self, world: World) -> None:
        engine = world.door().engine
        call = world.start(lambda: engine.run("k", "handler", operation="pay"))
        await world.ended(call)
        assert isinstance(call.error, UsageError)

    async def test_reading_a_key_needs_its_operation(self, world: World) -> None:
        with pytest.raises(UsageError):
            await world.door().find("k", operation=None)
