"""`semel events`: run consumers and relays, look at outboxes, and look after what could not be processed."""

from __future__ import annotations

from typing import Final

import typer

from semel.cli.commands.events.consumers import consume
from semel.cli.commands.events.erasing import erase
from semel.cli.commands.events.letters import dead, discard, redrive, types
from semel.cli.commands.events.outboxes import lag, peek
from semel.cli.commands.events.parking import drop, release
from semel.cli.commands.events.relays import relay

_HELP: Final = "Run consumers and relays of events, and look after what they could not process or publish."

events = typer.Typer(help=_HELP, no_args_is_help=True)
for _name, _command in (
    ("consume", consume),
    ("types", types),
    ("dead", dead),
    ("redrive", redrive),
    ("discard", discard),
    ("relay", relay),
    ("lag", lag),
    ("peek", peek),
    ("release", release),
    ("drop", drop),
    ("erase", erase),
):
    events.command(_name)(_command)
