"""The folder of one run: made when it starts, and gone when it ends, also where it ended by a kill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from examples.launching.folders import locked_folder
from examples.launching.launcher import make_folder

PLACE: Final = ".start"


@contextmanager
def own_folder() -> Iterator[Path]:
    """A new folder below the current one, which is gone at the end."""
    with locked_folder(make_folder(PLACE), "run-") as folder:
        yield folder
