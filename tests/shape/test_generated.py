"""What is generated is what the script writes, and nobody has changed it by hand."""

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

import pytest

from tests.shape.tree import ROOT

SCRIPT = ROOT / "scripts" / "generate-sync"


def _script() -> Any:
    spec = spec_from_loader("generate_sync", SourceFileLoader("generate_sync", str(SCRIPT)))
    assert spec is not None
    module = module_from_spec(spec)
    assert spec.loader is not None
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def test_generated_modules_are_what_the_script_writes() -> None:
    checked = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("async def f() -> None:\n    await g()\n", "def f() -> None:\n    g()\n"),
        ("x: Callable[[], Awaitable[list[T]]]\n", "x: Callable[[], list[T]]\n"),
        ("async with AsyncEngine() as e:\n    pass\n", "with SyncEngine() as e:\n    pass\n"),
        ("y = _async_pause(check_async_handler)\n", "y = _sync_pause(check_sync_handler)\n"),
        (
            'z = 1  # as `AsyncAttempt` has it\n"""Of `AsyncCall`."""\n',
            'z = 1  # as `Attempt` has it\n"""Of `SyncCall`."""\n',
        ),
    ],
)
def test_words_are_replaced_and_nothing_else(written: str, expected: str) -> None:
    assert _script().convert(written) == expected
