"""An engine made before a fork works on both sides of it, and neither side disturbs the other."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each starts an interpreter

# Each program runs in a fresh interpreter, so that no thread of pytest is there to be forked.
PRELUDE = """
import os, sys, threading, asyncio
from datetime import timedelta
from semel import AsyncSemel, Policy, Semel

path = sys.argv[1]

def in_child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print("child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    return pid

def wait_for(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def play(tmp_path: Path, program: str) -> str:
    command = [sys.executable, "-W", "error", "-c", PRELUDE + textwrap.dedent(program), str(tmp_path / "semel.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_engine_made_before_a_fork_works_on_both_sides(tmp_path: Path) -> None:
    out = play(
        tmp_path,
        """
        semel = Semel(f"sqlite:///{path}")

        def child():
            assert semel.run("child", lambda: "c", operation="pay", fingerprint=None).value == "c"

        pid = in_child(child)
        assert semel.run("parent", lambda: "p", operation="pay", fingerprint=None).value == "p"
        assert wait_for(pid) == 0
        print(sorted(record.key.value for record in semel.records()))
        """,
    )
    assert out.strip() == "['child', 'parent']"


def test_an_engine_used_before_a_fork_works_on_both_sides(tmp_path: Path) -> None:
    out = play(
        tmp_path,
        """
        semel = Semel(f"sqlite:///{path}")
        semel.run("before", lambda: "b", operation="pay", fingerprint=None)

        def child():
            assert semel.run("before", lambda: "x", operation="pay", fingerprint=None).replayed
            assert semel.run("child", lambda: "c", operation="pay", fingerprint=None).value == "c"

        pid = in_child(child)
        assert semel.run("before", lambda: "x", operation="pay", fingerprint=None).replayed
        assert semel.run("parent", lambda: "p", operation="pay", fingerprint=None).value == "p"
        assert wait_for(pid) == 0
        print(sorted(record.key.value for record in semel.records()))
        """,
    )
    assert out.strip() == "['before', 'child', 'parent']"


def test_parent_and_child_run_a_key_once(tmp_path: Path) -> None:
    out = play(
        tmp_path,
        """
        semel = Semel(f"sqlite:///{path}")
        semel.run("before", lambda: "b", operation="pay", fingerprint=None)

        def run():
            result = semel.run("k", lambda: "v", operation="pay", fingerprint=None)
            # The line in one piece: two processes write into one pipe.
            print("replayed\\n" if result.replayed else "ran\\n", end="", flush=True)

        pid = in_child(run)
        run()
        assert wait_for(pid) == 0
        """,
    )
    assert sorted(out.split()) == ["ran", "replayed"]


def test_a_child_forked_inside_a_handler_does_not_take_the_lease_along(tmp_path: Path) -> None:
    out = play(
        tmp_path,
        """
        semel = Semel(f"sqlite:///{path}")

        def child():
            try:
                semel.run("other", lambda: "c", operation="pay", fingerprint=None)
            except BaseException as error:
                print(repr(error))
            os._exit(0)

        def handler():
            assert wait_for(in_child(child)) == 0
            return "parent"

        assert semel.run("k", handler, operation="pay", fingerprint=None).value == "parent"
        print(semel.read("k", operation="pay").status, semel.read("other", operation="pay").status)
        """,
    )
    assert out.strip() == "completed completed"


def test_a_fork_while_other_threads_are_busy_does_not_block_the_child(tmp_path: Path) -> None:
    out = play(
        tmp_path,
        """
        semel = Semel(f"sqlite:///{path}")
        stop = threading.Event()

        def busy(name):
            number = 0
            while not stop.is_set():
                number += 1
                semel.run(f"{name}-{number}", lambda: number, operation="busy", fingerprint=None)

        threads = [threading.Thread(target=busy, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()

        codes = []
        for number in range(5):
            def child():
                assert semel.run(f"child-{number}", lambda: "c", operation="pay", fingerprint=None).value == "c"
            codes.append(wait_for(in_child(child)))
        stop.set()
        for thread in threads:
            thread.join()
        print(codes)
        """,
    )
    assert out.strip() == "[0, 0, 0, 0, 0]"


def test_an_async_engine_used_before_a_fork_works_in_the_child(tmp_path: Path) -> None:
    out = play(
        tmp_path,
        """
        semel = AsyncSemel(f"sqlite:///{path}")

        async def handler():
            return "value"

        async def main(key):
            async with semel:
                return (await semel.run(key, handler, operation="pay", fingerprint=None)).replayed

        assert asyncio.run(main("before")) is False

        def child():
            assert asyncio.run(main("before")) is True
            assert asyncio.run(main("child")) is False

        assert wait_for(in_child(child)) == 0
        print(asyncio.run(main("child")))
        """,
    )
    assert out.strip() == "True"


def test_a_memory_store_forks_into_two(tmp_path: Path) -> None:
    out = play(
        tmp_path,
        """
        semel = Semel("memory://")
        semel.run("before", lambda: "b", operation="pay", fingerprint=None)

        def child():
            assert semel.run("before", lambda: "x", operation="pay", fingerprint=None).replayed
            assert not semel.run("after", lambda: "c", operation="pay", fingerprint=None).replayed

        assert wait_for(in_child(child)) == 0
        print(semel.run("after", lambda: "p", operation="pay", fingerprint=None).replayed)
        """,
    )
    assert out.strip() == "False"


def test_a_child_renews_its_own_leases_after_a_fork_beside_a_parents_thread(tmp_path: Path) -> None:
    out = play(
        tmp_path,
        """
        semel = AsyncSemel(f"sqlite:///{path}", policy=Policy(lease_for=timedelta(seconds=3)))

        async def renewed():
            ends = set()
            async with asyncio.timeout(50):
                while len(ends) < 2:
                    ends.add((await semel.read("k", operation="pay")).lease_until)
                    await asyncio.sleep(0.02)
            return "renewed"

        async def short():
            return "short"

        async def run(key, handler):
            async with semel:
                return (await semel.run(key, handler, operation="pay", fingerprint=None)).value

        def child():
            assert asyncio.run(run("k", renewed)) == "renewed"

        async def parent():
            await semel.run("parent", short, operation="pay", fingerprint=None)
            assert "semel-leases" in [thread.name for thread in threading.enumerate()]

        asyncio.run(parent())
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # the parent has a thread: that is the point
        print(wait_for(in_child(child)))
        """,
    )
    assert out.strip() == "0"
