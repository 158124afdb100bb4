"""Who is given a database without its keys writes nothing unsealed into it, and is told which key is needed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from semel import Cancelled, DidNotHappen, Failed, Happened, Policy, Record, Semel
from semel.batch import Batches
from semel.cli import main
from semel.core.record import Resolution
from semel.errors import RecordUnreadable, UsageError
from semel.stores.sealing.keyless import KeylessStore
from semel.stores.sqlite import SqliteStore
from tests.security.places import find
from tests.security.test_sealing import RING, every_file
from tests.stores.test_what_erasing_leaves import PLACES, Place
from tests.unit.stores.operations import Clock

STATED = "canary-stated"
HOLD = Policy(in_doubt="hold")
on_sql = pytest.mark.parametrize(
    "make",
    [
        pytest.param(PLACES[name], marks=[] if name == "sqlite" else pytest.mark.slow, id=name)
        for name in ("sqlite", "postgresql", "mariadb")
    ],
)


class Broken(Exception):
    """What a handler raises here."""


def leave(semel: Semel) -> Record:
    """A record that is done, and one in doubt, which is given."""

    def fails() -> None:
        raise Broken("secret")

    semel.run("done", lambda: "secret", operation="pay", fingerprint=None)
    with pytest.raises(Broken):
        semel.run("lost", fails, operation="pay", fingerprint=None, policy=HOLD)
    record = semel.read("lost", operation="pay")
    assert record is not None
    return record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "semel.db"


@on_sql
@pytest.mark.parametrize("stated", [Happened(STATED), Failed(STATED)], ids=["happened", "failed"])
def test_nothing_is_stated_unsealed_where_others_seal(
    make: Callable[[Clock, pytest.FixtureRequest], Place], request: pytest.FixtureRequest, stated: Resolution
) -> None:
    place = make(Clock(1_000_000_000_000_000), request)
    with Semel(place.store, seal=RING) as semel:
        record = leave(semel)
    with Semel(KeylessStore(place.store)) as semel, pytest.raises(UsageError, match="'old'"):
        semel.resolve(record.key, stated, reason="why")
    assert list(find(place.everything(), STATED.encode())) == []


@on_sql
def test_what_others_keep_unsealed_is_kept_so(
    make: Callable[[Clock, pytest.FixtureRequest], Place], request: pytest.FixtureRequest
) -> None:
    place = make(Clock(1_000_000_000_000_000), request)
    with Semel(place.store) as semel:
        record = leave(semel)
    with Semel(KeylessStore(place.store)) as semel:
        semel.resolve(record.key, Happened(STATED), reason="why")
        assert semel.value("lost", str, operation="pay") == STATED


@pytest.mark.parametrize("decided", [DidNotHappen(), Cancelled()], ids=["did-not-happen", "cancelled"])
def test_what_states_nothing_needs_no_key(path: Path, decided: Resolution) -> None:
    with Semel(path, seal=RING) as semel:
        record = leave(semel)
    with Semel(KeylessStore(SqliteStore(path))) as semel:
        assert semel.resolve(record.key, decided, reason="why").note is not None


def test_no_item_is_loaded_unsealed_where_others_seal(path: Path) -> None:
    with Semel(path, seal=RING) as semel:
        leave(semel)
    with Semel(KeylessStore(SqliteStore(path))) as semel, pytest.raises(UsageError, match="'old'"):
        Batches(semel).start("payroll", [STATED], operation="pay")
    assert list(find(every_file(path.parent), STATED.encode())) == []
    with closing(sqlite3.connect(path)) as rows:  # nor does anybody have to wait for a lease on loading it
        assert rows.execute("SELECT count(*) FROM semel_record WHERE operation = 'semel:batch'").fetchone() == (0,)


def test_what_is_sealed_is_not_replayed_and_says_which_key_it_needs(path: Path) -> None:
    with Semel(path, seal=RING) as semel:
        leave(semel)
    with Semel(KeylessStore(SqliteStore(path))) as semel:
        with pytest.raises(RecordUnreadable, match="'old'"):
            semel.run("done", lambda: pytest.fail("it ran"), operation="pay", fingerprint=None)
        record = semel.read("lost", operation="pay")
    assert record is not None
    assert record.error is not None
    assert "'old'" in record.error.message


def test_a_command_that_is_given_the_database_alone_states_nothing_unsealed(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Semel(path, seal=RING) as semel:
        reference = leave(semel).reference
    url = f"sqlite:///{path}"
    assert main(["show", reference, url]) == 0
    assert "sealed with the key 'old'" in capsys.readouterr().out
    assert main(["resolve", reference, url, "--happened", f'"{STATED}"', "--reason", "why", "--yes"]) == 2
    assert "settings file" in capsys.readouterr().err
    assert list(find(every_file(path.parent), STATED.encode())) == []
