"""Every framework with an engine that a settings file made, over real sockets: switched off, and with few handlers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
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


def test_what_the_file_declares_of_a_route_counts_and_is_told_to_clients(
    start: Start, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "semel.toml"
    file.write_text(
        f'store = "sqlite:///{tmp_path / "records.db"}"\n[policy]\nkeep_for = "P2D"\n'
        f'[operations."POST /echo"]\nkeep_for = "P90D"\n'
    )
    site = start(name, file=file)
    asker, key = Asker(site), new_key()
    before = datetime.now(UTC)
    for path, days in (("/echo", 90), ("/binary", 2)):
        _, replay = (asker.ask(path, key) for _ in range(2))
        expires = parsedate_to_datetime(replay.headers["idempotency-expires"])
        assert timedelta(days=days, minutes=-1) < expires - before < timedelta(days=days, minutes=5), path
    listed = site.client.get("/.well-known/idempotency-policy").json()["routes"]
    told = {route["path"]: route["retentionSeconds"] for route in listed if "POST" in route["methods"]}
    assert told.pop("/echo") == 90 * 86_400, listed
    assert 90 * 86_400 not in told.values(), listed
