"""Sealing again with a newer key: all of it, resumed after a kill, in nobody's way, with a count of what is left."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from semel import Semel
from semel.core.sealing.values import is_sealed, key_id_of
from semel.errors import FailedBefore, UsageError
from semel.security import Keyring, reseal
from semel.stores.memory import MemoryStore
from semel.stores.sealing.resealing import reseal_store
from semel.stores.sqlite import SqliteStore
from tests.processes import child, run_bounded
from tests.security.places import SECRET, find, use_everything
from tests.stores.test_what_erasing_leaves import PLACES, Place
from tests.unit.stores.operations import Clock

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
RING = Keyring(active="old", keys={"old": OLD})
BOTH = Keyring(active="new", keys={"old": OLD, "new": NEW})
ONLY_NEW = Keyring(active="new", keys={"new": NEW})
SQL_PLACES = {name: PLACES[name] for name in ("sqlite", "postgresql", "mariadb")}
places = pytest.mark.parametrize(
    "make",
    [pytest.param(make, marks=[] if name == "sqlite" else pytest.mark.slow) for name, make in SQL_PLACES.items()],
    ids=SQL_PLACES.keys(),
)
Make = Callable[[Clock, pytest.FixtureRequest], Place]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "semel.db"


def fill(path: Path, count: int, ring: Keyring | None = RING) -> None:
    with Semel(path, seal=ring, synchronous="NORMAL") as semel:
        for number in range(count):
            semel.run(f"o-{number}", lambda: SECRET, operation="pay", fingerprint=None)


def key_ids(path: Path) -> list[str | None]:
    with closing(sqlite3.connect(path)) as connection:
        return [key_id_of(row[0]) for row in connection.execute("SELECT outcome FROM semel_record")]


@places
def test_everything_is_sealed_with_the_new_key_and_still_read(make: Make, request: pytest.FixtureRequest) -> None:
    place = make(Clock(1_000_000_000_000_000), request)
    with Semel(place.store, seal=RING) as semel:
        use_everything(semel)
        report = reseal(semel, BOTH, page=2)
    assert report.left == {}
    assert report.resealed > 10
    assert not list(find(place.everything(), b"\xa3old"))
    with Semel(place.store, seal=ONLY_NEW) as semel:
        assert semel.value("paid", dict, operation="pay") == {"secret": SECRET}
        with pytest.raises(FailedBefore, match=SECRET):
            semel.run("declined", lambda: None, operation="pay", fingerprint=None)
        assert reseal(semel, ONLY_NEW).resealed == 0


@places
def test_what_is_not_sealed_is_sealed(make: Make, request: pytest.FixtureRequest) -> None:
    place = make(Clock(1_000_000_000_000_000), request)
    with Semel(place.store) as semel:
        use_everything(semel)
    assert reseal_store(place.store, RING, page=3).left == {}
    assert list(find(place.everything(), SECRET.encode())) == []
    with Semel(place.store, seal=RING) as semel:
        assert semel.value("paid", dict, operation="pay") == {"secret": SECRET}


def test_what_is_left_is_counted_by_key_without_changing_anything(path: Path) -> None:
    fill(path, 3)
    fill(path, 5, BOTH)
    with Semel(path) as semel:
        semel.run("plain", lambda: SECRET, operation="pay", fingerprint=None)
        report = reseal(semel, BOTH, dry_run=True)
    assert (report.resealed, report.left) == (0, {"": 1, "old": 3})
    assert sorted(map(str, key_ids(path))) == ["None", "new", "new", "old", "old", "old"]


def test_what_cannot_be_opened_is_left_and_counted(path: Path) -> None:
    fill(path, 3)
    with Semel(path) as semel:
        report = reseal(semel, ONLY_NEW)
    assert (report.resealed, report.left, report.unreadable) == (0, {"old": 3}, 3)


def test_a_value_that_a_worker_wrote_meanwhile_stays(path: Path) -> None:
    """The worker writes between the reading and the replacing, which is when the keyring opens what was read."""
    fill(path, 1)

    class Interfering(Keyring):
        def open(self, subject: bytes, field: bytes, sealed: bytes) -> bytes:
            plain = super().open(subject, field, sealed)
            interfere(plain)
            return plain

    rows = SqliteStore(path).admin().sealed_rows

    def interfere(_: bytes) -> None:
        connection.execute("UPDATE semel_record SET outcome = x'00ff'")

    store = SqliteStore(path)
    admin = store.admin()
    with rows() as found:
        connection: Any = found

        class Lent:
            def __enter__(self) -> Any:
                return found

            def __exit__(self, *_: object) -> None:
                pass

        admin.sealed_rows = Lent  # type: ignore[method-assign]
        store.admin = lambda: admin  # type: ignore[method-assign]
        report = reseal_store(store, Interfering(active="new", keys={"old": OLD, "new": NEW}))
    assert (report.resealed, report.left) == (0, {"": 1}), "what stands there now is not sealed with the new key"
    with closing(sqlite3.connect(path)) as looked:
        assert looked.execute("SELECT outcome FROM semel_record").fetchall() == [(b"\x00\xff",)]


def test_steps_of_a_running_attempt_are_left_alone(path: Path) -> None:
    with Semel(path, seal=RING) as semel:

        def handler() -> str:
            semel.current().step("reserve", lambda: SECRET)
            report = reseal(semel, BOTH)
            assert (report.resealed, report.left) == (0, {"old": 1})
            return "done"

        assert semel.run("o-1", handler, operation="pay", fingerprint=None).value == "done"
        assert reseal(semel, BOTH).left == {}


def test_progress_is_told(path: Path) -> None:
    fill(path, 5)
    told: list[tuple[int, int]] = []
    reseal_store(SqliteStore(path), BOTH, page=2, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (5, 5)
    assert len(told) > 3


def test_a_store_that_cannot_is_refused() -> None:
    with pytest.raises(UsageError, match="Keep older keys in the keyring"):
        reseal_store(MemoryStore(), BOTH)


WORKER = """
import sys, pathlib
sys.path.insert(0, {root!r})
from tests.security.test_resealing import BOTH, SqliteStore, reseal_store
def progress(done, total):
    print(done, flush=True)
    if done >= 10:
        sys.stdin.readline()
