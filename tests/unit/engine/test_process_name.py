"""Nonces name the process that drew them; a process tells the store who it is beside its calls, not on their way."""

from __future__ import annotations

import os
from collections.abc import Sequence

from semel import Semel
from semel.core.operations import Operation, RegisterWorker
from semel.core.record import PROCESS_BYTES
from semel.core.store import Answers
from semel.engine.engine import nonces_of, process_name
from semel.stores.memory import MemoryStore


def test_all_nonces_of_a_process_begin_alike_and_none_comes_twice() -> None:
    draw = nonces_of(process_name())
    drawn = {draw() for _ in range(1000)}
    assert len(drawn) == 1000
    assert {nonce[:PROCESS_BYTES] for nonce in drawn} == {process_name()}
    assert {len(nonce) for nonce in drawn} == {16}


def test_a_forked_process_has_a_name_of_its_own() -> None:
    with Semel("memory://") as semel:
        before = semel._engine.new_nonce()[:PROCESS_BYTES]
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writing, semel._engine.new_nonce()[:PROCESS_BYTES])
            os._exit(0)
        os.waitpid(pid, 0)
        child = os.read(reading, PROCESS_BYTES)
        after = semel._engine.new_nonce()[:PROCESS_BYTES]
    assert child != before
    assert after == before


class Noting(MemoryStore):
    """A store that notes what it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.workers: list[bytes] = []

    def apply(self, operations: Sequence[Operation]) -> Answers:
        self.workers += [each.worker.process for each in operations if isinstance(each, RegisterWorker)]
        return super().apply(operations)


def test_a_call_does_not_wait_for_the_note_of_who_runs_it() -> None:
    store = Noting()
    semel = Semel(store)
    for _ in range(2):
        semel.run("k", lambda: 1, operation="pay", fingerprint=None)
    during = list(store.workers)
    semel.close()
    assert during == []
    assert store.workers == [process_name()]


def test_a_process_that_was_granted_nothing_notes_nothing() -> None:
    store = Noting()
    with Semel(store) as semel:
        assert semel.read("k", operation="pay") is None
    assert store.workers == []
