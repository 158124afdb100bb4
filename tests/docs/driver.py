"""Runs the program of one page: `python -m tests.docs.driver PAGE`, in the folder where it may leave its files."""

import contextlib
import io
import linecache
import os
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path

from tests.docs.commands import forked_commands
from tests.docs.pages import Block, Page, read

SHIMS = {
    "python": 'exec {python} "$@"\n',
    # The plugin by its name: how it was installed here does not matter.
    "pytest": 'PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 exec {python} -m pytest -p semel.testing.plugin "$@"\n',
}


def main() -> None:
    page = read(Path(sys.argv[1]))
    folder = Path.cwd() / ".bin"
    folder.mkdir()
    with forked_commands(folder) if _asks_semel(page) else contextlib.nullcontext("exit 127\n") as semel:
        _put_commands_on_the_path(folder, {**SHIMS, "semel": semel})
        _run(page)


def _asks_semel(page: Page) -> bool:
    return any(block.runs and block.kind == "console" and "semel" in block.text for block in page.blocks)


def _run(page: Page) -> None:
    sys.path.insert(0, str(Path.cwd()))
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    _show_source(page)
    printed = ""
    for block in page.blocks:
        if block.word == "file":
            Path(block.rest).write_text(block.text, encoding="utf-8")
        elif block.kind == "python" and block.word != "not run":
            printed = _printed(page, block, program)
        elif block.kind == "console" and block.word == "run":
            printed = _commanded(page, block)
        elif block.word == "prints" and block.text != printed:
            _stop(page, block, f"it says\n{block.text}\nbut what was printed is\n{printed}")


def _printed(page: Page, block: Block, program: types.ModuleType) -> str:
    # Empty lines in front, so that a traceback names the line of the page.
    code = compile("\n" * (block.line - 1) + block.text, str(page.path), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, vars(program))  # noqa: S102 - running it is the point
    return out.getvalue()


def _commanded(page: Page, block: Block) -> str:
    commands = [line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ ")]
    expected = int(block.rest.removeprefix("exit ") or 0)
    # One shell for the block; the last command may end otherwise, those before it may not.
    script = "\n".join(["set -e", *commands[:-1], "set +e", commands[-1]])
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode  # a signal, as shells say it
    if code != expected:
        _stop(page, block, f"it ended with {code}, not {expected}\n{done.stdout}{done.stderr}")
    return done.stdout


def _put_commands_on_the_path(folder: Path, shims: Mapping[str, str]) -> None:
    for name, text in shims.items():
        shim = folder / name
        shim.write_text("#!/bin/sh\n" + text.replace("{python}", sys.executable), encoding="utf-8")
        shim.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def _show_source(page: Page) -> None:
    linecache.cache[str(page.path)] = (1, None, page.text.splitlines(keepends=True), str(page.path))


def _stop(page: Page, block: Block, why: str) -> None:
    sys.exit(f"{page.name}:{block.line}: {why}")


if __name__ == "__main__":
    main()
