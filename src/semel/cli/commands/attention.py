"""`semel attention`: what needs a person, as the first screen of the console and the API tell it."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from semel.cli.confirm import login
from semel.cli.exit_codes import IN_DOUBT
from semel.cli.printing import as_text, console
from semel.cli.record_view import SHORT, as_line
from semel.cli.store_option import Url, open_async_engine
from semel.texts import span

if TYPE_CHECKING:
    from semel.server.attention import Need, Needs

_RECORD = "in_doubt"


def attention(
    url: Url = None,
    *,
    scope: Annotated[
        str | None, typer.Option(help="Only what is in this scope; '' means shared.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object, as of the API.")] = False,
) -> None:
    """Show what needs a person: doubts, dead letters, parked events, paused batches, with why and what to do.

    The exit code is 4 if something does, or if there is too much to look at all of it.
    """
    needs = asyncio.run(_look(url, scope))
    if as_json:
        from semel.server.api.views import NeedList  # it imports all about the server

        sys.stdout.write(as_line(msgspec.to_builtins(NeedList.of(needs))) + "\n")
    else:
        _print(needs)
    if needs.needs or needs.cut:
        raise typer.Exit(IN_DOUBT)


async def _look(url: str | None, scope: str | None) -> Needs:
    from semel.server.access import Role, User  # with all about the server
    from semel.server.actions import make_actions
    from semel.server.attention import needs_of

    actions = make_actions(open_async_engine(url))
    async with actions.semel:
        return await needs_of(actions, User(login(), {Role.ADMIN}, None if scope is None else {scope}))


def _print(needs: Needs) -> None:
    out = console()
    if needs.needs:
        out.print(_table(needs))
    elif not (needs.cut or needs.not_looked_for):
        out.print("Nothing needs a person.")
    for kind in needs.cut:
        out.print(Text(f"There is so much of {kind} that not all was looked at: more may need a person.", "yellow"))
    for name in needs.not_looked_for:
        out.print(Text(f"{name} was not looked for: this store finds it only by reading everything.", "yellow"))


def _table(needs: Needs) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    grid.add_column("number", justify="right", no_wrap=True)
    grid.add_column("what,\nof what", overflow="fold")
    grid.add_column("oldest", no_wrap=True)
    grid.add_column("why,\nwhat to do", ratio=1)
    for need in needs.needs:
        number = f"{need.number:,}" if need.is_exact else f"{need.number:,} or more"
        what = " ".join(filter(None, (need.kind, need.policy, need.cause)))
        grid.add_row(
            number,
            Text.assemble(as_text(what), "\n", as_text(need.operation, "dim")),
            Text.assemble(span(needs.at - need.oldest), "\n", as_text(_target(need), "dim")),
            Text.assemble(as_text(need.why), "\n", as_text(need.suggestion, "dim")),
        )
    return grid


def _target(need: Need) -> str:
    """The oldest one, as short as commands take it."""
    return need.target[:SHORT] if need.kind == _RECORD else need.target[: 2 * SHORT]
