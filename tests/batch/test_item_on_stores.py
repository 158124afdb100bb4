"""What holds for items by themselves holds on real databases, for threads and for event loops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from semel.stores.urls import store_from_url
from tests.batch.desk import KINDS, Desk
from tests.batch.test_item import (
    test_a_failed_item_is_counted_and_tried_as_often_as_allowed,
    test_a_failed_item_runs_again_after_a_retry,
    test_a_page_that_a_crash_left_is_finished_by_a_run,
    test_a_page_that_a_crash_left_is_finished_by_whoever_asks_next,
    test_a_run_of_the_batch_does_not_repeat_what_was_done_by_itself,
    test_a_skipped_item_raises_skip_every_time_and_is_counted,
    test_an_item_runs_once_and_repeats_give_what_it_gave,
    test_an_item_that_a_person_has_reopened_runs_again,
    test_an_item_that_the_batch_does_not_have_is_refused,
    test_items_by_themselves_and_pages_that_commit_as_a_whole_exclude_each_other,
    test_nothing_runs_of_a_cancelled_batch,
    test_nothing_runs_of_a_paused_batch_until_it_is_resumed,
    test_the_batch_is_completed_once_all_items_are_done_in_any_order,
)
from tests.effort import FULL
from tests.servers.records import emptied

__all__ = [
    "test_a_failed_item_is_counted_and_tried_as_often_as_allowed",
    "test_a_failed_item_runs_again_after_a_retry",
    "test_a_page_that_a_crash_left_is_finished_by_a_run",
    "test_a_page_that_a_crash_left_is_finished_by_whoever_asks_next",
    "test_a_run_of_the_batch_does_not_repeat_what_was_done_by_itself",
    "test_a_skipped_item_raises_skip_every_time_and_is_counted",
    "test_an_item_runs_once_and_repeats_give_what_it_gave",
    "test_an_item_that_a_person_has_reopened_runs_again",
    "test_an_item_that_the_batch_does_not_have_is_refused",
    "test_items_by_themselves_and_pages_that_commit_as_a_whole_exclude_each_other",
    "test_nothing_runs_of_a_cancelled_batch",
    "test_nothing_runs_of_a_paused_batch_until_it_is_resumed",
    "test_the_batch_is_completed_once_all_items_are_done_in_any_order",
]
pytestmark = [pytest.mark.slow, pytest.mark.anyio]


@pytest.fixture(params=["sqlite", "postgresql", *(["mariadb"] if FULL else [])])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'semel.db'}"
    databases = request.getfixturevalue(request.param)
    return emptied(databases, databases.url)


@pytest.fixture(params=KINDS)
async def desk(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Desk]:
    made = Desk(request.param, lambda: store_from_url(url))
    yield made
    await made.close()
