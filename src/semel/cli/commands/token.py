"""`semel token`: tokens that operators sign in with."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from semel.cli.confirm import Actor, login, recorded
from semel.cli.exit_codes import not_found_error
from semel.cli.printing import as_text, console
from semel.cli.record_view import as_line, iso
from semel.cli.store_option import Url, open_engine
from semel.cli.timefmt import duration, local
from semel.core.flow import ask
from semel.core.operators.tokens import ListTokens, RevokeToken
from semel.engine.engine import engine_of
from semel.server.access import Role
from semel.server.audit.chain import refuse_without_audit
from semel.server.tokens import Token, add_token, new_token, show_token

_PAGE = 100
token = typer.Typer(help="Give operators tokens to sign in with, list them, and revoke them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="What the token is called.", show_default=False)]


@token.command("add")
def add(
    name: Name,
    url: Url = None,
    *,
    roles: Annotated[
        list[str], typer.Option("--role", help=f"One of {', '.join(Role)}; may be repeated.", show_default=False)
    ],
    scopes: Annotated[
        list[str] | None,
        typer.Option("--scope", help="What it reaches; may be repeated. Default: every scope.", show_default=False),
    ] = None,
    expires_in: Annotated[str, typer.Option(metavar="DURATION", help="How long it is of use, a year at most.")] = "90d",
    by: Actor = None,
) -> None:
    """Make a token. It is printed once, alone on stdout, and is kept nowhere: hand it to its owner."""
    who = by or login()
    added, secret = new_token(
        name, roles=roles, scopes=scopes or None, expires_in=duration(expires_in), by=who, draw=os.urandom
    )
    with open_engine(url) as semel:
        engine: Any = engine_of(semel)
        refuse_without_audit(engine.store, "semel token")
        with recorded(semel, action="token.create", target=name, who=who):
            made: Token = engine.perform_on(None, add_token(added))
    sys.stderr.write(f"{made.name} is of use until {local(made.expires)}; this is not shown again:\n")
    sys.stdout.write(f"{secret}\n")


@token.command("list")
def list_tokens(
    url: Url = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """List tokens by name, also those that are of no use any more."""
    with open_engine(url) as semel:
        engine: Any = engine_of(semel)
        refuse_without_audit(engine.store, "semel token")
        found = _all_tokens(engine)
    if as_json:
        for one in found:
            sys.stdout.write(as_line(_token_object(one)) + "\n")
        return
    console().print(_table(found) if found else as_text("No tokens.", "dim"))


@token.command("revoke")
def revoke(name: Name, url: Url = None, *, by: Actor = None) -> None:
    """Have a token be of no use from now on."""
    who = by or login()
    with open_engine(url) as semel:
        engine: Any = engine_of(semel)
        refuse_without_audit(engine.store, "semel token")
        with recorded(semel, action="token.revoke", target=name, who=who):
            found = engine.perform_on(None, ask(RevokeToken(name, who)))
    if found.token is None:
        raise not_found_error(f"There is no token {name!r}, or it was revoked before; nothing was changed.")
    console().print(Text.assemble(("revoked", "bold green"), " ", as_text(name)))


def _all_tokens(engine: Any) -> list[Token]:
    tokens: list[Token] = []
    while True:
        after = tokens[-1].name if tokens else ""
        page = engine.perform_on(None, ask(ListTokens(after, _PAGE)))
        tokens += [show_token(one, page.now_us) for one in page.tokens]
        if len(page.tokens) < _PAGE:
            return tokens


def _token_object(one: Token) -> dict[str, Any]:
    return {
        "name": one.name,
        "roles": sorted(one.roles),
        "scopes": None if one.scopes is None else sorted(one.scopes),
        "created": iso(one.created),
        "created_by": one.created_by,
        "expires": iso(one.expires),
        "last_used": None if one.last_used is None else iso(one.last_used),
        "revoked": None if one.revoked is None else iso(one.revoked),
        "valid": one.is_valid,
    }


def _table(tokens: list[Token]) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    for name in ("token", "roles", "scopes", "expires", "last used", "state"):
        grid.add_column(name, overflow="fold")
    for one in tokens:
        state = "valid" if one.is_valid else "expired" if one.revoked is None else "revoked"
        grid.add_row(
            as_text(one.name),
            ", ".join(sorted(one.roles)),
            as_text("all" if one.scopes is None else ", ".join(sorted(one.scopes))),
            local(one.expires),
            "never" if one.last_used is None else local(one.last_used),
            Text(state, "green" if one.is_valid else "dim"),
        )
    return grid
