"""`semel events types`, `dead`, `redrive` and `discard`: consumers, and the events that they could not process."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict

import typer
from rich import box
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from semel.cli.commands.bulk_action import DryRun, Id, Rate, carry_out
from semel.cli.confirm import Actor, Yes, async_recorded, check_reason, login, recorded
from semel.cli.exit_codes import IN_DOUBT, OTHER, usage_error
from semel.cli.printing import as_text, console
from semel.cli.record_view import SHORT, as_line, iso
from semel.cli.store_option import Url, load_object, open_async_engine, open_engine
from semel.cli.timefmt import ages, moment, now
from semel.core.events.letters import REASONS, LetterPage, LetterQuery, ScanLetters, StoredLetter
from semel.core.flow import Flow, ask
from semel.core.store import Capability
from semel.engine.async_engine import AsyncSemelBase
from semel.engine.engine import engine_of
from semel.events import Consumer, DeadLetter, Disposition
from semel.events.dead_letters import parse_letter_id
from semel.texts import clean, span

if TYPE_CHECKING:
    from semel.server.audit.recording import RecordedAction

_PAGE = 100
_SHORTEST = 8
_STYLES = {"in_doubt": "bold yellow", "exhausted": "red", "rejected": "red"}

ConsumerPath = Annotated[
    str, typer.Argument(metavar="MODULE:CONSUMER", help="Your Consumer object, with its handlers.", show_default=False)
]
Name = Annotated[str, typer.Argument(metavar="CONSUMER", help="The name of the consumer.", show_default=False)]
Letter = Annotated[
    str | None,
    typer.Argument(metavar="[LETTER]", help=f"An id, or its first {_SHORTEST} or more digits.", show_default=False),
]
Why = Annotated[str | None, typer.Option("--reason", help=f"Only these: {', '.join(REASONS)}.", show_default=False)]
Type = Annotated[str | None, typer.Option(help="Only events of this type.", show_default=False)]
Subject = Annotated[str | None, typer.Option(help="Only events about this subject.", show_default=False)]
LetterScope = Annotated[
    str | None, typer.Option("--scope", help="Only events of this scope; '' means shared.", show_default=False)
]
Before = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Dead before: 2026-03-01T14:30, or 2h for two hours ago.")
]


class _Decision(NamedTuple):
    """Who decides, and why."""

    who: str
    reason: str


class _Choice(NamedTuple):
    """Which letters, of which scope, how many in a second, and how the bulk action is called."""

    wanted: LetterFilter
    ages: dict[str, timedelta]
    rate: float | None
    id: str | None
    scope: str | None


class LetterFilter(TypedDict):
    """Which letters, as `Consumer.dead_letters` takes it."""

    reason: str | None
    type: str | None
    subject: str | None
    before: datetime | None


def types(path: ConsumerPath) -> None:
    """Show which events a consumer takes, and which function takes each."""
    console().print(_types_table(load_consumer(path)))


def dead(
    name: Name,
    url: Url = None,
    *,
    reason: Why = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only events of this type.", show_default=False)] = None,
    subject: Subject = None,
    before: Before = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, with the event.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help=f"At most so many. Default: {_PAGE}, all with --json.", show_default=False),
    ] = None,
) -> None:
    """List the dead letters of a consumer, oldest first. The exit code is 4 if there are any.

    Events may hold personal data: their content is shown with --json only.
    """
    wanted = _filter_of(reason, type_, subject, before)
    with open_engine(url) as semel:
        letters = Consumer(semel, name).dead_letters(**wanted)
        found = _print_lines(letters, limit) if as_json else _print_table(letters, limit or _PAGE)
    if found:
        raise typer.Exit(IN_DOUBT)
    if ":" in name:
        # Other commands take the object: to give it here must not look as if all were well.
        sys.stderr.write(f"{clean(name)} is taken for the name that Consumer(…) was given, not for MODULE:CONSUMER\n")


def redrive(
    path: ConsumerPath,
    letter: Letter = None,
    *,
    reason: Why = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only events of this type.", show_default=False)] = None,
    subject: Subject = None,
    scope: LetterScope = None,
    before: Before = None,
    rate: Rate = None,
    id_: Id = None,
    because: Annotated[
        str, typer.Option(help="Why; kept in the audit chain. All that match need one.", show_default=False)
    ] = "",
    dry_run: DryRun = False,
    by: Actor = None,
    yes: Yes = False,
) -> None:
    """Hand dead letters to their consumer again: one, or all that match, the oldest first.

    Never through the broker: no other consumer sees the events again. All that match are a bulk action, which the same
    command with the same --id goes on with after a kill. The exit code is 1 if some failed again.
    """
    consumer = load_consumer(path)
    wanted = _filter_of(reason, type_, subject, before)
    if letter is not None and any(value is not None for value in (*wanted.values(), scope, rate, id_)):
        raise usage_error("One letter is named, so nothing else can choose among them; nothing was done.")
    if letter is None and not dry_run and not because.strip():
        raise usage_error("--because is empty; nothing was done. Say why all that match are handed over.")
    is_bulk = letter is None and _keeps_bulk_actions(consumer)
    if not is_bulk and (id_ is not None or scope is not None):
        raise usage_error("This store keeps no batches, so --id and --scope are of no use; nothing was done.")
    if dry_run and not is_bulk:
        console().print(f"{len(asyncio.run(_ids(consumer, letter, wanted)))} would be handed over")
        return
    decision = _Decision(by or login(), because)
    if is_bulk:
        choice = _Choice(wanted, ages(before=before), rate, id_, scope)
        failed = asyncio.run(_redrive_all(consumer, choice, decision, dry_run=dry_run, yes=yes))
    else:
        failed = asyncio.run(_redrive(consumer, letter, wanted, rate, asks=not yes, decision=decision))
    if failed:
        raise typer.Exit(OTHER)


def discard(
    name: Name,
    letter: Letter = None,
    url: Url = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All that match, instead of one letter.")] = False,
    reason: Annotated[str, typer.Option(help="Why; kept in the audit chain.", show_default=False)],
    letter_reason: Annotated[
        str | None,
        typer.Option("--letter-reason", help=f"With --all, only these: {', '.join(REASONS)}.", show_default=False),
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only events of this type.", show_default=False)] = None,
    subject: Subject = None,
    scope: LetterScope = None,
    before: Before = None,
    rate: Rate = None,
    id_: Id = None,
    dry_run: DryRun = False,
    by: Actor = None,
    yes: Yes = False,
) -> None:
    """Delete one dead letter, or with --all those that match. Records stay: what is delivered again is not processed.

    All that match are a bulk action, which the same command with the same --id goes on with after a kill. The exit code
    is then 1 if some were refused.
    """
    check_reason(reason)
    wanted = _filter_of(letter_reason, type_, subject, before, option="--letter-reason")
    if every:
        if letter is not None and url is not None:
            raise usage_error("--all stands for every letter that matches, so none is named; nothing was done.")
        choice = _Choice(wanted, ages(before=before), rate, id_, scope)
        decision = _Decision(by or login(), reason)
        if asyncio.run(_discard_all(url or letter, name, choice, decision, dry_run=dry_run, yes=yes)):
            raise typer.Exit(OTHER)
        return
    if letter is None or dry_run or any(value is not None for value in (*wanted.values(), scope, rate, id_)):
        raise usage_error("Which letter is meant? Nothing was done. Name one, or choose among them with --all.")
    with open_engine(url) as semel:
        consumer = Consumer(semel, name)
        id_ = _find(letter, [one.id for one in consumer.dead_letters()])
        found = engine_of(semel).perform_on(None, _look(name, id_))
        with recorded(semel, action="discard", **_entry_of(found, _Decision(by or login(), reason))):
            gone = consumer.discard(id_, reason=reason)
    console().print(Text.assemble(("discarded", "bold green"), f" {gone.id[:16]}: ", as_text(gone.reason)))


def load_consumer(path: str) -> Consumer[Any]:
    """The consumer named `package.module:object`.

    Raises:
        Refused: there is no such object, or it is none.
    """
    found = load_object(path)
    if not isinstance(found, Consumer):
        raise usage_error(f"{path} is a {type(found).__qualname__}, not a Consumer; nothing was done.")
    return found


def _filter_of(
    reason: str | None, type_: str | None, subject: str | None, before: str | None, *, option: str = "--reason"
) -> LetterFilter:
    if reason is not None and reason not in REASONS:
        raise usage_error(f"{option} {reason!r} is none of {', '.join(REASONS)}; nothing was done.")
    return {
        "reason": reason,
        "type": type_,
        "subject": subject,
        "before": None if before is None else moment(before),
    }


def _print_lines(letters: Iterator[DeadLetter], limit: int | None) -> int:
    count = 0
    for count, letter in enumerate(islice(letters, limit), 1):  # noqa: B007 - the last count is what is asked for
        sys.stdout.write(as_line(_letter_object(letter)) + "\n")
    return count


def _print_table(letters: Iterator[DeadLetter], limit: int) -> int:
    found = list(islice(letters, limit))
    out = console()
    if not found:
        out.print("No dead letters.", style="dim")
        return 0
    out.print(_letter_table(found, now()))
    if next(letters, None) is not None:
        out.print(f"There are more than these {limit}: narrow the search, or raise --limit.", style="dim")
    return len(found)


def _find(letter: str, ids: list[str]) -> str:
    """The id that begins so.

    Raises:
        Refused: none does, or several.
    """
    if len(letter) < _SHORTEST:
        raise usage_error(f"{letter!r} is too short for a letter; nothing was done. Give {_SHORTEST} digits or more.")
    found = [id_ for id_ in ids if id_.startswith(letter.lower())]
    if len(found) != 1:
        what = "no" if not found else "more than one"
        raise usage_error(f"There is {what} dead letter that begins with {letter}; nothing was done.")
    return found[0]


def _keeps_bulk_actions(consumer: Consumer[Any]) -> bool:
    """Whether its store keeps batches, and the audit chain that bulk actions write."""
    return bool({Capability.BATCH, Capability.AUDIT} <= engine_of(consumer.semel).store.capabilities)


async def _discard_all(
    url: str | None, name: str, choice: _Choice, decision: _Decision, *, dry_run: bool, yes: bool
) -> int:
    """Discard all that match as a bulk action; answers how many were refused or failed."""
    from semel.server import bulk  # it imports all about batches
    from semel.server.actions import make_actions

    actions = make_actions(open_async_engine(url))
    asked = bulk.BulkRequest(
        action="discard",
        reason=decision.reason,
        letters=bulk.LetterFilter(name, scope=choice.scope, **choice.wanted),
        rate=choice.rate,
        id=choice.id,
        ages=choice.ages,
    )
    async with actions.semel:
        return await carry_out(bulk.BulkActions(actions), decision.who, asked, dry_run=dry_run, yes=yes)


async def _redrive_all(
    consumer: Consumer[Any], choice: _Choice, decision: _Decision, *, dry_run: bool, yes: bool
) -> int:
    """Redrive all that match as a bulk action, one after the other; answers how many failed again."""
    from semel.server import bulk  # it imports all about batches
    from semel.server.actions import make_actions

    actions = make_actions(consumer.semel, consumers=[consumer])
    asked = bulk.BulkRequest(
        action="redrive",
        reason=decision.reason if decision.reason.strip() else "a dry run",
        letters=bulk.LetterFilter(consumer.name, scope=choice.scope, **choice.wanted),
        rate=choice.rate,
        id=choice.id,
        ages=choice.ages,
    )
    async with actions.semel:
        return await carry_out(bulk.BulkActions(actions, concurrency=1), decision.who, asked, dry_run=dry_run, yes=yes)


async def _redrive(
    consumer: Consumer[Any],
    letter: str | None,
    wanted: LetterFilter,
    rate: float | None,
    *,
    asks: bool,
    decision: _Decision,
) -> int:
    """Redrive them one after the other, and answer how many failed again."""
    ids = await _ids(consumer, letter, wanted)
    if letter is None and asks and not _agrees(len(ids)):
        return 0
    statuses: Counter[str] = Counter()
    began = asyncio.get_running_loop().time()
    with Progress(console=console(), transient=True) as progress:
        for number, id_ in enumerate(progress.track(ids, description="redriving")):
            if rate is not None:
                await asyncio.sleep(began + number / rate - asyncio.get_running_loop().time())
            disposition = await _redrive_one(consumer, id_, decision)
            statuses[disposition.status] += 1
    out = console()
    if not ids:
        out.print("No dead letters.", style="dim")
    else:
        out.print(", ".join(f"{count} {status}" for status, count in sorted(statuses.items())))
    return len(ids) - statuses["processed"] - statuses["duplicate"]


async def _ids(consumer: Consumer[Any], letter: str | None, wanted: LetterFilter) -> list[str]:
    """The letters that are meant."""
    letters: Any = consumer.dead_letters(**wanted)
    is_async = isinstance(consumer.semel, AsyncSemelBase)
    ids = [one.id async for one in letters] if is_async else [one.id for one in letters]
    return ids if letter is None else [_find(letter, ids)]


async def _redrive_one(consumer: Consumer[Any], id_: str, decision: _Decision) -> Disposition:
    """Hand one letter over, between two entries of the audit chain."""
    semel, looking = consumer.semel, _look(consumer.name, id_)
    given: Any
    if isinstance(semel, AsyncSemelBase):
        found = await engine_of(semel).perform_on(None, looking)
        async with async_recorded(semel, action="redrive", **_entry_of(found, decision)) as entry:
            given = await consumer.redrive(id_)
            _name(entry, given)
    else:
        found = engine_of(semel).perform_on(None, looking)
        with recorded(semel, action="redrive", **_entry_of(found, decision)) as entry:
            given = consumer.redrive(id_)
            _name(entry, given)
    disposition: Disposition = given
    return disposition


def _name(entry: RecordedAction | None, disposition: Disposition) -> None:
    """Say in the audit chain what came of a redrive, in the words of the server."""
    from semel.server.audit.recording import name_redrive

    if entry is not None:
        entry.outcome = name_redrive(disposition.status)


def _look(consumer: str, id_: str) -> Flow[StoredLetter | None]:
    name = parse_letter_id(id_)
    page: LetterPage = yield from ask(
        ScanLetters(LetterQuery(consumer=consumer, id=name.id, record=name.record), None, 1)
    )
    return page.letters[0] if page.letters else None


def _entry_of(letter: StoredLetter | None, decision: _Decision) -> dict[str, Any]:
    """What the audit chain says of a decision about a letter, in the words of the server."""
    from semel.server.audit.targets import letter_target

    named = {"target": "letter:gone", "scope": ""}
    if letter is not None:
        named = {"target": letter_target(letter), "scope": letter.scope}
    return {**named, "who": decision.who, "reason": decision.reason}


def _agrees(count: int) -> bool:
    """Whether somebody at a terminal wants so many letters handed over.

    Raises:
        Refused: there is no terminal to ask on.
    """
    if not count:
        return True
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise usage_error("There is no terminal to ask on; nothing was done. Look with semel events dead, add --yes.")
    if typer.confirm(f"Hand {count} dead letters to their consumer again?", default=False):
        return True
    console().print("Nothing was done.")
    return False


def _letter_object(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter for machines: its event as CloudEvents' JSON, or the raw headers and body (base64)."""
    headers, body = letter.raw or (None, None)
    return {
        "id": letter.id,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "error": None if letter.error is None else {"type": letter.error.type, "message": letter.error.message},
        "first": iso(letter.first),
        "last": iso(letter.last),
        "seen": letter.seen,
        "reference": letter.reference,
        "event": None if letter.event is None else json.loads(letter.event.to_json()),
        "headers": headers,
        "body": None if body is None else base64.b64encode(body).decode(),
    }


