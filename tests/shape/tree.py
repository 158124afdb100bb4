"""The files of this checkout, and the modules of the package as syntax trees."""

import ast
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "semel"
LAB = ROOT / "src" / "semel_lab"

# Only for a copy without git; with git, .gitignore decides.
NOT_OURS = {".git", ".hypothesis", ".servers", "__pycache__", "build", "dist", "site", "states"}


@dataclass(frozen=True)
class Module:
    """One source file of the package."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def where(self) -> str:
        return self.path.relative_to(ROOT).as_posix()


@cache
def project_files() -> tuple[Path, ...]:
    """Everything that is, or is about to be, committed."""
    return tuple(sorted(path for name in _names() if (path := ROOT / name).is_file()))


def _names() -> Iterator[str]:
    if (ROOT / ".git").exists() and shutil.which("git"):
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if listing.returncode == 0:
            yield from filter(None, listing.stdout.split("\0"))
            return
    for folder, inner, files in os.walk(ROOT):
        inner[:] = [name for name in inner if not (name in NOT_OURS or name.startswith(".venv") or "_cache" in name)]
        yield from (os.path.relpath(Path(folder, name), ROOT) for name in files)


@cache
def modules(part: str = "") -> tuple[Module, ...]:
    """The modules of the package, or of one part of it such as ``"core"``."""
    if part:
        return tuple(module for module in modules() if module.path.is_relative_to(PACKAGE / part))
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(path, text, ast.parse(text, str(path))))
    return tuple(found)


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each absolutely imported module with its line, wherever in the file it is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno


def dotted(node: ast.AST) -> str:
    """``a.b.c`` for a chain of names, else the empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (head := dotted(node.value)):
        return f"{head}.{node.attr}"
    return ""
