"""Records of requests say what they are about, in each framework by `about=` of its routes, views or dependencies."""

from __future__ import annotations

import pytest

from semel import Semel
from tests.http.asking import Asker, new_key

pytestmark = [pytest.mark.slow, pytest.mark.covering]


def test_a_record_is_found_by_what_the_rule_of_its_route_says(asker: Asker) -> None:
    subject, amount = new_key(), f'"{new_key()}"'
    assert asker.ask("/found", new_key(), body=amount.encode(), headers=(("X-About", subject),)).status_code == 201
    with Semel(asker.running.store) as semel:
        (record,) = semel.records(subject=subject, business_key=amount, tag=("method", "POST"))
        assert record.key.operation == "POST /found"
        assert semel.count(subject=subject, scope="nobody") == 0


def test_nobody_is_named_as_the_requester_unless_the_rule_does(asker: Asker) -> None:
    subject = new_key()
    asker.ask("/found", new_key(), headers=(("X-About", subject),))
    with Semel(asker.running.store) as semel:
        (record,) = semel.records(subject=subject)
    assert record.about.requester is None


def test_a_rule_may_say_nothing(asker: Asker) -> None:
    key = new_key()
    assert asker.effects_of(("/found", key), ("/found", key)) == 1


def test_a_duplicate_changes_nothing_of_what_a_record_is_about(asker: Asker) -> None:
    key, subject = new_key(), new_key()
    asker.ask("/found", key, headers=(("X-About", subject),))
    asker.ask("/found", key, headers=(("X-About", f"not {subject}"),))
    with Semel(asker.running.store) as semel:
        assert (semel.count(subject=subject), semel.count(subject=f"not {subject}")) == (1, 0)


@pytest.mark.parametrize("said", ["a number", "an unknown name"])
def test_a_rule_that_says_what_no_record_can_be_about_fails_before_anything_runs(asker: Asker, said: str) -> None:
    key, before = new_key(), asker.running.effects()
    assert asker.ask("/found", key, headers=(("X-About", said),)).status_code == 500
    assert asker.running.effects() == before
    assert asker.ask("/found", key).status_code == 201, "the key was claimed by a request that never ran"
