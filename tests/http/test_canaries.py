"""What is written down: unique strings are sent, and searched for in the files of the store and in the log.

The key, the scope and what a route keeps of its response are stored, as docs/reference/record.md says. What the caller
sent beside is not, and the log names records by their digest. Every logger of these sites writes all it has to say.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.http.asking import Asker
from tests.http.sites import SITES, Running, Site

pytestmark = pytest.mark.slow

LOUD = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"all": {"format": "%(levelname)s %(name)s %(message)s"}},
    "handlers": {"all": {"class": "logging.StreamHandler", "formatter": "all"}},
    "root": {"level": "DEBUG", "handlers": ["all"]},
    "loggers": {"semel": {"level": "DEBUG"}},
}
OPTION = {"uvicorn": "--log-config", "gunicorn": "--log-config-json"}


@dataclass(frozen=True)
class Loud(Site):
    """A site whose server is told to log everything."""

    settings: Path

    def command(self, descriptor: int, workers: int) -> list[str]:
        """How its server is started."""
        return [*super().command(descriptor, workers), OPTION[self.server], str(self.settings)]


@pytest.fixture(scope="module", params=["starlette-uvicorn", "flask-gunicorn", "django-gunicorn"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A site that logs everything and keeps nothing of what `/echo` answers; every test looks for words of its own."""
    folder = tmp_path_factory.mktemp("loud")
    config = folder / "logging.json"
    config.write_text(json.dumps(LOUD))
    known = SITES[request.param]
    running = Running(
        Loud(known.app, known.server, config),
        f"sqlite:///{folder / 'records.db'}",
        folder,
        settings={"/echo": {"keep_response": False}},
    )
    yield running
    running.close()


def canary() -> str:
    """A string that occurs nowhere else."""
    return f"canary-{secrets.token_hex(16)}"


def stored(site: Running, text: str) -> bool:
    """Whether a text is in the files of the store, written as it is."""
    files = list(site.folder.glob("records.db*"))
    assert files
    return any(text.encode() in path.read_bytes() for path in files)


def logged(site: Running, text: str) -> bool:
    """Whether a text is in what the server and the application wrote."""
    return text in site.log


def ask_every_way(asker: Asker, key: str, body: bytes = b"{}", headers: tuple[tuple[str, str], ...] = ()) -> None:
    """A first run, a replay, a reuse, an answer that is not kept, errors by policy, and keys that are refused."""
    for path in ("/orders", "/orders", "/secret", "/secret", "/large", "/large", "/status?code=503", "/null"):
        asker.ask(path, key, body=body, headers=headers)
    for error in ("retryable", "final", "final", "other", "other"):
        asker.ask(f"/raises?error={error}", f"{key}-{error}", body=body, headers=headers)
    asker.ask("/orders", key, body=body + b" ", headers=headers)
    asker.ask("/orders", key, body=b"[" + body, headers=headers)
    asker.ask("/orders", f'"{key}', body=body, headers=headers)
    asker.ask("/required", body=body, headers=headers)


def test_the_search_finds_what_is_kept(asker: Asker) -> None:
    """Otherwise the other tests would prove nothing: keys are stored, and the loggers do write."""
    key = canary()
    ask_every_way(asker, key)
    assert stored(asker.running, key)
    assert stored(asker.running, '{"effect": 1}')
    assert logged(asker.running, "DEBUG")


def test_a_request_body_is_nowhere(asker: Asker) -> None:
    said = canary()
    ask_every_way(asker, canary(), body=json.dumps({"card": said}).encode())
    assert not stored(asker.running, said)
    assert not logged(asker.running, said)


def test_a_key_is_in_no_log(asker: Asker) -> None:
    key = canary()
    ask_every_way(asker, key)
    assert not logged(asker.running, key)


def test_what_signs_a_caller_in_is_nowhere(asker: Asker) -> None:
    """The name of the caller is the scope, and stored; the header that proves it is not."""
    asker.caller = f"Bearer {canary()}"
    ask_every_way(asker, canary())
    assert not stored(asker.running, asker.caller)
    assert not logged(asker.running, asker.caller.removeprefix("Bearer "))


def test_what_does_not_sign_a_caller_in_is_nowhere(asker: Asker) -> None:
    secret = canary()
    asker.ask("/orders", canary())  # now there is a store
    asker.caller = f"Basic {secret}"
    ask_every_way(asker, canary())
    assert not stored(asker.running, secret)
    assert not logged(asker.running, secret)


@pytest.mark.parametrize("name", ["Cookie", "X-Api-Key", "Proxy-Authorization", "Origin"])
def test_other_headers_are_nowhere(asker: Asker, name: str) -> None:
    secret = canary()
    ask_every_way(asker, canary(), headers=((name, secret),))
    assert not stored(asker.running, secret)
    assert not logged(asker.running, secret)


def test_a_response_that_is_not_to_be_stored_is_nowhere(asker: Asker) -> None:
    secret, key = canary(), canary()
    told = [asker.ask("/echo", key, body=secret.encode(), content_type="text/plain") for _ in range(2)]
    assert told[0].text == secret
    assert told[1].json()["type"] == "urn:semel:problem:response-not-kept"
    assert not stored(asker.running, secret)
    assert not logged(asker.running, secret)


def test_a_cookie_of_a_kept_response_is_not_stored(asker: Asker) -> None:
    answer = asker.ask("/orders", canary())
    assert "session=secret" in answer.headers["set-cookie"]
    assert stored(asker.running, answer.headers["location"])
    assert not stored(asker.running, "session=secret")
