"""With a keyring nothing secret is stored in the clear, whatever is changed is noticed, and nothing runs again."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel import Semel
from semel.batch import Batches
from semel.client import INTENT, Client
from semel.core.events.outbox import PeekEvents
from semel.core.operations import Operation
from semel.engine.engine import engine_of
from semel.errors import FailedBefore, RecordUnreadable, UsageError
from semel.events import Consumer
from semel.security import Keyring, reseal
from semel.stores.cache import Cache, TieredStore
from semel.stores.sealing import SealedStore
from semel.stores.sqlite import SqliteStore
from tests.security.places import SECRET, find, use_everything
from tests.servers.redis import Keys
from tests.stores.test_what_erasing_leaves import PLACES, Place
from tests.unit.stores.operations import Clock

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
RING = Keyring(active="old", keys={"old": OLD})
BOTH = Keyring(active="new", keys={"old": OLD, "new": NEW})
ONLY_NEW = Keyring(active="new", keys={"new": NEW})
places = pytest.mark.parametrize(
    "make", [pytest.param(make, marks=[] if name == "sqlite" else pytest.mark.slow) for name, make in PLACES.items()],
    ids=PLACES.keys(),
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "semel.db"


def pay(semel: Semel, *, runs: list[str] | None = None, key: str = "o-1") -> Any:
    def handler() -> str:
        if runs is not None:
            runs.append(key)
        return SECRET

    return semel.run(key, handler, operation="pay", fingerprint=None).value


def ask(semel: Semel, operation: Operation) -> Any:
    """The answer of the store, as the engine gets it."""
    store = engine_of(semel).store
    driver = store.driver()
    try:
        ((answer,),) = driver.perform([store.plan([operation], joined=False)])  # type: ignore[misc]
    finally:
        driver.close()
    return answer


def every_file(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.iterdir()}


@places
def test_no_secret_is_stored_in_the_clear(
    make: Callable[[Clock, pytest.FixtureRequest], Place],
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    place = make(Clock(1_000_000_000_000_000), request)
    with Semel(place.store, seal=RING) as semel:
        used = use_everything(semel)
        assert semel.value("paid", dict, operation="pay") == {"secret": SECRET}
    assert list(find(place.everything(), SECRET.encode())) == []
    assert SECRET not in caplog.text
    assert {"outcome", "error", "step", "history", "letter"} <= set(used)


@places
def test_without_a_seal_the_same_search_finds_it(
    make: Callable[[Clock, pytest.FixtureRequest], Place], request: pytest.FixtureRequest
) -> None:
    place = make(Clock(1_000_000_000_000_000), request)
    with Semel(place.store) as semel:
        use_everything(semel)
    assert list(find(place.everything(), SECRET.encode()))


def test_no_byte_of_the_files_holds_the_secret(path: Path) -> None:
    with Semel(path, seal=RING) as semel:
        used = use_everything(semel)
        files = every_file(path.parent)
    assert {"event", "item"} <= set(used)
    assert list(find(files, SECRET.encode())) == []
    assert list(find(files, b"bulk"))  # what is not sealed is found


def test_everything_that_was_sealed_is_given_back(path: Path) -> None:
    with Semel(path, seal=RING) as semel:
        use_everything(semel)
    with Semel(path, seal=RING) as semel:
        with pytest.raises(FailedBefore) as raised:
            semel.run("declined", lambda: None, operation="pay", fingerprint=None)
        assert raised.value.error_message == SECRET
        history = semel.history("again", operation="pay")
        assert [entry.error and entry.error.message for entry in history] == [SECRET]
        (letter,) = Consumer(semel, "billing").dead_letters()
        assert letter.event is not None
        assert letter.event.data == {"secret": SECRET}
        (peeked,) = ask(semel, PeekEvents("default", 10)).events
        assert peeked.event.data is not None
        assert SECRET.encode() in peeked.event.data
        lines = list(Batches(semel).get("b-1").results(type=str))
        assert [line.value for line in lines] == [SECRET, SECRET]


@pytest.mark.slow
def test_entries_of_a_shared_cache_are_sealed(path: Path, redis_keys: Keys) -> None:
    redis_keys.empty()
    store = TieredStore(SealedStore(SqliteStore(path), RING), Cache(redis_keys.url, timeout=5), sealer=RING)
    with Semel(store) as semel:
        assert [pay(semel) for _ in range(3)] == [SECRET] * 3
        assert semel.run("o-1", lambda: "", operation="pay", fingerprint=None).cache == "hit"
    stored = [redis_keys.said("GET", name) for name in redis_keys.names()]
    assert stored
    assert list(find(stored, SECRET.encode())) == []


def test_a_lost_key_is_named_and_nothing_runs_again(path: Path) -> None:
    runs: list[str] = []
    with Semel(path, seal=RING) as semel:
        pay(semel, runs=runs)
    with Semel(path, seal=ONLY_NEW) as semel, pytest.raises(RecordUnreadable, match=r"'old'.*nothing ran now"):
        pay(semel, runs=runs)
    with Semel(path) as semel, pytest.raises(RecordUnreadable, match=r"'old'.*no keyring was given"):
        pay(semel, runs=runs)
    with Semel(path, seal=BOTH) as semel:
        assert pay(semel, runs=runs) == SECRET
    assert runs == ["o-1"]


@pytest.mark.parametrize("ring", [None, ONLY_NEW], ids=["no keyring", "another key"])
def test_a_stored_failure_that_cannot_be_opened_is_no_answer(path: Path, ring: Keyring | None) -> None:
    with Semel(path, seal=RING) as semel:
        use_everything(semel)
    with Semel(path, seal=ring) as semel, pytest.raises(RecordUnreadable, match="nothing ran now"):
        semel.run("declined", lambda: None, operation="pay", fingerprint=None)


def test_a_finished_step_that_cannot_be_opened_is_not_run_again(path: Path) -> None:
    runs: list[str] = []

    def handler() -> str:
        return semel.current().step("reserve", lambda: runs.append("step") or SECRET)  # type: ignore[func-returns-value]

    with Semel(path, seal=RING) as semel:
        use_everything(semel)
    with Semel(path, seal=ONLY_NEW) as semel, pytest.raises(RecordUnreadable, match="'old'"):
        semel.run("stepped", handler, operation="pay", fingerprint=None)
    assert runs == []


def test_records_of_a_lost_key_are_listed_and_can_be_decided_about(path: Path) -> None:
    with Semel(path, seal=RING) as semel:
        use_everything(semel)
    with Semel(path, seal=ONLY_NEW) as semel:
        errors = {record.key.value: record.error for record in semel.records(operation="pay")}
        assert set(errors) == {"paid", "declined", "again", "stepped"}
        assert "'old'" in str(errors["declined"])
        semel.reopen("declined", operation="pay", reason="the key is gone")
        assert semel.run("declined", lambda: "done", operation="pay", fingerprint=None).value == "done"


def test_an_item_of_a_lost_key_does_not_hide_the_results_of_others(path: Path) -> None:
    items = [{"id": str(number)} for number in range(2)]
    with Semel(path, seal=RING) as semel:
        Batches(semel).start("b-1", items, operation="bulk", item_id="id").run(lambda item: SECRET, wait=False)
    with closing(sqlite3.connect(path)) as connection:
        (old,) = connection.execute("SELECT data FROM semel_item WHERE id = '0'").fetchone()
        with Semel(path, seal=BOTH) as semel:
            reseal(semel, BOTH)
        connection.execute("UPDATE semel_item SET data = ? WHERE id = '0'", (old,))
        connection.commit()
    with Semel(path, seal=ONLY_NEW) as semel:
        assert [one.value for one in Batches(semel).get("b-1").results(type=str)] == [SECRET, SECRET]


def test_a_result_of_a_lost_key_says_so_beside_the_others(path: Path) -> None:
    items = [{"id": str(number)} for number in range(2)]
    with Semel(path, seal=RING) as semel:
        Batches(semel).start("b-1", items, operation="bulk", item_id="id").run(lambda item: SECRET, wait=False)
    with closing(sqlite3.connect(path)) as connection:
        old = connection.execute("SELECT digest, outcome FROM semel_record WHERE operation = 'bulk'").fetchall()
        with Semel(path, seal=BOTH) as semel:
            reseal(semel, BOTH)
        connection.execute("UPDATE semel_record SET outcome = ? WHERE digest = ?", (old[0][1], old[0][0]))
        connection.commit()
    with Semel(path, seal=ONLY_NEW) as semel:
        results = list(Batches(semel).get("b-1").results(type=str))
    assert sorted(str(one.value) for one in results) == ["None", SECRET]
    (lost,) = [one for one in results if one.error is not None]
    assert "'old'" in str(lost.error)


def test_what_was_stored_before_is_read_and_what_comes_is_sealed(path: Path) -> None:
    runs: list[str] = []
    with Semel(path) as semel:
        pay(semel, runs=runs)
    with Semel(path, seal=RING) as semel:
        assert pay(semel, runs=runs) == SECRET
        pay(semel, runs=runs, key="o-2")
    assert runs == ["o-1", "o-2"]
    with closing(sqlite3.connect(path)) as connection:
        rows = dict(connection.execute("SELECT value, outcome FROM semel_record").fetchall())
    assert SECRET.encode() in rows["o-1"]
    assert SECRET.encode() not in rows["o-2"]


def test_a_keyring_may_refuse_what_is_not_sealed(path: Path) -> None:
    with Semel(path) as semel:
        pay(semel)
    strict = Keyring(active="old", keys={"old": OLD}, accept_plain=False)
    with Semel(path, seal=strict) as semel:
        with pytest.raises(RecordUnreadable, match="is not sealed"):
            pay(semel)
        assert pay(semel, key="o-2") == pay(semel, key="o-2") == SECRET


SWAPS = {
    "between records": "UPDATE semel_record SET outcome = (SELECT outcome FROM semel_record WHERE value = 'o-2') "
    "WHERE value = 'o-1'",
    "between fields": "UPDATE semel_record SET outcome = (SELECT outcome FROM semel_step LIMIT 1) WHERE value = 'o-1'",
}


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS)
def test_what_was_moved_is_noticed(path: Path, swap: str) -> None:
    with Semel(path, seal=RING) as semel:
        use_everything(semel)
        pay(semel, key="o-1")
        pay(semel, key="o-2")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(swap).rowcount == 1
        connection.commit()
    with Semel(path, seal=RING) as semel, pytest.raises(RecordUnreadable, match="moved from another place"):
        pay(semel, key="o-1")


def test_a_cache_in_front_of_what_is_to_be_sealed_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="seal= and cache="):
        Semel(TieredStore(SqliteStore(path), Cache(local=10)), seal=RING)


def test_something_that_does_not_seal_is_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="seal= takes a keyring, not str"):
        Semel(path, seal="2026-11")  # type: ignore[arg-type]


def test_keys_are_rotated_while_callers_replay_without_one_failure(path: Path) -> None:
    keys = [f"o-{number}" for number in range(40)]
    runs: list[str] = []
    with Semel(path, seal=RING) as semel:
        for key in keys:
            pay(semel, runs=runs, key=key)
    began, ended = threading.Barrier(5), threading.Event()

    def replay() -> int:
        done = 0
        with Semel(path, seal=BOTH) as semel:
            began.wait(30)
            while not ended.is_set() or not done:
                for key in keys:
                    assert pay(semel, runs=runs, key=key) == SECRET
                    done += 1
        return done

    with ThreadPoolExecutor(4) as pool:
        callers = [pool.submit(replay) for _ in range(4)]
        began.wait(30)
        with Semel(path, seal=BOTH) as semel:
            report = reseal(semel, BOTH, page=7)
        ended.set()
        assert all(caller.result() for caller in callers)
    assert (report.resealed, report.left) == (40, {})
    assert sorted(runs) == sorted(keys)
    with Semel(path, seal=ONLY_NEW) as semel:
        assert pay(semel, runs=runs) == SECRET


def test_the_journal_of_a_client_is_sealed_and_still_answers(path: Path) -> None:
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.method)
        return httpx.Response(201, text=SECRET)

    for _ in range(2):
        with (
            Semel(path, seal=RING) as semel,
            Client(semel, transport=httpx.MockTransport(answer)) as client,
        ):
            told = client.post("https://shop.example/charges", headers={INTENT: "charge 1"})
            assert (told.status_code, told.text) == (201, SECRET)
    assert sent.count("POST") == 1
    kept = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert SECRET.encode() not in kept
