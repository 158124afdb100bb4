"""The options that say which records: the same for every command that lists or counts them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from semel.cli.exit_codes import usage_error
from semel.cli.timefmt import ages, moment
from semel.core.key import SHARED
from semel.core.record import Status
from semel.engine.engine import RecordFilter

StatusOption = Annotated[Status | None, typer.Option(help="Only records in this status.", show_default=False)]
Stuck = Annotated[
    bool, typer.Option("--stuck", help="Only what waits for somebody: in doubt, or running with its lease over.")
]
Operation = Annotated[str | None, typer.Option(help="Only this operation.", show_default=False)]
Scope = Annotated[str | None, typer.Option(help="Only this scope; '' means shared.", show_default=False)]
Before = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Claimed before: 2026-03-01T14:30, or 2h for two hours ago.")
]
After = Annotated[str | None, typer.Option(metavar="WHEN", help="Claimed at or after, written likewise.")]
Subject = Annotated[str | None, typer.Option(help="Only what is about this subject.", show_default=False)]
BusinessKey = Annotated[str | None, typer.Option(help="Only this business key.", show_default=False)]
Process = Annotated[str | None, typer.Option(help="Only this process instance.", show_default=False)]
Requester = Annotated[str | None, typer.Option(help="Only what this requester asked for.", show_default=False)]
Tag = Annotated[str | None, typer.Option(metavar="NAME=VALUE", help="Only what has this tag.", show_default=False)]
ScanOption = Annotated[
    bool, typer.Option("--scan", help="Read all records where the store cannot find those asked for otherwise.")
]


def filter_of(
    *,
    status: StatusOption = None,
    stuck: Stuck = False,
    operation: Operation = None,
    scope: Scope = None,
    before: Before = None,
    after: After = None,
    subject: Subject = None,
    business_key: BusinessKey = None,
    process: Process = None,
    requester: Requester = None,
    tag: Tag = None,
    scan: ScanOption = False,
) -> RecordFilter:
    """What the options say, for `records`, `count` and `counts`.

    Raises:
        Refused: two of them contradict each other, or one cannot be read.
    """
    if stuck and status is not None:
        message = "--stuck chooses by status itself, so --status cannot be given beside it; nothing was done."
        raise usage_error(message)
    return RecordFilter(
        status=None if status is None else status.value,
        stuck=stuck,
        operation=operation,
        scope=SHARED if scope == "" else scope,
        before=None if before is None else moment(before),
        after=None if after is None else moment(after),
        subject=subject,
        business_key=business_key,
        process_instance=process,
        requester=requester,
        tag=None if tag is None else _tag(tag),
        scan=scan,
    )


def takes_filter(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `filter_of`; what they say is handed to it as `wanted`.

    A command that has `ages` gets those moments among them that are written as durations.
    """
    options = inspect.signature(filter_of, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True).parameters

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        said = {name: given.pop(name) for name in options}
        if "ages" in own:
            given["ages"] = ages(before=said["before"], after=said["after"])
        command(wanted=filter_of(**said), **given)

    first = [own["url"].replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    rest = [parameter for name, parameter in own.items() if name not in ("url", "wanted", "ages")]
    parameters = [*first, *options.values(), *rest]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _tag(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals:
        message = f"--tag is the name and the value of a tag, as in tenant=acme, not {given!r}; nothing was done."
        raise usage_error(message)
    return name, value
