"""No command shows a password that its URL holds, whether the URL is right or wrong."""

import pytest

from tests.cli.conftest import Run
from tests.unit.stores.test_passwords import ALL, PASSWORD


@pytest.mark.parametrize("url", ALL.values(), ids=ALL.keys())
def test_a_command_that_fails_shows_no_password(call: Run, url: str) -> None:
    done = call("list", url)
    assert done.returncode != 0
    assert PASSWORD not in done.stdout + done.stderr


@pytest.mark.parametrize("url", ALL.values(), ids=ALL.keys())
def test_the_environment_is_not_shown_either(call: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMEL_URL", url)
    monkeypatch.setenv("SEMEL_CACHE", url)
    for words in (("doctor",), ("sweep",), ("list", "--help")):
        done = call(*words)
        assert PASSWORD not in done.stdout + done.stderr, words
