"""`semel doctor`: look at a database and say which promises hold there."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, get_args

import msgspec
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from semel.cli import exit_codes
from semel.cli.printing import as_text, console
from semel.cli.store_option import (
    BrokerUrl,
    Durable,
    EngineUrl,
    Group,
    Queue,
    Stream,
    Url,
    chosen_settings,
    store_at,
)
from semel.cli.timefmt import duration
from semel.core.store import Capability, Store
from semel.server.settings import examine_server
from semel.settings import Settings, show_settings
from semel.stores.admin import DEFAULT_HORIZON, Finding, Need, Promise, admin_of, promises
from semel.texts import span

_STYLES = {"ok": "green", "note": "yellow", "fix": "bold red"}


def doctor(
    url: Url = None,
    *,
    retry_horizon: Annotated[
        str,
        typer.Option(metavar="DURATION", help="How long after its first call a caller may still try again."),
    ] = span(DEFAULT_HORIZON),
    broker: BrokerUrl = None,
    queue: Queue = None,
    stream: Stream = None,
    durable: Durable = None,
    group: Group = None,
    management: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="RabbitMQ: where its management plugin answers. Default: the broker's host, port 15672.",
            show_default=False,
        ),
    ] = None,
    consumer: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:CONSUMER", help="Your Consumer, which the broker is compared with.", show_default=False
        ),
    ] = None,
    relay: Annotated[
        str | None,
        typer.Option(metavar="MODULE:RELAY", help="Your Relay, which it is compared with, too.", show_default=False),
    ] = None,
    faststream: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:BROKER",
            help="Your broker or application of FastStream: its subscribers are looked at, and what they take from.",
            show_default=False,
        ),
    ] = None,
    celery: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:APP",
            help="Your application of Celery: its tasks that run once, its configuration and its broker.",
            show_default=False,
        ),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option(
            "--lambda",
            metavar="FUNCTION",
            help="Your function of AWS Lambda: its triggers, and whether what fails comes again.",
            show_default=False,
        ),
    ] = None,
    consumer_timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="RabbitMQ: its consumer_timeout, which it does not tell.", show_default=False
        ),
    ] = None,
    engine: EngineUrl = None,
    process: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Camunda 7: which process. Default: all of the engine.", show_default=False),
    ] = None,
    engine_history: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long other engines, such as Camunda 8, know a process that has ended.",
            show_default=False,
        ),
    ] = None,
    delegates: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:DELEGATES",
            help="Your delegate, or several of them, which the engine is compared with.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Look at a database: durability, role, clock, proxies, schema, and what waits there. Changes nothing.

    With --broker and --queue or --stream also at a broker: how long it may deliver an event again is compared with how
    long a consumer remembers it. With --faststream, --celery or --lambda the same for what your program takes from, and
    whether it would lose messages.

    With --engine or --engine-history also at a workflow engine: how long it knows a process that has ended is compared
    with how long the records of its tasks are kept.

    Exit code 0: every promise of this release holds there. 1: something must be fixed first.
    """
    horizon = duration(retry_horizon)
    settings = chosen_settings(url)
    store = store_at(url)
    findings = [
        *_switched_off(settings),
        *examine_server({} if settings is None else settings.server),
        *admin_of(store, Capability.EXAMINE).examine(horizon),
        *_about_keys(settings, store),
    ]
    findings += _about_events(
        broker,
        {"queue": queue, "stream": stream, "durable": durable, "group": group, "consumer": consumer},
        {"management": management, "relay": relay, "consumer_timeout": consumer_timeout},
        faststream=faststream,
        celery=celery,
        function=function,
    )
    findings += _about_engine(engine, process, engine_history, delegates, _read_retention(settings))
    held = promises(
        findings,
        best_effort=Capability.DURABLE not in store.capabilities,
        outbox=Capability.OUTBOX in store.capabilities,
    )
    shown = [] if settings is None else list(show_settings(settings))
    if as_json:
        _print_json(store.name, horizon, findings, held, shown)
    else:
        _print_tables(store.name, findings, held, shown)
    if any(finding.verdict == "fix" for finding in findings):
        raise typer.Exit(exit_codes.OTHER)


