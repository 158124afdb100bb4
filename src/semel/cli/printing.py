"""Consoles, and the escaping of stored texts.

A stored text can neither move the cursor nor recolour, reorder or hide anything on the screen. It is printed as `Text`,
so nothing in it is taken for markup.
"""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.text import Text

from semel.texts import clean

_PIPE_WIDTH = 100


def console(*, in_a_pipe: int = _PIPE_WIDTH) -> Console:
    """A console on stdout, so wide where there is no terminal that says how wide it is."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else in_a_pipe
    return Console(file=sys.stdout, width=width, highlight=False, emoji=False, markup=False)


def as_text(text: str, style: str = "") -> Text:
    """A stored text, harmless and in one style."""
    return Text(clean(text), style)


def complain(code: str, message: str) -> None:
    """The one line that an error becomes."""
    line = clean(" ".join(message.split()))
    sys.stderr.write(f"semel: {code}: {line}\n")
