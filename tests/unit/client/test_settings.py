"""Settings of a client: checked when it is made."""

from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from semel.client.settings import Given, Settings, split
from semel.errors import UsageError


@pytest.mark.parametrize(
    "wrong",
    [
        {"methods": "POST"},
        {"methods": ["GET"]},
        {"methods": ["post", "head"]},
        {"keep_headers": "X-Tenant"},
        {"keep_headers": ["authorization"]},
        {"keep_headers": ["Cookie"]},
        {"tries": 0},
        {"budget": -1},
        {"max_body": -1},
        {"give_up_after": timedelta(0)},
        {"first_pause": timedelta(0)},
        {"longest_pause": timedelta(seconds=-1)},
        {"retention": timedelta(0)},
        {"keep_for": timedelta(0)},
        {"lease_for": timedelta(0)},
    ],
    ids=repr,
)
def test_what_cannot_be_kept_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="nothing"):
        Settings(**wrong)


def test_the_written_form_has_exactly_the_settings_that_there_are() -> None:
    assert set(Given.__annotations__) == {field.name for field in fields(Settings)}


def test_every_setting_is_described() -> None:
    described = Settings.__doc__ or ""
    assert [field.name for field in fields(Settings) if f"        {field.name}: " not in described] == []


def test_settings_of_others_are_told_apart() -> None:
    assert split({"tries": 3, "timeout": 1.0}, {"timeout"}) == ({"tries": 3}, {"timeout": 1.0})


def test_methods_and_headers_are_compared_without_regard_to_case() -> None:
    settings = Settings(methods=["purge"], keep_headers=["X-Tenant"])
    assert settings.keyed("Purge")
    assert not settings.keyed("POST")
    assert settings.keep_headers == frozenset({"x-tenant"})


def test_nobody_asks_again_for_what_has_no_name_so_it_is_kept_shortly() -> None:
    settings = Settings(keep_for=timedelta(hours=2))
    kept = [settings.policy(named=named, final=ValueError, nothing=OSError).keep_for for named in (True, False)]
    assert kept == [timedelta(hours=2), timedelta(minutes=1)]


def test_a_lease_is_renewed_for_longer_than_patience_lasts() -> None:
    settings = Settings(give_up_after=timedelta(minutes=9))
    assert settings.policy(named=True, final=ValueError, nothing=OSError).max_runtime > timedelta(minutes=9)