def _letter_table(letters: Sequence[DeadLetter], today: datetime) -> Table:
    """Dead letters, without what is in their events."""
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    grid.add_column("letter", no_wrap=True, style="dim")
    grid.add_column("type,\nsubject", overflow="ellipsis", no_wrap=True)
    grid.add_column("reason", no_wrap=True)
    for name in ("attempts", "seen", "age"):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("error", ratio=1)
    for letter in letters:
        event = letter.event
        what = Text.assemble(
            as_text("(unreadable)" if event is None else event.type),
            "\n",
            as_text("" if event is None else event.subject or "", "dim"),
        )
        error = "" if letter.error is None else f"{letter.error.type}: {letter.error.message}"
        grid.add_row(
            letter.id[:SHORT],
            what,
            Text(letter.reason, _STYLES.get(letter.reason, "")),
            str(letter.attempts),
            str(letter.seen),
            span(today - letter.first),
            as_text(error[:200]),
        )
    return grid


def _types_table(consumer: Consumer[Any]) -> Table:
    """Which events a consumer takes, and which function takes each."""
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0), title=f"consumer {consumer.name}")
    for name in ("type", "function", "data"):
        grid.add_column(name)
    for type_, function in consumer.handlers.items():
        data = inspect.signature(function).parameters.get("data")
        grid.add_row(
            as_text(type_),
            as_text(f"{function.__module__}.{function.__qualname__}"),
            as_text("" if data is None else inspect.formatannotation(data.annotation)),
        )
    return grid
