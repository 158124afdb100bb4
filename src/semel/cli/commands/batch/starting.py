"""`semel batch start`: load the items of a file."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn

from semel.api import Semel
from semel.batch import Batch, BatchChanged, Batches, BatchInvalid
from semel.batch.sources import AboutRule, member_of
from semel.cli.commands.batch.opening import AsJson, Scope, open_batches
from semel.cli.commands.batch.view import status_object
from semel.cli.exit_codes import USAGE, not_found_error, usage_error
from semel.cli.printing import as_text, complain, console
from semel.cli.record_view import as_line
from semel.cli.store_option import Url
from semel.cli.timefmt import duration
from semel.errors import SemelError, UsageError
from semel.texts import clean

_LOOK: Final = 0.2
_CHUNK: Final = 1 << 20


def start(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON lines (.jsonl) or CSV with a header (.csv).", show_default=False)
    ],
    url: Url = None,
    *,
    id_: Annotated[str, typer.Option("--id", help="What the batch is called from now on.", show_default=False)],
    operation: Annotated[
        str, typer.Option(help="What is done with each item; part of the key of its record.", show_default=False)
    ],
    item_id: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The member or column that names an item. Default: its number."),
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The member or column that says whom an item is about, so that it can be found and erased by that.",
            show_default=False,
        ),
    ] = None,
    metadata: Annotated[
        str | None, typer.Option(metavar="JSON", help="What else to keep of the batch.", show_default=False)
    ] = None,
    keep_for: Annotated[str, typer.Option(metavar="DURATION", help="How long it is kept after its end.")] = "30d",
    scope: Scope = None,
    as_json: AsJson = False,
) -> None:
    """Load the items of a file. Nothing runs before all of them are there, and nothing at all if a line is wrong.

    The same id with the same items is the same batch, so it can be repeated after a crash. Lines that cannot be loaded
    are told with their numbers, the first thousand of them; the exit code is 2 then.
    """
    if not Path(file).is_file():
        raise not_found_error(f"There is no file {file}; nothing was loaded.")
    kept, noted = duration(keep_for), _metadata(metadata)
    with open_batches(url, scope) as batches:
        try:
            with _progress(batches, id_, Path(file), is_shown=sys.stdout.isatty() and not as_json):
                batch = batches.start(
                    id_,
                    file,
                    operation=operation,
                    item_id=item_id,
                    metadata=noted,
                    about=None if subject is None else _about(subject),
                    keep_for=kept,
                )
        except BatchInvalid as error:
            _tell_problems(error, file, as_json=as_json)
            raise typer.Exit(USAGE) from None
        except BatchChanged as error:
            _tell_differences(error, as_json=as_json)
            raise typer.Exit(USAGE) from None
        _tell_loaded(batch, as_json=as_json)


def _about(name: str) -> AboutRule:
    """Whom an item is about, as a member of it says; an empty one is about nobody."""

    def about(item: Any) -> dict[str, str] | None:
        found = member_of(item, name)
        if isinstance(found, bool) or not isinstance(found, str | int | None):
            raise UsageError(f"{name} is a {type(found).__name__}, and a subject is text or a whole number")
        return {"subject": str(found)} if found not in (None, "") else None

    return about


def _metadata(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise usage_error("--metadata is no JSON; nothing was loaded.") from None


def _tell_loaded(batch: Batch[Semel], *, as_json: bool) -> None:
    status = batch.status()
    if as_json:
        sys.stdout.write(as_line(status_object(status)) + "\n")
        return
    out = console()
    out.print(as_text(f"{status.id}: {status.total:,} items, {status.state}."))
    for note in status.notes:
        out.print(as_text(f"note: {note}"), style="dim")
    if status.state == "pending":
        out.print(as_text(f"Next: semel batch run MODULE:FUNCTION {status.id}"), style="dim")


def _tell_problems(error: BatchInvalid, file: str, *, as_json: bool) -> None:
    """Every line that cannot be loaded."""
    if as_json:
        for line, text in error.problems:
            sys.stdout.write(as_line({"line": line, "problem": text}) + "\n")
    else:
        for line, text in error.problems:
            sys.stderr.write(f"{clean(file)}:{line}: {clean(text)}\n")
    more = f" The first {len(error.problems):,} are shown." if error.count > len(error.problems) else ""
    complain(
        error.code, f"{error.count:,} lines cannot be loaded, so no item runs.{more} Correct them, and start again."
    )


def _tell_differences(error: BatchChanged, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(as_line({"differences": list(error.differences)}) + "\n")
    complain(error.code, error.message)


@contextmanager
def _progress(batches: Batches[Semel], id_: str, file: Path, *, is_shown: bool) -> Iterator[None]:
    """A bar that follows how many items are loaded, as the store tells."""
    if not is_shown:
        yield
        return
    ended = threading.Event()
    columns = (TextColumn("loading"), BarColumn(), TextColumn("{task.completed:,.0f} of about {task.total:,.0f}"))
    with Progress(*columns, console=console(), transient=True) as progress:
        task = progress.add_task("loading", total=max(1, _count_lines(file)))

        def follow() -> None:
            while not ended.wait(_LOOK):
                with suppress(SemelError):  # not there yet, or no answer: the next look may have one
                    progress.update(task, completed=batches.get(id_).status().loaded)

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join()


def _count_lines(file: Path) -> int:
    with file.open("rb") as lines:
        count = sum(chunk.count(b"\n") for chunk in iter(lambda: lines.read(_CHUNK), b""))
    return count - 1 if file.suffix.lower() == ".csv" else count
