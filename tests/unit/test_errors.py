"""The error tree: exactly the one that is drawn, with stable codes, and whole after a trip through a process pool."""

import copy
import pickle
import re
from datetime import timedelta
from typing import Any

import pytest

from semel import errors
from semel.errors import SemelError

EVERY = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SemelError)]


def _drawn() -> dict[str, str]:
    """Each class of the drawing with the one it hangs on."""
    parents: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^( {4}[│├└─ ]*)([A-Z]\w+)( {2,}|$)", line)
        if found is None:
            continue
        depth, name = len(found[1]), found[2]
        while path and path[-1][0] >= depth:
            path.pop()
        parents[name] = path[-1][1] if path else "Exception"
        path.append((depth, name))
    return parents


def _made(kind: type[SemelError], **facts: Any) -> SemelError:
    needed = {"reference": "abc"} if issubclass(kind, errors.InDoubt) else {}
    return kind("It did not run.", **needed, **facts)


def test_the_tree_is_the_one_that_is_drawn() -> None:
    assert {kind.__name__: kind.__bases__[0].__name__ for kind in EVERY} == _drawn()


def test_the_drawing_was_read() -> None:
    assert len(_drawn()) == 31


def test_no_class_has_two_parents_in_the_tree() -> None:
    parents = {kind.__name__: [base for base in kind.__bases__ if issubclass(base, SemelError)] for kind in EVERY}
    assert [name for name, found in parents.items() if len(found) > 1] == []


def test_every_code_is_its_own() -> None:
    codes = [kind.code for kind in EVERY]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", EVERY)
def test_every_class_has_a_code_of_its_own_and_says_what_it_means(kind: type[SemelError]) -> None:
    assert "code" in vars(kind)
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code)
    assert (kind.__doc__ or "").rstrip().endswith(".")


@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind.__name__ not in ("SemelError", "UsageError")])
def test_the_code_is_the_name(kind: type[SemelError]) -> None:
    assert kind.code == re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__).lower()


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])  # noqa: S301
def test_an_error_survives_the_way_through_a_process_pool(kind: type[SemelError], again: Any) -> None:
    error = _made(kind, count=3)
    twin = again(error)
    assert type(twin) is kind
    assert str(twin) == str(error) == "It did not run."
    assert vars(twin) == vars(error)


@pytest.mark.parametrize("kind", EVERY)
def test_what_the_message_says_can_be_read_without_parsing(kind: type[SemelError]) -> None:
    error = _made(kind, subject="o-1")
    assert error.message == "It did not run."
    assert error.subject == "o-1"  # type: ignore[attr-defined]  # facts are attributes
    assert error.facts["subject"] == "o-1"


@pytest.mark.parametrize("kind", [kind for kind in EVERY if issubclass(kind, errors.TryLater)])
def test_whoever_may_try_later_is_told_when(kind: type[errors.TryLater]) -> None:
    assert kind("Later.").retry_after == timedelta(seconds=1)
    assert kind("Later.", retry_after=timedelta(seconds=7.5)).retry_after == timedelta(seconds=7.5)


def test_particular_errors_carry_particular_facts() -> None:
    assert errors.StoreUnavailable("Gone.").ran is False
    assert errors.StoreUnavailable("Gone.", ran=True).ran is True
    assert errors.InDoubt("Unknown.", reference="abc").reference == "abc"
    assert errors.InDoubt("Unknown.", reference="abc").retry_after is None
    failed = errors.FailedBefore("Failed.", error_type="ValueError", error_message="no")
    assert (failed.error_type, failed.error_message) == ("ValueError", "no")


def test_a_doubt_always_names_its_record() -> None:
    with pytest.raises(TypeError, match="reference"):
        errors.InDoubt("Unknown.")  # type: ignore[call-arg]  # that it is needed is the point
