"""Keys are changed while workers of both run, replay and are killed: no call fails, and none runs twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from semel import Semel
from semel.security import Keyring, reseal
from tests.audit.places import PLACES, Place, make_place
from tests.effort import FULL
from tests.processes import child

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
BEFORE: Final = Keyring(active="old", keys={"old": OLD, "new": NEW})
"""Of workers that know the new key and do not seal with it yet: so a rotation begins."""
AFTER: Final = Keyring(active="new", keys={"old": OLD, "new": NEW})
ONLY_NEW: Final = Keyring(active="new", keys={"new": NEW})
KEYS: Final = 400 if FULL else 12
ROOT: Final = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 if FULL else 240)]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return make_place(request.param, request, tmp_path)


class Ledger:
    """Counts which keys ran."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self._lock = threading.Lock()

    def pay(self, semel: Semel, key: str) -> None:
        def handler() -> str:
            with self._lock:
                self.runs[key] += 1
            return f"secret of {key}"

        value = semel.run(key, handler, operation="pay", fingerprint=None).value
        assert value == f"secret of {key}"


def rotate(url: str, cache: str | None = None) -> None:
    """Seal again while four callers replay, and others run new keys under either key."""
    ledger, ended = Ledger(), threading.Event()
    known = [f"known-{number}" for number in range(KEYS)]
    with Semel(url, seal=BEFORE, cache=cache) as semel:
        for key in known:
            ledger.pay(semel, key)
    began = threading.Barrier(5)

    def work(ring: Keyring, name: str) -> int:
        done = 0
        with Semel(url, seal=ring, cache=cache) as semel:
            began.wait(60)
            while not ended.is_set() or not done:
                ledger.pay(semel, known[done % KEYS])
                ledger.pay(semel, f"{name}-{done}")
                done += 1
        return done

    with ThreadPoolExecutor(4) as pool:
        rings = (BEFORE, BEFORE, AFTER, AFTER)
        workers = [pool.submit(work, ring, f"worker-{number}") for number, ring in enumerate(rings)]
        began.wait(60)
        try:
            with Semel(url, seal=AFTER) as semel:
                reseal(semel, AFTER, page=7)
        finally:
            ended.set()
        assert all(worker.result(100) for worker in workers)
    with Semel(url, seal=AFTER) as semel:
        assert reseal(semel, AFTER).left == {}  # nobody seals with the old key any more
    with Semel(url, seal=ONLY_NEW, cache=cache) as semel:
        for key in ledger.runs.copy():
            ledger.pay(semel, key)
    assert set(ledger.runs.values()) == {1}
    print(f"{len(ledger.runs)} keys")


def test_a_rotation_under_load_fails_no_call_and_runs_nothing_twice(place: Place) -> None:
    rotate(place.url)


def test_a_rotation_behind_a_cache_fails_no_call_and_runs_nothing_twice(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    keys = request.getfixturevalue("redis_keys")
    keys.empty()
    rotate(make_place("sqlite", request, tmp_path).url, cache=f"{keys.url}&timeout=5")


WORKER = """
import sys
sys.path.insert(0, {root!r})
from semel.stores.urls import store_from_url
from tests.security.test_rotation import AFTER
from semel.stores.sealing.resealing import reseal_store
def progress(done, total):
    print(done, flush=True)
    if done >= {at}:
        sys.stdin.readline()
reseal_store(store_from_url({url!r}), AFTER, page=3, progress=progress)
"""


def test_a_reseal_that_is_killed_again_and_again_ends_with_everything_sealed_anew(place: Place) -> None:
    kills = range(5, KEYS, 20 if FULL else KEYS)
    with Semel(place.url, seal=BEFORE) as semel:
        for number in range(KEYS):
            Ledger().pay(semel, f"known-{number}")
    for at in kills:
        kill_reseal(place.url, at)
    with Semel(place.url, seal=AFTER) as semel:
        assert reseal(semel, AFTER).left == {}
    with Semel(place.url, seal=ONLY_NEW) as semel:
        ledger = Ledger()
        for number in range(KEYS):
            ledger.pay(semel, f"known-{number}")
    assert not ledger.runs
    print(f"{len(kills)} kills")


def kill_reseal(url: str, at: int) -> None:
    code = WORKER.format(root=str(ROOT), url=url, at=at)
    pipe = subprocess.PIPE
    with child([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        read: Callable[[], str] = process.stdout.readline
        while int(read()) < at:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait(30)
