"""Consoles, and the escaping of stored texts.

A stored text can neither move the cursor nor recolour, reorder or hide anything on the screen. It is printed as `Text`,
so nothing in it is taken for markup.
"""

from __future__ import annotations

import os
import sys
import unicodedata

from rich.console import Console
from rich.text import Text

# Control and format characters (bidirectional overrides are among the latter), halves of pairs, line separators.
_HARMFUL = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_PIPE_WIDTH = 100


def console(*, in_a_pipe: int = _PIPE_WIDTH) -> Console:
    """A console on stdout, so wide where there is no terminal that says how wide it is."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else in_a_pipe
    return Console(file=sys.stdout, width=width, highlight=False, emoji=False, markup=False)


def clean(text: str) -> str:
    """`text` with every character that a terminal could obey written out as an escape."""
    if text.isprintable():
        return text
    return "".join(_escape(letter) if unicodedata.category(letter) in _HARMFUL else letter for letter in text)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def as_text(text: str, style: str = "") -> Text:
    """A stored text, harmless and in one style."""
    return Text(clean(text), style)


def complain(code: str, message: str) -> None:
    """The one line that an error becomes."""
    line = clean(" ".join(message.split()))
    sys.stderr.write(f"semel: {code}: {line}\n")