reseal_store(SqliteStore({path!r}), BOTH, page=5, progress=progress)
"""


@pytest.mark.slow
def test_after_a_kill_the_next_run_goes_on_with_the_rest(path: Path) -> None:
    fill(path, 40)
    code = WORKER.format(root=str(Path(__file__).parents[2]), path=str(path))
    pipe = subprocess.PIPE
    with child([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 10:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    done = key_ids(path).count("new")
    assert 0 < done < 40
    with Semel(path, seal=BOTH) as semel:
        report = reseal(semel, BOTH)
        assert (report.resealed, report.left) == (40 - done, {})
        values = {semel.value(f"o-{number}", str, operation="pay") for number in range(40)}
    assert values == {SECRET}
    with closing(sqlite3.connect(path)) as connection:
        assert all(is_sealed(row[0]) for row in connection.execute("SELECT outcome FROM semel_record"))


@pytest.mark.slow
def test_the_command_seals_again_and_says_when_nothing_is_left(path: Path) -> None:
    fill(path, 3)
    folder = path.parent
    (folder / "keys.toml").write_text(f'old = "{OLD.hex()}"\nnew = "{NEW.hex()}"\n')
    (folder / "semel.toml").write_text(
        'store = "sqlite:///semel.db"\n[security]\nactive_key = "new"\nkey_file = "keys.toml"\n'
    )
    command = [sys.executable, "-m", "semel", "reseal"]
    counted = run_bounded([*command, "--count"], 60, cwd=folder)
    assert counted.returncode == 1, counted.stderr
    assert "left under old: 3" in counted.stdout
    sealed = run_bounded(command, 60, cwd=folder)
    assert sealed.returncode == 0, sealed.stderr
    assert "sealed again with new: 3" in sealed.stdout
    assert key_ids(path) == ["new"] * 3
    shown = run_bounded([sys.executable, "-m", "semel", "show", "o-1", "--operation", "pay"], 60, cwd=folder)
    assert NEW.hex() not in shown.stdout + shown.stderr + sealed.stdout
