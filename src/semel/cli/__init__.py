"""The command line: one file per command. Only this part of semel knows the terminal, the environment and exit codes.

- An expected error is one line on stderr, with its code, never a traceback.
- Stored texts are made harmless before they are printed; no outcome, nonce or password is ever printed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from semel.errors import DependencyMissing
from semel.extras import requires


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `semel` with these arguments (those of the process, where none are given) and answer its exit code."""
    try:
        with requires("The command semel", "typer"):
            from semel.cli.app import run
    except DependencyMissing as missing:
        sys.stderr.write(f"semel: {missing.code}: {missing.message}\n")
        return 2
    return run(arguments)
