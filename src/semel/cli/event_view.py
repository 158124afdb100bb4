"""Events, dead letters and consumers for the eye and for machines."""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from semel.cli.printing import as_text
from semel.cli.record_view import SHORT, iso
from semel.cli.timefmt import span
from semel.events import Consumer, DeadLetter

_STYLES = {"in_doubt": "bold yellow", "exhausted": "red", "rejected": "red"}


def letter_object(letter: DeadLetter) -> dict[str, Any]:
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


def letter_table(letters: Sequence[DeadLetter], today: datetime) -> Table:
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


def types_table(consumer: Consumer[Any]) -> Table:
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
