"""The policy: the documented defaults, and a sentence for everything that cannot be kept."""

import asyncio
import copy
import dataclasses
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from semel import DidNotHappen, Policy, errors
from semel.core.policy import microseconds
from semel.errors import PolicyInvalid


def _hook(_attempt: object) -> DidNotHappen:
    return DidNotHappen()


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert dataclasses.asdict(Policy()) == {
        "keep_for": timedelta(hours=24),
        "lease_for": timedelta(seconds=30),
        "max_runtime": timedelta(minutes=15),
        "when_running": "wait",
        "wait_for": timedelta(seconds=10),
        "final_errors": (),
        "retry_errors": (),
        "max_attempts": None,
        "in_doubt": "rerun",
        "reconcile": None,
        "reconcile_after": timedelta(seconds=30),
        "store_down": "refuse",
        "max_result": 1024 * 1024,
        "redact": (),
    }


@pytest.mark.parametrize(
    "given",
    [
        {"keep_for": timedelta(microseconds=1)},
        {"keep_for": timedelta(days=36_500)},
        {"wait_for": timedelta(0)},
        {"reconcile_after": timedelta(0)},
        {"when_running": "reject"},
        {"in_doubt": "hold"},
        {"in_doubt": "reconcile", "reconcile": _hook},
        {"store_down": "run"},
        {"max_attempts": 1},
        {"max_result": 1},
        {"redact": ("card.number", "items.*.pan", "*")},
        {"final_errors": (ValueError,), "retry_errors": (OSError,)},
        {"final_errors": (Exception,)},
        {"final_errors": (LookupError,), "retry_errors": (KeyError,)},
    ],
    ids=" ".join,
)
def test_what_can_be_kept_is_taken(given: dict[str, Any]) -> None:
    policy = Policy(**given)
    assert {name: getattr(policy, name) for name in given} == given


@pytest.mark.parametrize("name", ["keep_for", "lease_for", "max_runtime", "wait_for", "reconcile_after"])
@pytest.mark.parametrize(
    "value",
    [
        timedelta(microseconds=-1),
        timedelta(days=-1),
        timedelta(days=36_501),
        timedelta.max,
        -1,
        10**400,
        "30s",
        None,
        True,
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_duration_is_not_negative_or_endless(name: str, value: object) -> None:
    _refused(name, **{name: value})


@pytest.mark.parametrize("name", ["keep_for", "lease_for", "max_runtime"])
def test_what_has_to_last_may_not_be_zero(name: str) -> None:
    _refused(name, **{name: timedelta(0)})


@pytest.mark.parametrize("name", ["when_running", "in_doubt", "store_down"])
@pytest.mark.parametrize("value", ["", "wiat", "RERUN", "wait ", None, True, 0, b"wait", ["wait"]], ids=repr)
def test_an_unknown_word_is_answered_with_the_known_ones(name: str, value: object) -> None:
    assert "must be one of" in _refused(name, **{name: value})


@pytest.mark.parametrize("name", ["max_attempts", "max_result"])
@pytest.mark.parametrize("value", [0, -1, True, False, 1.0, "1", timedelta(1)], ids=repr)
def test_a_count_is_a_whole_number_from_one_up(name: str, value: object) -> None:
    _refused(name, **{name: value})


def test_a_limit_on_results_cannot_be_left_out() -> None:
    _refused("max_result", max_result=None)


@pytest.mark.parametrize("name", ["final_errors", "retry_errors"])
@pytest.mark.parametrize(
    "value",
    [
        (int,),
        ("ValueError",),
        "ValueError",
        (ValueError("a"),),
        None,
        5,
        [None],
        (KeyboardInterrupt,),
        (SystemExit,),
        (BaseException,),
        (asyncio.CancelledError,),
        asyncio.CancelledError,
        (ValueError, GeneratorExit),
        (errors.SemelError,),
        (errors.LeaseLost,),
        errors.StoreUnavailable,
    ],
    ids=repr,
)
def test_errors_are_exception_classes_of_the_effect(name: str, value: object) -> None:
    _refused(name, **{name: value})


def test_the_refusal_of_an_interrupt_says_why() -> None:
    _refused("after an interrupt it is unknown whether the effect happened", final_errors=(KeyboardInterrupt,))


@pytest.mark.parametrize("name", ["final_errors", "retry_errors"])
@pytest.mark.parametrize("value", [ValueError, [ValueError], {ValueError}, (ValueError,)], ids=repr)
def test_errors_may_be_one_class_or_several(name: str, value: Any) -> None:
    assert getattr(Policy(**{name: value}), name) == (ValueError,)


def test_an_error_cannot_mean_two_things() -> None:
    _refused("ValueError", final_errors=ValueError, retry_errors=(OSError, ValueError))


def test_reconciling_needs_a_hook() -> None:
    _refused("reconcile=", in_doubt="reconcile")


@pytest.mark.parametrize("in_doubt", ["rerun", "hold"])
def test_a_hook_nobody_would_ask_is_refused(in_doubt: str) -> None:
    _refused("reconcile=", in_doubt=in_doubt, reconcile=_hook)


@pytest.mark.parametrize("hook", ["ask", 5, DidNotHappen()], ids=repr)
def test_a_hook_must_be_callable(hook: object) -> None:
    _refused("reconcile", in_doubt="reconcile", reconcile=hook)


def test_replacing_gives_a_checked_copy() -> None:
    policy = Policy(max_attempts=3)
    changed = policy.replace(lease_for=timedelta(seconds=5))
    assert (changed.lease_for, changed.max_attempts) == (timedelta(seconds=5), 3)
    assert policy.lease_for == timedelta(seconds=30)
    with pytest.raises(PolicyInvalid):
        policy.replace(lease_for=timedelta(0))


def test_replacing_nothing_gives_the_same_policy() -> None:
    policy = Policy()
    assert policy.replace() is policy


def test_replacing_what_there_is_not_says_what_there_is() -> None:
    with pytest.raises(PolicyInvalid, match=r"has no setting 'leasefor'; nothing ran\. Did you mean 'lease_for'"):
        Policy().replace(leasefor=timedelta(1))  # type: ignore[call-arg]  # the mistake this is about


def test_a_policy_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().lease_for = timedelta(1)  # type: ignore[misc]  # that it cannot be is the point


@pytest.mark.parametrize("again", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])  # noqa: S301
def test_a_policy_survives_being_copied(again: Callable[[Policy], Policy]) -> None:
    policy = Policy(in_doubt="reconcile", reconcile=_hook, final_errors=ValueError)  # type: ignore[arg-type]
    assert again(policy) == policy


def test_equal_policies_are_equal() -> None:
    assert Policy(max_attempts=3) == Policy().replace(max_attempts=3)
    assert hash(Policy(max_attempts=3)) == hash(Policy(max_attempts=3))


@pytest.mark.parametrize(("duration", "expected"), [(timedelta(seconds=1), 1_000_000), (timedelta.resolution, 1)])
def test_stores_count_in_microseconds(duration: timedelta, expected: int) -> None:
    assert microseconds(duration) == expected


def _refused(named: str, **given: object) -> str:
    with pytest.raises(PolicyInvalid, match="nothing ran") as caught:
        Policy(**given)  # type: ignore[arg-type]  # values that do not fit are the point
    message = str(caught.value)
    assert named in message
    assert message.endswith(".")
    return message