def _about_events(
    broker: str | None,
    places: dict[str, str | None],
    compared: dict[str, str | None],
    *,
    faststream: str | None,
    celery: str | None,
    function: str | None,
) -> list[Finding]:
    """What was found about brokers, and about those who take from them."""
    if all(option is None for option in (*places.values(), *compared.values(), faststream, celery, function)):
        return []
    from semel.cli.commands.events.broker_limits import examine_broker, refuse_beside  # it imports all about events

    findings: list[Finding] = []
    given = compared["consumer_timeout"]
    timeout = None if given is None else duration(given)
    if faststream is not None:
        from semel.cli.commands.events.faststream_broker import examine_faststream

        refuse_beside("--faststream", places)
        findings += examine_faststream(
            faststream, management=compared["management"], relay=compared["relay"], consumer_timeout=timeout
        )
    if celery is not None:
        from semel.cli.commands.events.celery_app import examine_celery

        refuse_beside("--celery", places if faststream else {**places, "relay": compared["relay"]})
        findings += examine_celery(celery, management=compared["management"], consumer_timeout=timeout)
    if function is not None:
        from semel.cli.commands.events.lambda_function import examine_lambda

        refuse_beside("--lambda", {name: place for name, place in places.items() if name != "consumer"})
        if faststream is None and celery is None:
            refuse_beside("--lambda", {name.replace("_", "-"): option for name, option in compared.items()})
        findings += examine_lambda(function, consumer=places["consumer"])
    if faststream is None and celery is None and function is None:
        findings += examine_broker(
            broker,
            {name: place for name, place in places.items() if name != "consumer"},
            management=compared["management"],
            consumer=places["consumer"],
            relay=compared["relay"],
            consumer_timeout=timeout,
        )
    return findings


def _read_retention(settings: Settings | None) -> dict[str, timedelta]:
    """How long the settings file keeps each operation of which it says so."""
    declared = {} if settings is None else settings.operations.declared
    return {name: fields["keep_for"] for name, fields in declared.items() if "keep_for" in fields}


def _about_engine(
    engine: str | None,
    process: str | None,
    history: str | None,
    delegates: str | None,
    declared: Mapping[str, timedelta],
) -> list[Finding]:
    """What was found about a workflow engine."""
    if all(option is None for option in (engine, process, history, delegates)):
        return []
    from semel.cli.commands.workflow.engine_history import examine_engine  # it imports all about workflows

    stated = None if history is None else duration(history)
    return examine_engine(engine, process=process, history=stated, delegates=delegates, declared=declared)


def _about_keys(settings: Settings | None, store: Store) -> list[Finding]:
    """What was found about the keys that seal."""
    if settings is None or not settings.security:
        return []
    from semel.cli.commands.serve import examine_keys  # it imports all about the server

    return examine_keys(settings, store)


def _switched_off(settings: Settings | None) -> list[Finding]:
    """What is wrong with settings that switch semel off."""
    if settings is None or settings.enabled:
        return []
    advice = f"Set enabled = true ({settings.origins['enabled']}) and start the workers again."
    return [Finding("enabled", "false: everything runs unprotected", "fix", advice, get_args(Need))]


def _print_json(
    name: str,
    horizon: timedelta,
    findings: Sequence[Finding],
    held: Sequence[Promise],
    settings: Sequence[tuple[str, str, str]],
) -> None:
    told = {
        "store": name,
        "retry_horizon_s": horizon.total_seconds(),
        "fine": all(finding.verdict != "fix" for finding in findings),
        "findings": findings,
        "promises": held,
        "settings": [{"name": name, "value": value, "from": origin} for name, value, origin in settings],
    }
    sys.stdout.write(msgspec.json.encode(told).decode() + "\n")


def _print_tables(
    name: str, findings: Sequence[Finding], held: Sequence[Promise], settings: Sequence[tuple[str, str, str]]
) -> None:
    out = console()
    out.print(as_text(name, "bold"), soft_wrap=True)
    if settings:
        grid = _grid("setting", "value", "from")
        for shown in settings:
            grid.add_row(*map(as_text, shown))
        out.print(grid)
    grid = _grid("", "what", "found", "what to do")
    for finding in findings:
        verdict = Text(finding.verdict, _STYLES[finding.verdict])
        grid.add_row(verdict, finding.topic, as_text(finding.found), finding.advice)
    out.print(grid)
    grid = _grid("holds", "boundary", "promise", "condition")
    for row in held:
        grid.add_row(_answer(row), row.boundary, row.promise, row.because)
    out.print(grid)


def _grid(*columns: str) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    for column in columns:
        grid.add_column(column, no_wrap=column in ("", "holds", "what"))
    return grid


def _answer(row: Promise) -> Text:
    if row.holds is None:
        return Text("-", "dim")
    return Text("yes", "green") if row.holds else Text("no", "bold red")
