"""F09: a process killed while it deletes leaves whole records or none, and the next one goes on."""

import sqlite3
from pathlib import Path

from semel.core.key import Key
from semel.core.operations import Checkpoint, Claim, Complete, Granted, Operation, Terms
from semel.core.record import About, Step
from semel.core.store import Answers
from semel.stores.sqlite import SqliteStore
from tests.faults.sqlite.processes import run, start

COUNT = 400


def _fill(path: Path) -> None:
    store = SqliteStore(path, clock=lambda: 1_000_000)
    driver = store.driver()

    def ask(operations: list[Operation]) -> Answers:
        (reply,) = driver.perform([store.plan(operations, joined=False)])
        assert isinstance(reply, list)
        return reply

    terms = Terms(1, 1, "hold", 0)
    keys = [Key.of(f"k-{i}", operation="charge") for i in range(COUNT)]
    claims = [Claim(key, b"f", i.to_bytes(16, "big"), terms, About()) for i, key in enumerate(keys)]
    leases = [answer.lease for answer in ask([*claims]) if isinstance(answer, Granted)]
    ask([Checkpoint(lease, Step(0, "reserve", b"1")) for lease in leases])
    ask([Complete(lease, b"done") for lease in leases[10:]])  # ten stay running: held for ever
    driver.close()


def test_a_killed_purge_leaves_no_half_deleted_record(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"
    _fill(path)
    for batches in (1, 3, 5):
        process = start("purge", path, 10)
        assert process.stdout is not None
        for _ in range(batches):
            process.stdout.readline()
        process.kill()
        process.communicate()
        records, steps, orphans = _counts(path)
        assert orphans == 0
        assert records == steps > 10
    run("purge", path, 10)
    assert _counts(path) == (10, 10, 0)


def _counts(path: Path) -> tuple[int, int, int]:
    connection = sqlite3.connect(path)
    (records,) = connection.execute("SELECT count(*) FROM semel_record").fetchone()
    (steps,) = connection.execute("SELECT count(*) FROM semel_step").fetchone()
    (orphans,) = connection.execute(
        "SELECT count(*) FROM semel_step WHERE digest NOT IN (SELECT digest FROM semel_record)"
    ).fetchone()
    connection.close()
    return records, steps, orphans
