"""What the commands of batches are given, and the batches that they open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from semel.api import Semel
from semel.batch import Batch, Batches
from semel.cli.exit_codes import not_found_error
from semel.cli.store_option import open_engine
from semel.core.key import SHARED
from semel.errors import RecordNotFound

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the batch.", show_default=False)]
Scope = Annotated[
    str | None, typer.Option(help="Whose batches; else those of nobody in particular.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="A JSON object instead of text, also on a terminal.")]


def scope_of(scope: str | None) -> Any:
    """The scope that was named, or the shared one."""
    return SHARED if scope is None else scope


@contextmanager
def open_batches(url: str | None, scope: str | None) -> Iterator[Batches[Semel]]:
    """The batches of a scope at a URL or path."""
    with open_engine(url) as semel:
        yield Batches(semel, scope_of(scope))


@contextmanager
def open_batch(id_: str, url: str | None, scope: str | None) -> Iterator[Batch[Semel]]:
    """One batch."""
    with open_batches(url, scope) as batches:
        yield find_batch(batches, id_)


def find_batch(batches: Batches[Semel], id_: str) -> Batch[Semel]:
    """The batch of an id.

    Raises:
        Refused: there is none.
    """
    try:
        return batches.get(id_)
    except RecordNotFound as error:
        raise not_found_error(error.message) from None
