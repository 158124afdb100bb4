"""The count of running handlers: what a process forgets by itself, and calls inside a transaction of the caller."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from semel import Limits, Semel, errors

ONE = Limits(max_handlers=1)


def test_a_call_that_was_opened_and_lost_makes_room() -> None:
    with Semel("memory://", limits=ONE) as semel:
        lost = semel.open("a", operation="pay", fingerprint=None)
        with pytest.raises(errors.TooManyHandlers):
            semel.open("b", operation="pay", fingerprint=None)
        del lost
        gc.collect()
        semel.open("b", operation="pay", fingerprint=None).finish(1)


def test_an_opened_call_is_counted_until_it_is_finished() -> None:
    with Semel("memory://", limits=ONE) as semel:
        call = semel.open("a", operation="pay", fingerprint=None)
        with pytest.raises(errors.TooManyHandlers, match=r"1 handlers are running .*\(max_handlers\); nothing ran"):
            semel.run("b", lambda: 1, operation="pay", fingerprint=None)
        call.finish(1)
        assert semel.run("b", lambda: 1, operation="pay", fingerprint=None).value == 1


@pytest.mark.parametrize("error", [OSError("no"), KeyboardInterrupt()])
def test_an_opened_call_that_failed_makes_room(error: BaseException) -> None:
    with Semel("memory://", limits=ONE) as semel:
        call = semel.open("a", operation="pay", fingerprint=None)
        if isinstance(error, Exception):
            with pytest.raises(OSError, match="no"):
                call.fail(error)
        else:
            call.abandon(error)
        assert semel.run("b", lambda: 1, operation="pay", fingerprint=None).value == 1


def test_a_replay_makes_room_at_once() -> None:
    with Semel("memory://", limits=ONE) as semel:
        semel.open("a", operation="pay", fingerprint=None).finish(1)
        replay = semel.open("a", operation="pay", fingerprint=None)
        assert replay.result is not None
        assert semel.run("b", lambda: 1, operation="pay", fingerprint=None).value == 1


def test_a_call_inside_a_transaction_of_the_caller_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with Semel(path, limits=ONE) as semel:
        semel.read("k", operation="pay")
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN")
        inside = semel.within(connection)
        call = inside.open("a", operation="pay", fingerprint=None)
        with pytest.raises(errors.TooManyHandlers):
            inside.run("b", lambda: 1, operation="pay", fingerprint=None)
        call.finish(1)
        assert inside.run("b", lambda: 1, operation="pay", fingerprint=None).value == 1
        connection.execute("COMMIT")
        connection.close()


def test_a_forked_process_begins_to_count_anew() -> None:
    with Semel("memory://", limits=ONE) as semel:
        call = semel.open("a", operation="pay", fingerprint=None)
        child = os.fork()
        if child == 0:
            try:
                ran = semel.run("b", lambda: 1, operation="pay", fingerprint=None).value
                os._exit(0 if ran == 1 else 1)
            except BaseException:  # noqa: BLE001 - the parent reports it
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        call.finish(1)


def test_threads_never_run_more_than_may() -> None:
    most, running, highest, refused = 3, 0, 0, 0
    lock, start = threading.Lock(), threading.Barrier(12)

    def handler() -> None:
        nonlocal running, highest
        with lock:
            running += 1
            highest = max(highest, running)
        with lock:
            running -= 1

    def ask(number: int) -> None:
        nonlocal refused
        start.wait()
        for turn in range(40):
            try:
                semel.run(f"{number}-{turn}", handler, operation="pay", fingerprint=None)
            except errors.TooManyHandlers:
                with lock:
                    refused += 1

    with Semel("memory://", limits=Limits(max_handlers=most)) as semel:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert highest <= most, f"{highest} handlers ran at the same time"
        assert semel.run("last", lambda: 1, operation="pay", fingerprint=None).value == 1
