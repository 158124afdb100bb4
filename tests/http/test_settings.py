"""Every framework with an engine that a settings file made, over real sockets: switched off, and with few handlers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.http.asking import Asker, new_key
from tests.http.conftest import Start
from tests.http.sites import SITES

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", SITES)]

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=1"
FULL = "urn:semel:problem:too-many-handlers"


def test_switched_off_every_request_runs_and_nothing_is_replayed(start: Start, name: str, tmp_path: Path) -> None:
    file = tmp_path / "semel.toml"
    file.write_text(f'store = "{NOWHERE}"\nenabled = false\n')
    site = start(name, file=file)
    asker, key = Asker(site), new_key()
    answers = [asker.ask("/orders", key) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201] * 3, site.log
    assert {answer.headers.get("idempotency-replayed") for answer in answers} == {None}
    assert site.effects() == 3
    assert asker.ask("/derived", key).status_code == 200, site.log
    assert asker.ask("/stream", key).status_code == 200, site.log
    assert site.log.count("switched off") == 1, "one warning a minute, of the one process"


def test_one_handler_too_many_is_503_with_retry_after_and_nothing_runs(start: Start, name: str, tmp_path: Path) -> None:
    file = tmp_path / "semel.toml"
    file.write_text(f'store = "sqlite:///{tmp_path / "records.db"}"\n[limits]\nmax_handlers = 1\n')
    site = start(name, file=file)
    asker, key = Asker(site), new_key()
    first = asker.later("/slow", new_key())
    visitor = site.gate.visitor()
    refused = asker.ask("/orders", key)
    visitor.go()
    assert (refused.status_code, refused.json()["type"]) == (503, FULL), site.log
    assert int(refused.headers["retry-after"]) >= 1
    assert (first.result().status_code, site.effects()) == (201, 1)
    assert (asker.ask("/orders", key).status_code, site.effects()) == (201, 2)
